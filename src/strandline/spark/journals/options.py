"""Options of the format, parsed once: unknown ones are refused, and so are those that another door takes.

Invariants: pure; names are matched without regard to case, as Spark hands them over; a path is absolute afterwards, so
that it means the same folder in every process.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from strandline.spark.journals.errors import refused

ROWS_PER_BATCH = 10_000
RECORDS_PER_TRIGGER = 50_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRUTHS = {"true": True, "false": False}
T = TypeVar("T")


class At(NamedTuple):
    """The first record that was appended at this time or later."""

    time_ns: int


Place: TypeAlias = int | Literal["earliest", "latest"] | At

_BOTH = ("path", "startingOffset", "startingTimestamp", "failOnDataLoss", "rowsPerBatch", "partitions")
BATCH_OPTIONS = (*_BOTH, "endingOffset", "endingTimestamp")
STREAM_OPTIONS = (*_BOTH, "maxRecordsPerTrigger")
WRITE_OPTIONS = ("path", "commitId")
STREAM_WRITE_OPTIONS = ("path", "checkpointLocation")
"""Spark hands the query's own `checkpointLocation` to its sink."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is read, and in what pieces."""

    path: str
    starting: Place = "earliest"
    ending: Place = "latest"
    is_loss_refused: bool = True
    rows_per_batch: int = ROWS_PER_BATCH
    partitions: int | None = None
    records_per_trigger: int = RECORDS_PER_TRIGGER


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go, and the name that makes a bounded write happen once."""

    path: str
    commit_id: str | None = None


def parse_batch_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a bounded read."""
    given = _Given(options, BATCH_OPTIONS, "a bounded read")
    starting = given.place("starting", "earliest")
    if starting == "latest":
        raise refused("startingOffset latest reads nothing", "leave it out, or give a number")
    return ReadOptions(
        given.path(),
        starting,
        given.place("ending", "latest"),
        given.take("failOnDataLoss", _truth, default=True),
        given.take("rowsPerBatch", _count, default=ROWS_PER_BATCH),
        given.take("partitions", _count, default=None),
    )


def parse_stream_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a streaming read."""
    given = _Given(options, STREAM_OPTIONS, "a stream")
    starting = given.place("starting", "earliest")
    if starting == "latest":
        raise refused(
            "startingOffset latest is another offset each time it is asked, and Spark asks again after a crash",
            "give the number: JournalReader.open(path).next_offset",
        )
    return ReadOptions(
        given.path(),
        starting,
        "latest",
        given.take("failOnDataLoss", _truth, default=True),
        given.take("rowsPerBatch", _count, default=ROWS_PER_BATCH),
        given.take("partitions", _count, default=None),
        given.take("maxRecordsPerTrigger", _count, default=RECORDS_PER_TRIGGER),
    )


def parse_write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Return the options of a sink."""
    what = "a streaming write" if is_stream else "a bounded write"
    given = _Given(options, STREAM_WRITE_OPTIONS if is_stream else WRITE_OPTIONS, what)
    return WriteOptions(given.path(), given.take("commitId", _name, default=None))


class _Given:
    """The options that were given, by their lower-case names."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(self._values) - {name.lower() for name in known})
        if unknown:
            raise refused(f"{what} has no option {', '.join(unknown)}", f"there are {', '.join(known)}")

    def path(self) -> str:
        path = self._values.get("path")
        if not path:
            raise refused("there is no path", "name the journal's folder: .load(path), or .option('path', path)")
        return os.path.abspath(path.removeprefix("file://"))  # noqa: PTH100 - a pure function of text

    def take(self, name: str, parse: Callable[[str], T], *, default: T | None) -> T:
        text = self._values.get(name.lower())
        if text is None:
            return default  # type: ignore[return-value]
        try:
            return parse(text)
        except ValueError as error:
            raise refused(f"option {name} cannot be {text!r}", str(error)) from error

    def place(self, side: str, default: Literal["earliest", "latest"]) -> Place:
        offset: Place | None = self.take(f"{side}Offset", _place, default=None)
        at: At | None = self.take(f"{side}Timestamp", _at, default=None)
        if offset is not None and at is not None:
            raise refused(f"{side}Offset and {side}Timestamp name two places", "give one of them")
        if at is not None:
            return at
        return default if offset is None else offset


def _place(text: str) -> Place:
    if text.lower() == "earliest":
        return "earliest"
    if text.lower() == "latest":
        return "latest"
    return _number(text, 0, "it is an offset, earliest or latest")


def _count(text: str) -> int:
    return _number(text, 1, "it is a whole number from 1 on")


def _number(text: str, least: int, rule: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < least:
        raise ValueError(rule)
    return int(text)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError("it is true or false")
    return _TRUTHS[text.lower()]


def _name(text: str) -> str:
    if not text or len(text) > 256 or not text.isprintable():  # noqa: PLR2004 - a name, not a document
        raise ValueError("it is a name of 1 to 256 printable characters")
    return text


def _at(text: str) -> At:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("it is a time such as 2026-11-15T12:00:00Z") from error
    if moment.tzinfo is None:
        raise ValueError("it needs a zone, as in 2026-11-15T12:00:00Z or …+01:00")
    elapsed = moment - _EPOCH
    return At(((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds) * 1000)
