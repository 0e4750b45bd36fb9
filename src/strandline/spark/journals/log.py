"""A journal as a log: its bounds for a planner, and Arrow batches of its records from one offset to another.

Invariants: a range yields all of its records, in order, or raises; it never yields a record of another journal. Removed
and damaged records are refused, or skipped and logged where the user allowed data loss. Readers take no lock and change
nothing.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import pyarrow as pa

from strandline.errors import FormatError, OffsetBelowRetained, OffsetsLost
from strandline.journal import Batch, JournalReader
from strandline.spark.errors import RecordsMissing
from strandline.spark.journals.columns import COLUMNS, project
from strandline.spark.journals.options import JournalOptions
from strandline.spark.logs.columns import Columns, resized
from strandline.spark.logs.options import ROWS_PER_BATCH, View
from strandline.spark.logs.positions import PositionFormat
from strandline.spark.logs.ranges import Bounds, Log, Range, resolve_range, tell_loss

T = TypeVar("T")
_IDENTITY_DIGITS = 32
_LOOKS = 20
_LOOK_AGAIN_S = 0.05
"""A frontier that is torn at the moment shows less than was seen before; that passes within a write of the journal."""


def _is_identity(text: str) -> bool:
    return len(text) == _IDENTITY_DIGITS and all(digit in "0123456789abcdef" for digit in text)


POSITIONS = PositionFormat("journal", ("journal",), "offset", _is_identity)


@dataclass(frozen=True, slots=True)
class JournalSource:
    """A journal as a source of Spark; it is opened for each question, so that a replaced journal is noticed."""

    options: JournalOptions
    columns: ClassVar[Columns] = COLUMNS
    positions: ClassVar[PositionFormat] = POSITIONS

    @property
    def rows_per_part(self) -> int:
        """Return the size of a batch: a task costs more than a thousand records do."""
        return self.options.rows_per_batch

    def ask(self, question: Callable[[Log[Range]], T]) -> T:
        """Open the journal and return the answer to a question."""
        with open_journal(self.options.path) as reader:
            return question(JournalLog(reader))

    def read(self, part: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield all records of a range with the columns of `schema`."""
        batches = (project(batch, schema) for batch in _batches(self.options, part))
        yield from resized(batches, self.options.rows_per_batch)

    def close(self) -> None:
        """Do nothing: a journal is closed after each question."""


class JournalLog:
    """A journal that is open for reading."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    def bounds(self, least: int = 0) -> Bounds:
        """Return the bounds of the journal; an end below `least` is looked at again for a moment."""
        reader = self._reader
        return Bounds(_identity(reader), reader.first_offset, _next_offset(reader, least))

    def range(self, start: int, stop: int, view: View = "changes") -> Range:
        """Return a range of the journal."""
        return Range(_identity(self._reader), start, stop, view)

    def find_time(self, time_ns: int) -> int:
        """Return the offset of the first record appended at a time or later, supposing that appends' times rise."""
        low, high = self._reader.first_offset, self._reader.next_offset
        while low < high:
            middle = (low + high) // 2
            batch = _batch_at(self._reader, middle, high)
            if batch is not None and batch.append_ns < time_ns:
                low = min(high, batch.next_offset)
            else:
                high = middle
        return low

    def find_end(self, start: int, stop: int, rows_max: int) -> int:
        """Return the end of a range: offsets have no gaps."""
        return min(stop, start + rows_max)


def read_journal(
    path: str,
    columns: Sequence[str] | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a journal as Arrow batches, without Spark: by default from its first to its last now."""
    options = JournalOptions(
        path,
        starting="earliest" if start is None else start,
        ending="latest" if stop is None else stop,
        rows_per_batch=rows_per_batch,
    )
    source, schema = JournalSource(options), COLUMNS.chosen(columns)
    yield from source.read(source.ask(lambda log: resolve_range(log, options)), schema)


def open_journal(path: str) -> JournalReader:
    """Open a journal for reading; `FormatError` with a hint that Spark shows where there is none."""
    try:
        return JournalReader.open(path)
    except FormatError as error:
        error.add_note("the folder must be a journal, and readable at the same path on the driver and all executors")
        raise


def _identity(reader: JournalReader) -> tuple[str, ...]:
    return (reader.identity.hex(),)


def _next_offset(reader: JournalReader, least: int) -> int:
    for _ in range(_LOOKS):
        if reader.next_offset >= least:
            break
        time.sleep(_LOOK_AGAIN_S)
    return reader.next_offset


def _batch_at(reader: JournalReader, offset: int, stop: int) -> Batch | None:
    """Return the rest of the batch with an offset, or the next one that is not lost; None where there is none."""
    try:
        return next(reader.scan(offset, stop=stop), None)
    except OffsetsLost as lost:
        return _batch_at(reader, lost.resume_at, stop) if lost.resume_at < stop else None


def _batches(options: JournalOptions, wanted: Range) -> Iterator[Batch]:
    with open_journal(options.path) as reader:
        if _identity(reader) != wanted.identity:
            raise RecordsMissing(options.path, "the journal was replaced by another since the range was planned")
        end = _next_offset(reader, wanted.stop)
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
