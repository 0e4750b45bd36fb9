"""`strandline.toml`: found upward from a folder, read, and checked against the declared keys.

Invariants: every error names the file, and the line and the key where there is one; no error shows what a reference
gave, or the value of a secret key. Relative paths become paths below the file's folder.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from strandline.config.errors import ConfigInvalid
from strandline.config.keys import SHARED, Declared, Key, Kind, declared
from strandline.config.passwords import has_password

FILE_NAME = "strandline.toml"
_HEADER = re.compile(r"^\s*\[\s*([\w.\"'-]+)\s*\]")
_ASSIGNED = re.compile(r"^\s*[\"']?([\w-]+)[\"']?\s*=")
_TYPES: Mapping[Kind, tuple[type, ...]] = {
    Kind.TEXT: (str,),
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, float),
    Kind.BOOLEAN: (bool,),
}


@dataclass(frozen=True)
class FileValue:
    """A value of the file, ready to use, and where it stands; `is_hidden` if it must not be shown."""

    value: object
    line: int
    is_hidden: bool = False


@dataclass(frozen=True)
class ConfigFile:
    """What a configuration file says, by section and key."""

    path: Path
    values: Mapping[tuple[str, str], FileValue]

    def get(self, section: str, name: str) -> FileValue | None:
        """Return what the file says of a key: in its section, else at the top; None if it says nothing."""
        return self.values.get((section, name)) or self.values.get((SHARED, name))


def find_file(folder: Path | None = None, name: str = FILE_NAME) -> Path | None:
    """Return the configuration file of a folder (the working folder), or of the nearest one above that has one.

    A folder that is gone, or that this process may not search, has none.
    """
    try:
        start = Path.cwd() if folder is None else folder
    except OSError:
        return None
    return next((each / name for each in (start, *start.parents) if _is_file(each / name)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def read_file(path: Path, environ: Mapping[str, str], sections: Declared | None = None) -> ConfigFile:
    """Return what a file says; `ConfigInvalid` if it cannot be read, or says what no command understands."""
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise ConfigInvalid(str(path), 0, "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(str(path), 0, "", "cannot be read: it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(str(path), 0, "", f"is not TOML: {error}") from error
    return ConfigFile(path, dict(_Reader(path, text, environ, sections or declared()).read(tables)))


class _Reader:
    """Checks one file."""

    def __init__(self, path: Path, text: str, environ: Mapping[str, str], sections: Declared) -> None:
        self._path = path
        self._environ = environ
        self._sections = sections
        self._lines = dict(_lines(text))

    def read(self, tables: Mapping[str, object]) -> Iterator[tuple[tuple[str, str], FileValue]]:
        for name, value in tables.items():
            if isinstance(value, dict) and name in self._sections:
                for key, inner in value.items():
                    yield (name, key), self._value(name, key, inner)
            elif isinstance(value, dict) and not (name in self._sections[SHARED] or set(value) <= {"env", "file"}):
                known = [section for section in self._sections if section != SHARED]
                raise self._error("", name, f"there is no section [{name}]", _nearest(name, known))
            elif name in self._sections and name not in self._sections[SHARED]:
                raise self._error("", name, f"expected a section, not {_shown_type(value)}", f"[{name}]")
            else:
                yield (SHARED, name), self._value(SHARED, name, value)

    def _value(self, section: str, name: str, value: object) -> FileValue:
        key = self._sections[section].get(name)
        if key is None:
            known = list(self._sections[section])
            if section == SHARED:
                known += [other for other in self._sections if other != SHARED]
            where = f"in [{section}]" if section else "at the top of the file"
            raise self._error(section, name, f"there is no such key {where}", _nearest(name, known))
        if key.is_list:
            if not isinstance(value, list):
                raise self._error(section, name, f"expected a list, not {_shown(key, value)}", f"{name} = [ … ]")
            items = [self._item(key, item) for item in value]
            return FileValue([item.value for item in items], self._line(section, name), any(i.is_hidden for i in items))
        return self._item(key, value)

    def _item(self, key: Key, value: object) -> FileValue:
        line = self._line(key.section, key.name)
        if isinstance(value, dict) and key.kind is Kind.TEXT and not key.choices:
            return FileValue(self._path_of(key, self._referred(key, value)), line, is_hidden=True)
        if not isinstance(value, _TYPES[key.kind]) or (isinstance(value, bool) and key.kind is not Kind.BOOLEAN):
            problem = f"expected {key.kind.expected}, not {_shown(key, value)}"
            raise self._error(key.section, key.name, problem)
        if key.choices and value not in key.choices:
            problem = f"expected one of {', '.join(key.choices)}, not {_shown(key, value)}"
            raise self._error(key.section, key.name, problem, _nearest(str(value), list(key.choices)))
        if key.minimum is not None and isinstance(value, int | float) and value < key.minimum:
            raise self._error(key.section, key.name, f"expected at least {key.minimum:g}, not {value:g}")
        if isinstance(value, str) and (key.is_secret or has_password(value)):
            hint = f'{key.name} = {{ env = "NAME" }} or {{ file = "path" }}'
            raise self._error(key.section, key.name, "a password does not belong into this file", hint)
        return FileValue(self._path_of(key, value), line)

    def _referred(self, key: Key, reference: Mapping[str, object]) -> str:
        match reference:
            case {"env": str(name), **rest} if not rest:
                if name not in self._environ:
                    raise self._error(key.section, key.name, f"the variable {name} is not set")
                return self._environ[name]
            case {"file": str(name), **rest} if not rest:
                try:
                    return (self._path.parent / name).read_text(encoding="utf-8").strip()
                except (OSError, UnicodeDecodeError) as error:
                    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                    raise self._error(key.section, key.name, f"cannot read {name}: {reason}") from error
            case _:
                hint = '{ env = "NAME" } or { file = "path" }'
                raise self._error(key.section, key.name, f"expected {key.kind.expected} or a reference", hint)

    def _path_of(self, key: Key, value: object) -> object:
        before = key.path_after
        if before is None or not isinstance(value, str) or "://" in value or value in ("", "-"):
            return value
        if not value.startswith(before):
            return value
        return before + str(self._path.parent / value[len(before) :])

    def _line(self, section: str, name: str) -> int:
        return self._lines.get((section, name), 0)

    def _error(self, section: str, name: str, problem: str, hint: str | None = None) -> ConfigInvalid:
        label = f"{section}.{name}" if section else name
        line = self._line(section, name) or self._lines.get((name, ""), 0)
        return ConfigInvalid(str(self._path), line, label, problem, hint=hint)


def _lines(text: str) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the lines of sections, as `(section, "")`, and of keys; the TOML parser itself tells none."""
    section = SHARED
    for number, line in enumerate(text.splitlines(), 1):
        if found := _HEADER.match(line):
            section = found[1].strip("\"'")
            yield (section, ""), number
        elif found := _ASSIGNED.match(line):
            yield (section, found[1]), number


def _nearest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - every command reads a file, few find it wrong

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"


def _shown(key: Key, value: object) -> str:
    if isinstance(value, str):
        return "text" if key.is_secret or has_password(value) else repr(value)
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else _shown_type(value)


def _shown_type(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "a date or time")
