"""The settings of one section: the environment before the file, the file before the default, each with its source."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from strandline.config.file import ConfigFile
from strandline.config.keys import Declared, Key, declared
from strandline.config.passwords import masked

HIDDEN = "(hidden)"


class Source(Enum):
    """The level that a value comes from; a flag of the command line comes before all of them."""

    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """The value of a key, the level it comes from, and the place: a variable, or a file with its line."""

    key: Key
    value: object
    source: Source
    place: str = ""
    is_hidden: bool = False

    @property
    def shown(self) -> object:
        """Return the value as it may be printed."""
        return HIDDEN if self.is_hidden else masked(self.value)


def environment_name(section: str, name: str) -> str:
    """Return the variable of a key: `STRANDLINE_SCAN_MAX_FILE_BYTES`."""
    return f"STRANDLINE_{section}_{name}".upper().replace("-", "_")


def resolve(
    section: str, environ: Mapping[str, str], file: ConfigFile | None, sections: Declared | None = None
) -> dict[str, Setting]:
    """Return every setting of a section, by key."""
    return {name: _setting(key, environ, file) for name, key in (sections or declared())[section].items()}


def _setting(key: Key, environ: Mapping[str, str], file: ConfigFile | None) -> Setting:
    for name in key.environment:
        if environ.get(name):  # an empty variable is none, as for every command
            return Setting(key, environ[name], Source.ENVIRONMENT, name, key.is_secret)
    found = None if file is None else file.get(key.section, key.name)
    if file is not None and found is not None:
        return Setting(key, found.value, Source.FILE, f"{file.path}:{found.line}", found.is_hidden or key.is_secret)
    return Setting(key, key.default, Source.DEFAULT)
