"""A fold in memory: the records of a log as they were written, and which of them is the last of each key.

Invariants: what is asked is answered as of one moment between two batches. Positions are those of the log, whose bytes
the memory holds; records that no longer count stay until the log is replaced by a compacted one. A fold keeps
only columns until the first question, which builds the index of its keys.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from strandline.files import Buffer
from strandline.fold.batches import FoldBatch, Pages, PutColumns, VersionPages, cursor_or
from strandline.fold.chunks import Chunks
from strandline.fold.digests import digest_columns
from strandline.fold.key_index import KeyIndex
from strandline.fold.log_format import HEADER, LogBatch, format_batch
from strandline.fold.log_rows import LENGTH_MASK, START_SHIFT, LogRows, spans_of
from strandline.fold.log_scan import LogScan
from strandline.fold.log_snapshot import LogSnapshot, paged_spans
from strandline.fold.records import FoldEntry
from strandline.fold.store import PAGE_ROWS, Held, Verified
from strandline.kv import NO_CURSOR, WatchCursor

_RECORDS_PER_PART = 10_000


class Moment(NamedTuple):
    """A range of a fold as it is at a cursor: its keys in order, and their spans."""

    cursor: WatchCursor
    chunks: Chunks
    keys: list[bytes]
    spans: list[int]

    def pages(self, rows_max: int = PAGE_ROWS) -> Generator[PutColumns]:
        """Yield the rows in columns of at most so many."""
        for spans in paged_spans(np.array(self.spans, np.uint64).view(np.int64), rows_max):
            yield self.chunks.rows(spans)


class Compacted(NamedTuple):
    """A log that has each key once, in their order, and the cursor last."""

    parts: list[Buffer]
    keys: list[bytes]
    spans: list[int]


class ResidentFold:
    """Keys and records in memory; one thread changes it, any may ask."""

    def __init__(self) -> None:
        self.cursor: WatchCursor = NO_CURSOR
        self._chunks = Chunks([HEADER])
        self.index = KeyIndex()
        self._lock = threading.Lock()
        self._look_at = 0

    @staticmethod
    def of(data: bytes, found: LogScan) -> "ResidentFold":
        """Return the fold that a log holds, which is kept as it is."""
        fold = ResidentFold()
        fold.cursor = found.cursor
        fold._chunks = Chunks([memoryview(data)[: found.end]])
        fold.index = KeyIndex(found.rows.keys(data))
        return fold

    @property
    def size(self) -> int:
        """Return how many bytes its log has."""
        return self._chunks.end

    def held(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        with self._lock:
            held = Held(self.cursor, has_data=bool(self.index))
        return held if held.has_data or held.cursor else None

    def apply(self, batch: FoldBatch, cursor: WatchCursor, written: LogBatch) -> None:
        """Take a batch in, and the cursor after it, as they were written behind the log."""
        starts = np.cumsum(written.lengths) - written.lengths + self._chunks.end
        spans = spans_of(starts, written.lengths, len(written.lengths) - len(batch.deletes.keys))
        with self._lock:
            for part in written.parts:
                self._chunks.append(part)
            self.index.apply(batch, spans)
            self.cursor = cursor_or(cursor, self.cursor)

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        with self._lock:
            span = self.index.spans.get(key)
            return None if span is None else self._chunks.entry(key, span)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        with self._lock:
            chunks, found = self._chunks, list(map(self.index.spans.get, keys))
        return [None if span is None else chunks.entry(key, span) for key, span in zip(keys, found, strict=True)]

    def moment(self, prefix: bytes = b"") -> Moment:
        """Return a range as it is now."""
        with self._lock:
            return Moment(self.cursor, self._chunks, *self.index.range(prefix))

    def entries(self, prefix: bytes = b"") -> Iterator[FoldEntry]:
        """Yield the entries of a range of this moment, by key."""
        moment = self.moment(prefix)
        return map(moment.chunks.entry, moment.keys, moment.spans)

    def visit(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        count = 0
        for entry in self.entries(prefix):
            visit(entry)
            count += 1
        return count

    def verified(self) -> Verified:
        """Return the digest of everything, and its cursor; no index is made for it."""
        snapshot = self.snapshot()
        return Verified(snapshot.cursor(), *digest_columns(snapshot.rows()))

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range of this moment as columns."""
        moment = self.moment(prefix)
        return Pages(moment.cursor, moment.pages(rows_max))

    def versions(self) -> VersionPages:
        """Return keys and versions of this moment; no index is made for it."""
        snapshot = self.snapshot()
        return VersionPages(snapshot.cursor(), snapshot.versions())

    def snapshot(self) -> LogSnapshot:
        """Return this moment, to be sorted and written beside later batches."""
        with self._lock:
            return LogSnapshot(self.cursor, self._chunks.frozen(), self.index.counted())

    def is_same(self, data: bytes) -> bool:
        """Tell whether these are the bytes of its log."""
        if len(data) != self.size:
            return False
        octets, at = np.frombuffer(data, np.uint8), 0  # much faster than comparing views
        for part in self._chunks.parts():
            if not np.array_equal(octets[at : at + len(part)], np.frombuffer(part, np.uint8)):
                return False
            at += len(part)
        return True

    def parts(self) -> Iterator[memoryview]:
        """Yield the bytes of its log, piece by piece."""
        return self._chunks.parts()

    def rows(self) -> LogRows:
        """Return where in its log the records are."""
        with self._lock:
            return self.index.rows()

    def is_half_dead(self) -> bool:
        """Tell whether no more than half of the log counts.

        Before the first question it is looked at only when the log has grown by a quarter, because it costs more.
        """
        with self._lock:
            if not self.index.is_built:
                if self.size < self._look_at:
                    return False
                self._look_at = self.size * 5 // 4
                if self.size < 2 * self.index.bytes_sure() or self.size < 2 * self.index.bytes_least():
                    return False
            return self.size >= 2 * self.index.bytes_live()

    def compacted(self) -> Compacted:
        """Return the smallest log that says the same."""
        cursor, chunks, keys, spans = self.moment()
        parts: list[Buffer] = [HEADER]
        numbers = np.array(spans, np.uint64).view(np.int64)
        parts.extend(chunks.joined(rows) for rows in paged_spans(numbers, _RECORDS_PER_PART))
        parts.extend(format_batch(FoldBatch(), cursor).parts)
        lengths = numbers & LENGTH_MASK
        starts = np.cumsum(lengths) - lengths + len(HEADER)
        return Compacted(parts, keys, (starts << START_SHIFT | lengths).tolist())

    def adopt(self, compacted: Compacted) -> None:
        """Take the place that everything has in the compacted log; nothing was applied since."""
        index, chunks = KeyIndex.of(compacted.keys, compacted.spans), Chunks(compacted.parts)
        with self._lock:
            self._chunks, self.index = chunks, index


class ResidentReader(ABC):
    """A `FoldReader` that answers from memory."""

    @abstractmethod
    def _open(self) -> ResidentFold:
        """Return the fold; `Closed` if it is."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; twice is harmless."""

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        return self._open().held()

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        return self._open().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        return self._open().multi_get(keys)

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        return list(self._open().entries(prefix))

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        return self._open().visit(prefix, visit)

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range as columns, and the cursor of the same moment."""
        return self._open().pages(prefix, rows_max)

    def versions(self) -> VersionPages:
        """Return keys and versions of everything, in the order of the log."""
        return self._open().versions()

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        return self._open().cursor

    def verify(self) -> Verified:
        """Return the digest of everything."""
        return self._open().verified()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
