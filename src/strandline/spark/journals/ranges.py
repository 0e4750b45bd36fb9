"""The range reader: Arrow batches of a journal's records from one offset to another, for all three doors.

Invariants: a range yields all of its records, in order, or raises; it never yields a record of another journal. What is
gone (trimmed, or lost to damage) is refused, or where the caller allows it passed over and said so. Readers take no
lock and change nothing.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from strandline.errors import FormatError, OffsetBelowRetained, OffsetsLost
from strandline.journal import Batch, JournalReader
from strandline.spark.errors import RecordsMissing, invalid_input
from strandline.spark.journals.columns import BATCH_BYTES_MAX, COLUMNS, project, resized
from strandline.spark.journals.options import ROWS_PER_BATCH, At, Place, ReadOptions

_LOOKS = 20
_LOOK_AGAIN_S = 0.05
"""A frontier that is torn at the moment shows less than was seen before; that passes within a write of the journal."""

logger = logging.getLogger("strandline")


@dataclass(frozen=True, slots=True)
class Range:
    """Records [start, stop) of one journal."""

    identity: bytes
    start: int
    stop: int


def read_journal(
    path: str,
    columns: Sequence[str] | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a journal as Arrow batches, without Spark: from the first that is there to the last now."""
    schema = COLUMNS.chosen(columns)
    options = ReadOptions(
        path,
        "earliest" if start is None else start,
        "latest" if stop is None else stop,
        rows_per_batch=rows_per_batch,
    )
    yield from read_range(options, resolve_range(options), schema)


def resolve_range(options: ReadOptions) -> Range:
    """Return the range that a bounded read means, by what the journal holds now."""
    with open_journal(options.path) as reader:
        first, next_offset = reader.first_offset, reader.next_offset
        start = _resolve(reader, options.starting)
        stop = _resolve(reader, options.ending)
        if start < first:
            tell_loss(options, f"offsets [{start}, {first}) were removed by retention")
            start = first
        for name, offset in (("starting", start), ("ending", stop)):
            if offset > next_offset:
                raise invalid_input(
                    f"{options.path}: the {name} offset {offset} is beyond the end, {next_offset}",
                    "leave it out to read to the end",
                )
        return Range(reader.identity, start, max(start, stop))


def read_range(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all records of a range with the columns of `schema`."""
    batches = (project(batch, schema) for batch in _batches(options, wanted))
    yield from resized(batches, options.rows_per_batch, BATCH_BYTES_MAX)


def split_range(wanted: Range, parts_max: int, rows_min: int) -> list[Range]:
    """Return contiguous ranges of about the same length, at most `parts_max` and none much shorter than `rows_min`."""
    count = wanted.stop - wanted.start
    if count <= 0:
        return []
    parts = min(parts_max, max(1, count // rows_min))
    bounds = [wanted.start + count * part // parts for part in range(parts + 1)]
    return [Range(wanted.identity, start, stop) for start, stop in pairwise(bounds)]


def open_journal(path: str) -> JournalReader:
    """Open a journal for reading; `FormatError` with a hint that Spark shows where there is none."""
    try:
        return JournalReader.open(path)
    except FormatError as error:
        error.add_note("the folder must be a journal, and readable at the same path on the driver and all executors")
        raise


def next_offset_from(reader: JournalReader, least: int) -> int:
    """Return the end of what can be read, which should be `least` or more; look again for a moment where it is not."""
    for _ in range(_LOOKS):
        if reader.next_offset >= least:
            break
        time.sleep(_LOOK_AGAIN_S)
    return reader.next_offset


def find_time(reader: JournalReader, time_ns: int) -> int:
    """Return the offset of the first record appended at a time or later, supposing that appends' times rise."""
    low, high = reader.first_offset, reader.next_offset
    while low < high:
        middle = (low + high) // 2
        batch = _batch_at(reader, middle, high)
        if batch is not None and batch.append_ns < time_ns:
            low = min(high, batch.next_offset)
        else:
            high = middle
    return low


def tell_loss(options: ReadOptions, problem: str) -> None:
    """Raise `RecordsMissing`, or log it where the user said that the query shall go on."""
    if options.is_loss_refused:
        raise RecordsMissing(options.path, problem)
    logger.warning("%s: %s; going on, since failOnDataLoss is false", options.path, problem)


def _resolve(reader: JournalReader, place: Place) -> int:
    match place:
        case "earliest":
            return reader.first_offset
        case "latest":
            return reader.next_offset
        case At(time_ns):
            return find_time(reader, time_ns)
        case int():
            return place


def _batch_at(reader: JournalReader, offset: int, stop: int) -> Batch | None:
    """Return the rest of the batch with an offset, or the next one that is not lost; None where there is none."""
    try:
        return next(reader.scan(offset, stop=stop), None)
    except OffsetsLost as lost:
        return _batch_at(reader, lost.resume_at, stop) if lost.resume_at < stop else None


def _batches(options: ReadOptions, wanted: Range) -> Iterator[Batch]:
    with open_journal(options.path) as reader:
        if reader.identity != wanted.identity:
            raise RecordsMissing(options.path, "the journal was replaced by another since the range was planned")
        end = next_offset_from(reader, wanted.stop)
        if end < wanted.stop:
            tell_loss(options, f"the journal ends at {end}, before the {wanted.stop} that it had reached")
        start, stop = wanted.start, min(end, wanted.stop)
        while start < stop:
            try:
                for batch in reader.scan(start, stop=stop):
                    yield batch
                    start = batch.next_offset
            except OffsetBelowRetained as gone:
                tell_loss(options, f"offsets [{start}, {min(gone.first, stop)}) were removed by retention")
                start = gone.first
            except OffsetsLost as lost:
                tell_loss(options, f"offsets [{start}, {min(lost.resume_at, stop)}) were lost to damage")
                start = lost.resume_at
