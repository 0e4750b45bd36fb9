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


def config_path_of(
    environ: Mapping[str, str] = os.environ, *, use_file: bool = True, given: Path | None = None
) -> Path | None:
    """Return the `strandline.toml` that holds: the named one, else the nearest; None if there is none."""
    named = given or (Path(environ["STRANDLINE_CONFIG"]) if environ.get("STRANDLINE_CONFIG") else None)
    return (named or find_file()) if use_file else None


def has_alarms(path: Path | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a file or a variable may configure alarms; most servers have neither."""
    if any(name.startswith("STRANDLINE_ALARMS_") for name in environ):
        return True
    try:
        return path is not None and b"alarms" in path.read_bytes()  # TOML has several ways to write a section
    except OSError:  # who reads the settings says which file it is
        return True


def configured_flags(
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    *,
    use_file: bool = True,
    given: Path | None = None,
) -> list[str]:
    """Return the flags that variables and the file stand for."""
    has_own = any(argument.partition("=")[0] in _CONFIG for argument in arguments)
    path = None if has_own else config_path_of(environ, use_file=use_file, given=given)
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
