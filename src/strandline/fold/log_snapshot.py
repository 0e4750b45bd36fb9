"""One moment of a fold in memory, sorted by key beside the batches that follow, in bounded memory.

Invariants: taking it copies only which records count; their bytes are shared with the fold, whose pieces never change.
Sorting holds the keys of at most `_PARTITION_ROWS` rows at once: rows are first divided into ranges of keys. Equal
states are written as equal bytes, whatever their history.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.fold.batches import PAGE_BYTES, FoldBatch, PutColumns
from strandline.fold.chunks import Chunks
from strandline.fold.columns import Numbers
from strandline.fold.key_index import CountedSpans, is_ascending
from strandline.fold.log_format import HEADER, VERSION, format_batch
from strandline.fold.log_rows import LENGTH_MASK
from strandline.fold.paths import COPY_NAME
from strandline.fold.store import PAGE_ROWS
from strandline.kv import WatchCursor

_PARTITION_ROWS = 1 << 20
_SAMPLES_PER_PARTITION = 64
_VERSION_ROWS = 1 << 16


class LogSnapshot:
    """A `StoreSnapshot` of a fold that is held in memory."""

    backend = "append-log"
    version = VERSION

    def __init__(self, cursor: WatchCursor, chunks: Chunks, counted: CountedSpans) -> None:
        self._cursor = cursor
        self._chunks = chunks
        self._counted = counted
        self._spans: Numbers | None = None

    def cursor(self) -> WatchCursor:
        """Return the cursor of this moment."""
        return self._cursor

    def rows(self, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
        """Yield all rows by key."""
        return (self._chunks.rows(spans) for spans in self._pages(rows_max))

    def versions(self) -> Generator[tuple[pa.BinaryArray, pa.BinaryArray]]:
        """Yield keys and versions of all rows, in the order of the log."""
        spans = self._ascending()
        for first in range(0, len(spans), _VERSION_ROWS):
            yield self._chunks.versions(spans[first : first + _VERSION_ROWS])

    def copy_to(self, folder: Path) -> None:
        """Write a compacted log."""
        folder.mkdir()
        with (folder / COPY_NAME).open("xb") as file:
            file.write(HEADER)
            for spans in self._pages(PAGE_ROWS):
                file.write(self._chunks.joined(spans))
            for part in format_batch(FoldBatch(), self._cursor).parts:
                file.write(part)

    def close(self) -> None:
        """Let go of the bytes."""
        self._chunks, self._counted, self._spans = Chunks(), CountedSpans([], []), None

    def _pages(self, rows_max: int) -> Iterator[Numbers]:
        """Yield the spans of all records by key, a page at a time."""
        for spans in _sorted_partitions(self._chunks, self._ascending()):
            yield from paged_spans(spans, rows_max)

    def _ascending(self) -> Numbers:
        if self._spans is None:
            self._spans, self._counted = self._counted.ascending(), CountedSpans([], [])
        return self._spans


def paged_spans(spans: Numbers, rows_max: int) -> Iterator[Numbers]:
    """Yield records that go together: no more than so many, and than `PAGE_BYTES` unless it is one."""
    ends = np.cumsum(spans & LENGTH_MASK)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + PAGE_BYTES, "right"))
        stop = max(first + 1, min(end, first + rows_max))
        yield spans[first:stop]
        first = stop


def _sorted_partitions(chunks: Chunks, spans: Numbers) -> Iterator[Numbers]:
    """Yield the spans of ranges of keys, in the order of keys."""
    count = -(-len(spans) // _PARTITION_ROWS)
    if count <= 1:
        yield _by_key(chunks, spans)
        return
    sampled = spans[:: max(1, len(spans) // (count * _SAMPLES_PER_PARTITION))]
    samples = chunks.keys(sampled).sort()
    borders = [samples[len(samples) * number // count] for number in range(1, count)]
    numbers = np.zeros(len(spans), np.uint16)
    for first in range(0, len(spans), _PARTITION_ROWS):
        rows = slice(first, first + _PARTITION_ROWS)
        keys = chunks.keys(spans[rows])
        for border in borders:
            numbers[rows] += pc.greater_equal(keys, border).to_numpy(zero_copy_only=False)
    for number in range(count):
        yield _by_key(chunks, spans[numbers == number])


def _by_key(chunks: Chunks, spans: Numbers) -> Numbers:
    keys = chunks.keys(spans)
    if is_ascending(keys):
        return spans
    order: NDArray[np.uint64] = pc.array_sort_indices(keys).to_numpy()
    return spans[order]
