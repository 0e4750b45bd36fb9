"""Reading: by offset, by range, and onwards for ever; batches come out as views over the bytes that were read.

Invariants: a reader never shows an offset beyond the limit it was asked for (durable by default); every batch it hands
out passed its checksum; an offset that retention removed, that is not there yet, or that damage took is a typed error
that names what can be read, never "file not found".
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from strandline.errors import Damaged, InvalidInput, OffsetBelowRetained, OffsetBeyondEnd, OffsetsLost
from strandline.files import Disk, File, read_file, storage_errors
from strandline.journal.batch import BadBatch, Batch, Record
from strandline.journal.config import SYNCED, Durability
from strandline.journal.index import INDEX_STRIDE_BYTES, Index, format_index_name, parse_index
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatchAt,
    format_segment_name,
    walk,
)
from strandline.journal.state import Segment, Source, View

OPEN_FILES_MAX = 8
SCAN_READ_BYTES = 2 * 1024 * 1024
READ_AHEAD_BYTES_MIN = 4 * SCAN_READ_BYTES
_SEEK_READ_BYTES = 2 * INDEX_STRIDE_BYTES


class Reader:
    """Reads a journal's segments through a source of views. Safe to use from several threads."""

    def __init__(self, disk: Disk, folder: Path, source: Source) -> None:
        self._disk = disk
        self._folder = folder
        self._source = source
        self._files: OrderedDict[int, File] = OrderedDict()
        self._lock = threading.Lock()

    def fetch(self, offset: int, visibility: Durability = SYNCED) -> Record:
        """Return one record."""
        view = self._source.view()
        limit = view.limit(visibility)
        if offset == limit:
            raise OffsetBeyondEnd(offset, view.first_offset, limit)
        self._check_start(offset, view, limit)
        segment = _segment_of(view, offset)
        start, position = self._index(segment).find(offset)
        file = self._file(segment, offset)
        with storage_errors(self._path(segment)):
            try:
                for _, batch in walk(file, position, start, stop=limit, check=False, read_bytes=_SEEK_READ_BYTES):
                    if batch.next_offset > offset:
                        batch.check()
                        self._refuse_lost(batch, offset, view, limit)
                        return next(batch.clip(offset, offset + 1).records())
            except (BadBatch, BadBatchAt) as bad:
                raise self._damaged(segment, bad) from bad
        raise self._damaged(segment, BadBatch("the segment ends too early"))

    def scan(
        self,
        start: int,
        *,
        stop: int | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        visibility: Durability = SYNCED,
    ) -> Iterator[Batch]:
        """Return an iterator of batches from `start` to `stop` (exclusive), or to what is readable now.

        At most `max_records` records, and at most `max_bytes` bytes of payload though at least one record.
        """
        for name, value in (("stop", stop), ("max_records", max_records), ("max_bytes", max_bytes)):
            if value is not None and value < 0:
                raise InvalidInput(f"{name} must not be negative, and is {value}")
        view = self._source.view()
        limit = view.limit(visibility)
        self._check_start(start, view, limit)
        stop = limit if stop is None else min(stop, limit)
        if max_records is not None:
            stop = min(stop, start + max_records)
        batches = self._batches(start, stop, view, limit)
        return batches if max_bytes is None else _take_bytes(batches, max_bytes)

    def follow(self, start: int, *, timeout_s: float | None = None, visibility: Durability = SYNCED) -> Iterator[Batch]:
        """Return an iterator of batches from `start` that waits for more.

        It ends when nothing came for `timeout_s` seconds, or when the journal is closed.
        """
        self._check_start(start, view := self._source.view(), view.limit(visibility))
        return self._follow(start, timeout_s, visibility)

    def close(self) -> None:
        """Let the file handles go."""
        with self._lock:
            self._files.clear()

    def _follow(self, offset: int, timeout_s: float | None, visibility: Durability) -> Iterator[Batch]:
        while self._source.wait(offset, visibility, timeout_s):
            for batch in self.scan(offset, visibility=visibility):
                yield batch
                offset = batch.next_offset

    def _batches(self, start: int, stop: int, view: View, limit: int) -> Iterator[Batch]:
        while start < stop:
            segment = _segment_of(view, start)
            base, position = self._index(segment).find(start)
            file = self._file(segment, start)
            with storage_errors(self._path(segment)), _reading_ahead(file, position) as ahead:
                try:
                    for _, batch in walk(file, position, base, stop=stop, read_bytes=SCAN_READ_BYTES, ahead=ahead):
                        if batch.next_offset <= start:
                            continue
                        self._refuse_lost(batch, start, view, limit)
                        if batch.base_offset < start or batch.next_offset > stop:
                            batch = batch.clip(start, stop)  # noqa: PLW2901
                        start = batch.next_offset
                        yield batch
                except BadBatchAt as bad:
                    raise self._damaged(segment, bad) from bad
            if start < stop and start < segment.end_offset:
                raise self._damaged(segment, BadBatch(f"the segment ends before offset {start}"))

    def _check_start(self, start: int, view: View, limit: int) -> None:
        if start < 0:
            raise InvalidInput(f"offsets begin at 0; {start} is not one")
        if start < view.first_offset:
            raise OffsetBelowRetained(start, view.first_offset, limit)
        if start > limit:
            raise OffsetBeyondEnd(start, view.first_offset, limit)

    def _refuse_lost(self, batch: Batch, start: int, view: View, limit: int) -> None:
        if batch.is_lost:
            first = max(start, batch.base_offset)
            raise OffsetsLost(first, batch.next_offset, view.first_offset, limit)

    def _path(self, segment: Segment) -> Path:
        return self._folder / format_segment_name(segment.base_offset)

    def _damaged(self, segment: Segment, bad: BadBatch | BadBatchAt) -> Damaged:
        where = f" at byte {bad.position:,}" if isinstance(bad, BadBatchAt) else ""
        safe = f"look at `strandline journal verify {self._folder}`; everything before and after can still be read"
        return Damaged(str(self._path(segment)), bad.problem + where, safe=safe)

    def _file(self, segment: Segment, offset: int) -> File:
        """Return an open handle; the one that was used longest ago goes when there are too many."""
        base = segment.base_offset
        with self._lock:
            file = self._files.get(base)
            if file is not None:
                self._files.move_to_end(base)
                return file
        try:
            with storage_errors(self._path(segment)):
                file = self._disk.open(self._path(segment), "read")
        except Exception as error:
            view = self._source.view()
            if offset < view.first_offset:  # retention was quicker
                raise OffsetBelowRetained(offset, view.first_offset, view.durable_offset) from error
            raise
        with self._lock:
            self._files[base] = file
            if len(self._files) > OPEN_FILES_MAX:
                self._files.popitem(last=False)
        return file

    def _index(self, segment: Segment) -> Index:
        if segment.index is None:
            segment.index = self._load_index(segment)
        return segment.index

    def _load_index(self, segment: Segment) -> Index:
        data = read_file(self._disk, self._folder / format_index_name(segment.base_offset))
        index = None if data is None else parse_index(data, segment.base_offset)
        if index is not None:
            return index
        return rebuild_index(self._file(segment, segment.base_offset), segment)


