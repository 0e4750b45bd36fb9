"""Conversion between frozen dataclasses and JSON, by the rules of Go's struct tags.

A type of the API is a frozen dataclass whose annotations carry a `Kind`. Fields are written in their order; one without
`KEEP` is left out while it is empty (Go's `omitempty`). Parsing is strict: an unknown field, or a value of another
type, is refused with Go's text.
"""

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

from strandline.broker.api.codes import ApiError
from strandline.broker.api.json_text import Decimal, invalid_json, read_json, write_json
from strandline.broker.api.times import format_time, parse_time

T = TypeVar("T")
SEQUENCE_MAX = 1 << 62
"""Higher than any sequence of a stream, and low enough for 63-bit arithmetic beyond it."""
Json: TypeAlias = Any
"""A value of a field."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a field; `go` is the name of its Go type in error texts."""

    go: str
    read: Callable[[Json, str, str], Json]
    write: Callable[[Any], Any]


def _mismatch(value: Json, where: str, go: str) -> ApiError:
    match value:
        case bool():
            what = "bool"
        case Decimal() | int():
            what = f"number {value}" if go in _INTEGERS or go == "time.Duration" else "number"
        case str():
            what = "string"
        case list():
            what = "array"
        case _:
            what = "object"
    at = where if where.rpartition(".")[2].isdigit() else f"Go struct field {where}"
    return invalid_json(f"json: cannot unmarshal {what} into {at} of type {go}")


_INTEGERS = {
    "int": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
    "time.Duration": (-(2**63), 2**63 - 1),
}


def _integer(go: str) -> Kind:
    low, high = _INTEGERS[go]

    def read(value: Json, where: str, go: str) -> Json:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _mismatch(value, where, go)
        return value

    return Kind(go, read, _same)


def _same(value: Json) -> Json:
    return value


def _read_exactly(kind: type) -> Callable[[Json, str, str], Json]:
    def read(value: Json, where: str, go: str) -> Json:
        if type(value) is not kind:
            raise _mismatch(value, where, go)
        return value

    return read


def _read_time(value: Json, where: str, go: str) -> int:
    if type(value) is not str:
        raise _mismatch(value, where, go)
    try:
        return parse_time(value)
    except ValueError as error:
        raise invalid_json(str(error)) from None


STRING = Kind("string", _read_exactly(str), _same)
BOOL = Kind("bool", _read_exactly(bool), _same)
INT = _integer("int")
INT32 = _integer("int32")
INT64 = _integer("int64")
UINT64 = _integer("uint64")
SEQUENCE = Kind(UINT64.go, lambda value, where, go: min(UINT64.read(value, where, go), SEQUENCE_MAX), _same)
"""A stream sequence, capped at `SEQUENCE_MAX`."""
DURATION = _integer("time.Duration")
TIME = Kind("time.Time", _read_time, format_time)
VALUE = Kind("", lambda value, _where, _go: value, _same)
"""Any value, unchecked; only for responses."""


