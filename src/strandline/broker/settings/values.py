"""Typed readers of configuration values: numbers, sizes, times, addresses, blocks.

Invariants: a reader takes a `Value` and returns something of Python, or raises with the value's place; reading a block
tells all of its problems at once, and those of the blocks within it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from strandline.broker.settings.errors import ConfigurationRefused, NotServed
from strandline.broker.settings.syntax import Value
from strandline.errors import InvalidInput

Found = TypeVar("Found")
Fields = dict[str, Any]
Reader = Callable[[Value], Fields]
"""Reads the value of a key into fields of the settings."""
Table = Mapping[str, Reader]

DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
SIZE = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE | re.ASCII)
SIZE_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
SERVED_ELSEWHERE = "run nats-server for that; docs/broker.md tells how to move to it and back"


def refuse(value: Value, problem: str) -> ConfigurationRefused:
    """Return the error for a value."""
    return ConfigurationRefused([f"{value.place}: {problem}"])


def text(value: Value) -> str:
    """Read a string; a number is accepted as one."""
    match value.content:
        case bool() | dict() | list():
            raise refuse(value, f"expected a string, not {value.kind}")
        case content:
            return str(content)


def integer(value: Value) -> int:
    """Read an integer, with an optional unit (`64MB`)."""
    match value.content:
        case int(content) if not isinstance(content, bool):
            return content
        case _:
            raise refuse(value, f"expected an integer, not {value.kind}")


def limit(value: Value) -> int | None:
    """Read a limit; 0 and -1 mean none."""
    found = integer(value)
    return found if found > 0 else None


def size(value: Value) -> int:
    """Read a size: a number, or a text such as `64MB`, whose units are powers of 1024; -1 is no limit."""
    if isinstance(value.content, str):
        found = SIZE.fullmatch(value.content)
        if found is None:
            raise refuse(value, f"expected a size, not {value.content!r}")
        return int(found[1]) * int(1024 ** SIZE_POWERS[found[2].upper()])
    return integer(value)


def truth(value: Value) -> bool:
    """Read a boolean."""
    if not isinstance(value.content, bool):
        raise refuse(value, f"expected a boolean, not {value.kind}")
    return value.content


def duration_s(value: Value) -> float:
    """Read a duration in Go's form (`1h5m`, `500ms`); a number without a unit is refused."""
    if not isinstance(value.content, str):
        raise refuse(value, 'expected a duration with a unit, such as "2s" or "5m"')
    try:
        return parse_duration_s(value.content)
    except InvalidInput as error:
        raise refuse(value, str(error)) from error


def seconds(value: Value) -> float:
    """Read a duration: a number of seconds, or Go's form."""
    match value.content:
        case bool():
            raise refuse(value, f"expected seconds, not {value.kind}")
        case int(content) | float(content):
            return float(content)
        case _:
            return duration_s(value)


def parse_duration_s(written: str) -> float:
    """Return the seconds of a duration in Go's form; raise `InvalidInput` if it is invalid."""
    parts = DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise InvalidInput(f"invalid duration {written!r}")
    return float(sum(float(number) * UNIT_S[unit] for number, unit in parts))


def path(value: Value) -> Path | None:
    """Read a path, relative to the working directory; an empty one is None."""
    written = text(value)
    return Path(written) if written else None


def texts(value: Value) -> tuple[str, ...]:
    """Read one string, or a list of strings."""
    if isinstance(value.content, list):
        return tuple(text(each) for each in value.content)
    return (text(value),)


def address(value: Value) -> tuple[str, int]:
    """Read an address: a port, or host and port."""
    if isinstance(value.content, int) and not isinstance(value.content, bool):
        return "", value.content
    host, _, port = text(value).rpartition(":")
    if not re.fullmatch(r"-?[0-9]{1,19}", port) or ("]" in port):
        raise refuse(value, f"could not parse address string {value.content!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def entries(value: Value) -> dict[str, Value]:
    """Read a map."""
    if not isinstance(value.content, dict):
        raise refuse(value, f"expected a map, not {value.kind}")
    return value.content


def items(value: Value) -> list[Value]:
    """Read a list."""
    if not isinstance(value.content, list):
        raise refuse(value, f"expected a list, not {value.kind}")
    return value.content


def to_duration(field: str, name: str) -> Reader:
    """Return the reader of a duration; a number without a unit is seconds, with nats-server's warning."""

    def read(value: Value) -> Fields:
        if isinstance(value.content, str):
            return {field: duration_s(value)}
        doubt = f'{value.place}: invalid use of field "{name}": {name} should be converted to a duration'
        return {field: seconds(value), "doubts": (doubt,)}

    return read


def to(field: str, read: Callable[[Value], Any]) -> Reader:
    """Return the reader of a key for one field."""
    return lambda value: {field: read(value)}


def nothing(_: Value) -> Fields:
    """Ignore a key without effect on a single server."""
    return {}


def not_served(what: str) -> Reader:
    """Return the reader of a key for an unsupported feature, which may only be switched off."""

    def read(value: Value) -> Fields:
        if value.content in (False, 0, "", "disabled"):
            return {}
        raise NotServed([f"{value.place}: {what}"], hint=SERVED_ELSEWHERE)

    return read


class Problems:
    """Collected problems, raised together."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.missing: list[str] = []

    def guard(self, value: Value, read: Callable[[Value], Found]) -> Found | None:
        """Return the result of a reader; None, with its problem collected, if it refuses."""
        try:
            return read(value)
        except NotServed as error:
            self.missing += error.problems
        except ConfigurationRefused as error:
            self.problems += error.problems
        except InvalidInput as error:
            self.problems.append(f"{value.place}: {error}")
        return None

    def raise_if_any(self) -> None:
        """Raise if there was any."""
        if self.problems:
            raise ConfigurationRefused([*self.problems, *self.missing])
        if self.missing:
            raise NotServed(self.missing, hint=SERVED_ELSEWHERE)


def read_each(values: Iterable[Value], read: Callable[[Value], Found]) -> list[Found]:
    """Return the results of a reader for each value; raise all problems together."""
    problems = Problems()
    found = [problems.guard(value, read) for value in values]
    problems.raise_if_any()
    return [each for each in found if each is not None]


def read_block(block: dict[str, Value], table: Table) -> Fields:
    """Return the fields of all keys of a block; raise all problems together."""
    fields: Fields = {}
    problems = Problems()
    for name, value in block.items():
        read = table.get(name.lower())
        if read is not None:
            found = problems.guard(value, read) or {}
            for kind in ("notes", "doubts"):
                if kind in found and kind in fields:
                    found = {**found, kind: (*fields[kind], *found[kind])}
            fields |= found
        elif not value.is_variable:
            problems.problems.append(f'{value.place}: unknown field "{name}"')
    problems.raise_if_any()
    return fields
