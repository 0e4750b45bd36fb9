"""Settings of the machine that runs the tests reach none of them: variables are removed, files above are an error.

So the width and the colours of a terminal, or of a service that shows logs in colours, are the same everywhere, servers
on this machine are reached past any proxy, and commands of git look at the repositories of the tests.
"""

from collections.abc import Iterable, MutableMapping
from pathlib import Path

from strandline.config import declared, find_file

OWN = "STRANDLINE_CONFIG"
_OF_OTHERS = (
    *("COLUMNS", "LINES", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    *("GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE"),
)
_OF_SERVERS = ("AWS_", "PG")
_HERE = "127.0.0.1,localhost,::1"


def remove_settings(environ: MutableMapping[str, str]) -> None:
    """Remove every variable from which a command, or a library that it uses, takes a setting; no proxy is for here."""
    ours = {OWN, *(name for keys in declared().values() for key in keys.values() for name in key.environment)}
    for name in (*ours, *_OF_OTHERS, *(name for name in environ if name.startswith(_OF_SERVERS))):
        environ.pop(name, None)
    if any(name.lower().endswith("_proxy") for name in environ):
        for name in ("no_proxy", "NO_PROXY"):
            environ[name] = ",".join(filter(None, (environ.get(name), _HERE)))


def files_above(folders: Iterable[Path]) -> list[Path]:
    """Return the configuration files that commands in these folders would read."""
    return [found for folder in folders if (found := find_file(folder)) is not None]