def _read_strings(value: Json, where: str, go: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _mismatch(value, where, go)
    return tuple(STRING.read("" if item is None else item, f"{where}.{i}", "string") for i, item in enumerate(value))


def _read_map(value: Json, where: str, go: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _mismatch(value, where, go)
    return {key: STRING.read("" if item is None else item, f"{where}.{key}", "string") for key, item in value.items()}


def _read_durations(value: Json, where: str, go: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _mismatch(value, where, go)
    return tuple(
        DURATION.read(0 if item is None else item, f"{where}.{i}", DURATION.go) for i, item in enumerate(value)
    )


STRINGS = Kind("[]string", _read_strings, list)
DURATIONS = Kind("[]time.Duration", _read_durations, list)
STRING_MAP = Kind("map[string]string", _read_map, lambda value: dict(sorted(value.items())))


def enum_kind(cls: type[StrEnum], *, problem: str | None = None) -> Kind:
    """Return the kind of an enumeration; `problem` may contain `{value}`."""

    def read(value: Json, where: str, go: str) -> Json:
        del where, go
        if type(value) is str and value in cls._value2member_map_:
            return cls(value)
        text = write_json(value).decode()
        raise invalid_json(problem.format(value=text) if problem else f"can not unmarshal {_quoted(text)}")

    return Kind(cls.__name__, read, str)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def struct_kind(cls: type) -> Kind:
    """Return the kind of a field that is another type of the API, absent if None."""
    return Kind(f"server.{go_name(cls)}", lambda value, where, go: _read_struct(cls, value, where, go), to_plain)


def structs_kind(cls: type) -> Kind:
    """Return the kind of a field that is a list of another type of the API."""
    inner = struct_kind(cls)

    def read(value: Json, where: str, go: str) -> Json:
        if not isinstance(value, list):
            raise _mismatch(value, where, go)
        return tuple(inner.read(item, f"{where}.{number}", inner.go) for number, item in enumerate(value))

    return Kind(f"[]*{inner.go}", read, lambda value: [to_plain(item) for item in value])


KEEP = "keep"
"""Marks a field that is written even when it is empty."""
EMBED = "embed"
"""Marks a field whose own fields are written in its place."""


def go_name(cls: type) -> str:
    """Return the Go name of a type, for error texts."""
    return getattr(cls, "GO_NAME", cls.__name__)


class _Field(NamedTuple):
    name: str
    kind: Kind
    keep: bool
    embed: bool


_LAYOUTS: dict[type, tuple[_Field, ...]] = {}


def _layout(cls: type) -> tuple[_Field, ...]:
    """Return the fields of a type with their kinds, from `Annotated`."""
    if cls not in _LAYOUTS:
        marks = {
            name: getattr(hint, "__metadata__", ()) for name, hint in get_type_hints(cls, include_extras=True).items()
        }
        _LAYOUTS[cls] = tuple(
            _Field(name, found[0], KEEP in found[1:], EMBED in found[1:]) for name, found in marks.items() if found
        )
    return _LAYOUTS[cls]


def to_plain(value: Json) -> dict[str, Json]:
    """Return an API type as plain JSON values, in Go's order."""
    plain: dict[str, Json] = {}
    for name, kind, keep, embed in _layout(type(value)):
        part = getattr(value, name)
        if embed:
            if part is not None:
                plain.update(to_plain(part))
        elif part is None:
            if keep:
                plain[name] = None
        elif keep or _is_present(part):
            plain[name] = kind.write(part)
    return plain


def _is_present(part: Json) -> bool:
    return bool(part) or is_dataclass(part)


def to_json(value: Json) -> bytes:
    """Return an API type as JSON text."""
    return write_json(to_plain(value))


def from_plain(cls: type[T], value: Json) -> T:
    """Return an API type from plain JSON values; `ApiError` 10025 if they do not fit."""
    if value is None:
        return cls()
    if not isinstance(value, dict):
        what = _mismatch(value, "", "").description.split(" unmarshal ")[1].split(" into ")[0]
        raise invalid_json(f"json: cannot unmarshal {what} into Go value of type server.{go_name(cls)}")
    return _read_fields(cls, value, go_name(cls))


def from_json(cls: type[T], data: bytes) -> T:
    """Return an API type from JSON text; `ApiError` 10025 if it does not fit."""
    return from_plain(cls, read_json(data))


def from_plain_loosely(cls: type[T], value: Json) -> T:
    """Return an API type from plain JSON values, ignoring unknown fields."""
    if not isinstance(value, dict):
        return from_plain(cls, value)
    known = {item.name for item in _layout(cls)}
    return from_plain(cls, {name: part for name, part in value.items() if name.lower() in known})


def _read_struct(cls: type[T], value: Json, where: str, go: str) -> T:
    if not isinstance(value, dict):
        raise _mismatch(value, where, go)
    return _read_fields(cls, value, where)


def _read_fields(cls: type[T], value: dict[str, Json], where: str) -> T:
    known = {item.name: item.kind for item in _layout(cls) if not item.embed}
    found: dict[str, Json] = {}
    for name, part in value.items():
        own = name if name in known else name.lower()
        if own not in known:
            raise invalid_json(f"json: unknown field {_quoted(name)}")
        if part is not None:
            found[own] = known[own].read(part, f"{where}.{name}", known[own].go)
    return cls(**found)