def rebuild_index(file: File, segment: Segment) -> Index:
    """Return an index made by hopping over the batches; it ends where the batches stop making sense."""
    index = Index(segment.base_offset)
    try:
        stop = max(segment.end_offset, segment.base_offset)
        for position, batch in walk(file, SEGMENT_HEADER_BYTES, segment.base_offset, stop=stop, check=False):
            index.note(batch.base_offset, position)
    except BadBatchAt:
        return index  # whoever reads up to there gets the error, with its place
    return index


@contextmanager
def _reading_ahead(file: File, position: int) -> Iterator[Executor | None]:
    """Lend a thread for reading ahead where there is enough to read that it pays."""
    if file.size() - position < READ_AHEAD_BYTES_MIN:
        yield None
        return
    with ThreadPoolExecutor(1, "strandline-read") as ahead:
        yield ahead


def _segment_of(view: View, offset: int) -> Segment:
    """Return the segment that holds `offset`; the caller has checked the range."""
    low, high = 0, len(view.segments) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if view.segments[middle].base_offset <= offset:
            low = middle
        else:
            high = middle - 1
    return view.segments[low]


def _take_bytes(batches: Iterator[Batch], bytes_max: int) -> Iterator[Batch]:
    taken = 0
    for batch in batches:
        size = batch.payload_bytes
        if taken + size <= bytes_max:
            yield batch
            taken += size
            continue
        part = batch.clip_bytes(bytes_max - taken)
        if not taken or part.payload_bytes <= bytes_max - taken:
            yield part
        return
