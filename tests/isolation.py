"""Settings of the machine that runs the tests reach none of them: variables are removed, files above are an error."""

from collections.abc import Iterable, MutableMapping
from pathlib import Path

from strandline.config import declared, find_file

OWN = "STRANDLINE_CONFIG"


def remove_settings(environ: MutableMapping[str, str]) -> None:
    """Remove every variable from which a command takes a setting."""
    for name in {OWN, *(name for keys in declared().values() for key in keys.values() for name in key.environment)}:
        environ.pop(name, None)


def files_above(folders: Iterable[Path]) -> list[Path]:
    """Return the configuration files that commands in these folders would read."""
    return [found for folder in folders if (found := find_file(folder)) is not None]
