"""What `strandline serve` takes from variables and from the section `[serve]` of `strandline.toml`, as flags.

A value stands before the flags of the command line, so that a flag beats it. A command line with a configuration file
of its own (`-c`) takes nothing from the section: that file says what the server is told.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from strandline.config.file import find_file

_CONFIG = ("-c", "--c", "-config", "--config")
_PREFIX = "STRANDLINE_SERVE_"


def configured_flags(
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    *,
    use_file: bool = True,
    given: Path | None = None,
) -> list[str]:
    """Return the flags that variables and the file stand for."""
    has_own = any(argument.partition("=")[0] in _CONFIG for argument in arguments)
    named = given or (Path(environ["STRANDLINE_CONFIG"]) if environ.get("STRANDLINE_CONFIG") else None)
    path = (named or find_file()) if use_file and not has_own else None
    if path is None and not any(name.startswith(_PREFIX) for name in environ):
        return []
    from strandline.config import Source, read_file, resolve  # noqa: PLC0415 - most servers have neither

    file = None if path is None else read_file(path, environ)
    settings = resolve("serve", environ, file)
    return [
        f"--{name}={str(found.value).lower() if isinstance(found.value, bool) else found.value}"
        for name, found in settings.items()
        if found.source is not Source.DEFAULT
    ]
