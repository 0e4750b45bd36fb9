"""Options of the format, parsed once: unknown ones are refused, and so are those that another door takes.

Invariants: pure; names are matched without regard to case, as Spark hands them over; a path is absolute afterwards, so
that it means the same folder in every process.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.spark.errors import invalid_input
from strandline.spark.logs.options import (
    RECORDS_PER_TRIGGER,
    ROWS_PER_BATCH,
    At,
    Given,
    Place,
    parse_count,
    parse_name,
    parse_truth,
)

__all__ = ["ROWS_PER_BATCH", "At", "Place", "ReadOptions", "WriteOptions"]

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
    given = Given(options, BATCH_OPTIONS, "a bounded read")
    starting = given.place("starting", "earliest")
    if starting == "latest":
        raise invalid_input("startingOffset latest reads nothing", "leave it out, or give a number")
    return ReadOptions(
        given.path(),
        starting,
        given.place("ending", "latest"),
        given.take("failOnDataLoss", parse_truth, default=True),
        given.take("rowsPerBatch", parse_count, default=ROWS_PER_BATCH),
        given.take("partitions", parse_count, default=None),
    )


def parse_stream_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a streaming read."""
    given = Given(options, STREAM_OPTIONS, "a stream")
    starting = given.place("starting", "earliest")
    if starting == "latest":
        raise invalid_input(
            "startingOffset latest is another offset each time it is asked, and Spark asks again after a crash",
            "give the number: JournalReader.open(path).next_offset",
        )
    return ReadOptions(
        given.path(),
        starting,
        "latest",
        given.take("failOnDataLoss", parse_truth, default=True),
        given.take("rowsPerBatch", parse_count, default=ROWS_PER_BATCH),
        given.take("partitions", parse_count, default=None),
        given.take("maxRecordsPerTrigger", parse_count, default=RECORDS_PER_TRIGGER),
    )


def parse_write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Return the options of a sink."""
    what = "a streaming write" if is_stream else "a bounded write"
    given = Given(options, STREAM_WRITE_OPTIONS if is_stream else WRITE_OPTIONS, what)
    return WriteOptions(given.path(), given.take("commitId", parse_name, default=None))
