"""Options that all sources of the format share: how they are looked up, parsed and refused.

Invariants: pure; names are matched without regard to case, as Spark hands them over; an unknown option is refused with
the known ones, and an impossible value with the possible ones. No refusal quotes the value of an option that holds a
secret.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from strandline.spark.errors import invalid_input

ROWS_PER_BATCH = 10_000
RECORDS_PER_TRIGGER = 50_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRUTHS = {"true": True, "false": False}
T = TypeVar("T")


class At(NamedTuple):
    """The first record that was appended at this time or later."""

    time_ns: int


Place: TypeAlias = int | Literal["earliest", "latest"] | At
"""Where a read begins or ends."""
View = Literal["changes", "latest"]
READ_OPTIONS = ("startingOffset", "startingTimestamp", "failOnDataLoss", "rowsPerBatch", "partitions")
BATCH_READ_OPTIONS = (*READ_OPTIONS, "endingOffset", "endingTimestamp")
STREAM_READ_OPTIONS = (*READ_OPTIONS, "maxRecordsPerTrigger")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The part of a log that is read, and the sizes of its pieces."""

    starting: Place = "earliest"
    ending: Place = "latest"
    view: View = "changes"
    is_loss_refused: bool = True
    rows_per_batch: int = ROWS_PER_BATCH
    partitions: int | None = None
    records_per_trigger: int = RECORDS_PER_TRIGGER

    @property
    def label(self) -> str:
        """Return the name of the log in messages."""
        raise NotImplementedError

    @property
    def offset_word(self) -> str:
        """Return the log's word for an offset."""
        return "offset"

    @property
    def offset_min(self) -> int:
        """Return the lowest offset of the log."""
        return 0


class Given:
    """The given options, by their lower-case names; `what` names the operation in refusals."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(self._values) - {name.lower() for name in known})
        if unknown:
            raise invalid_input(f"{what} has no option {', '.join(unknown)}", f"there are {', '.join(known)}")

    def text(self, name: str) -> str | None:
        """Return the text of an option, None where it is missing or empty."""
        return self._values.get(name.lower()) or None

    def path(self, name: str = "path") -> str:
        """Return an absolute path: the same folder in every process."""
        path = self._values.get(name.lower())
        if not path:
            raise invalid_input("there is no path", "name the journal's folder: .load(path), or .option('path', path)")
        return absolute(path)

    def take(self, name: str, parse: Callable[[str], T], *, default: T | None) -> T:
        """Return the value of an option, or the default where it is missing."""
        text = self._values.get(name.lower())
        if text is None:
            return default  # type: ignore[return-value]
        try:
            return parse(text)
        except ValueError as error:
            raise invalid_input(f"option {name} cannot be {text!r}", str(error)) from error

    def place(self, side: str, default: Literal["earliest", "latest"]) -> Place:
        """Return where a read begins or ends, by `startingOffset` and `startingTimestamp` or those of the end."""
        offset: Place | None = self.take(f"{side}Offset", parse_place, default=None)
        at: At | None = self.take(f"{side}Timestamp", parse_time, default=None)
        if offset is not None and at is not None:
            raise invalid_input(f"{side}Offset and {side}Timestamp name two places", "give one of them")
        if at is not None:
            return at
        return default if offset is None else offset

    def batch_read(self) -> dict[str, Any]:
        """Return the fields of `ReadOptions` for a bounded read."""
        starting = self.place("starting", "earliest")
        if starting == "latest":
            raise invalid_input("startingOffset latest reads nothing", "leave it out, or give a number")
        return {**self._read(), "starting": starting, "ending": self.place("ending", "latest")}

    def stream_read(self, hint: str) -> dict[str, Any]:
        """Return the fields of `ReadOptions` for a streaming read; `hint` says how to find the end of the log."""
        starting = self.place("starting", "earliest")
        if starting == "latest":
            raise invalid_input(
                "startingOffset latest is another offset each time it is asked, and Spark asks again after a crash",
                hint,
            )
        records = self.take("maxRecordsPerTrigger", parse_count, default=RECORDS_PER_TRIGGER)
        return {**self._read(), "starting": starting, "records_per_trigger": records}

    def _read(self) -> dict[str, Any]:
        return {
            "is_loss_refused": self.take("failOnDataLoss", parse_truth, default=True),
            "rows_per_batch": self.take("rowsPerBatch", parse_count, default=ROWS_PER_BATCH),
            "partitions": self.take("partitions", parse_count, default=None),
        }


def absolute(path: str) -> str:
    """Return a path that means the same in every process."""
    return os.path.abspath(path.removeprefix("file://"))  # noqa: PTH100 - a pure function of text


def parse_place(text: str) -> Place:
    """Return an offset, or one of the two words."""
    if text.lower() == "earliest":
        return "earliest"
    if text.lower() == "latest":
        return "latest"
    return _number(text, 0, "it is an offset, earliest or latest")


def parse_count(text: str) -> int:
    """Return a number of things."""
    return _number(text, 1, "it is a whole number from 1 on")


def parse_truth(text: str) -> bool:
    """Return whether it is true."""
    if text.lower() not in _TRUTHS:
        raise ValueError("it is true or false")
    return _TRUTHS[text.lower()]


def parse_name(text: str) -> str:
    """Return a name."""
    if not text or len(text) > 256 or not text.isprintable():  # noqa: PLR2004 - a name, not a document
        raise ValueError("it is a name of 1 to 256 printable characters")
    return text


def parse_time(text: str) -> At:
    """Return a moment."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("it is a time such as 2026-11-15T12:00:00Z") from error
    if moment.tzinfo is None:
        raise ValueError("it needs a zone, as in 2026-11-15T12:00:00Z or …+01:00")
    elapsed = moment - _EPOCH
    return At(((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds) * 1000)


def _number(text: str, least: int, rule: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < least:
        raise ValueError(rule)
    return int(text)
