"""Reading: by offset, by range, and onwards for ever; batches come out as views over the bytes that were read.

Invariants: a reader never shows an offset beyond the limit it was asked for (durable by default); every batch it hands
out passed its checksum, and it and its segment carry this journal's identity; an offset that retention removed, that is
not there yet, or that damage took is a typed error that names what can be read, never "file not found".
"""

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from strandline.errors import (
    Damaged,
    FormatError,
    InvalidInput,
    OffsetBelowRetained,
    OffsetBeyondEnd,
    OffsetsLost,
    StorageRefused,
)
from strandline.files import Disk, File, read_file, storage_errors
from strandline.journal.async_iteration import follow_in_a_thread
from strandline.journal.batch import BadBatch, Batch, Record, journal_tag
from strandline.journal.config import SYNCED, Durability
from strandline.journal.fetch_cache import SHARED, STRETCH_BYTES_MAX, Stretch
from strandline.journal.index import INDEX_STRIDE_BYTES, Index, format_index_name, parse_index
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatchAt,
    format_segment_name,
    read_segment_header,
    refuse_stranger,
    walk,
)
from strandline.journal.view import Segment, View, ViewSource

OPEN_FILES_MAX = 8
SCAN_READ_BYTES = 2 * 1024 * 1024
READ_AHEAD_BYTES_MIN = 4 * SCAN_READ_BYTES
_SEEK_READ_BYTES = 2 * INDEX_STRIDE_BYTES


class Reader:
    """Reads a journal's segments through a source of views. Safe to use from several threads."""

    def __init__(self, disk: Disk, folder: Path, source: ViewSource, *, learns: bool = False) -> None:
        self._disk = disk
        self._folder = folder
        self._source = source
        self._learns = learns
        """Whether the source's segments have no index that grows with them."""
        self._files: OrderedDict[int, File] = OrderedDict()
        self._owner = SHARED.new_owner()
        self._lock = threading.Lock()

    def fetch(self, offset: int, visibility: Durability = SYNCED) -> Record:
        """Return one record."""
        view = self._source.view()
        limit = view.limit(visibility)
        if offset == limit:
            raise OffsetBeyondEnd(offset, view.first_offset, limit)
        self._check_start(offset, view, limit)
        segment = _segment_of(view, offset)
        kept = None if self._learns else self._kept(segment, offset, view)
        for batch in self._walk(segment, offset, limit, view, seek=True) if kept is None else (kept,):
            self._refuse_lost(batch, offset, view, limit)
            return batch.record(offset)
        raise self._ends_early(segment, offset, view)

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

    def follow_async(
        self, start: int, *, timeout_s: float | None, visibility: Durability, has_ended: Callable[[], bool]
    ) -> AsyncIterator[Batch]:
        """Return an asynchronous iterator that does as `follow` does, until `has_ended`."""
        self._check_start(start, view := self._source.view(), view.limit(visibility))
        return follow_in_a_thread(
            start,
            lambda offset, wait_s: self._source.wait(offset, visibility, wait_s),
            lambda offset: self.scan(offset, visibility=visibility),
            timeout_s,
            has_ended,
        )

    def lost_in(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the batches of [start, stop) that stand for offsets that damage took."""
        view = self._source.view()
        start, stop = max(start, view.first_offset), min(stop, view.written_offset)
        while start < stop:
            segment = _segment_of(view, start)
            for batch in self._walk(segment, start, stop, view, seek=True):
                if batch.is_lost:
                    yield batch
                start = batch.next_offset
            if start < stop and _segment_of(view, start) is segment:
                raise self._ends_early(segment, start, view)

    def close(self) -> None:
        """Let the file handles go."""
        with self._lock:
            self._files.clear()
        SHARED.forget(self._owner)

    def forget_removed(self) -> None:
        """Let the handles of segments go that are no longer there, and with them their space on the disk."""
        first = self._source.view().segments[0].base_offset
        with self._lock:
            for base in [base for base in self._files if base < first]:
                del self._files[base]
        SHARED.forget(self._owner, first)

    def _kept(self, segment: Segment, offset: int, view: View) -> Batch | None:
        """Return the checked batch of a durable offset, from the stretch that holds it; None where a walk is needed.

        Whatever is wrong with the stretch, the walk meets it too, and tells.
        """
        if segment.index is None or offset >= view.durable_offset:
            return None
        base, position, end_offset, end = segment.index.stretch(offset)
        key = (self._owner, segment.base_offset, base)
        stretch = SHARED.get(key)
        try:
            if stretch is None or offset >= stretch.end_offset:
                size = (segment.bytes if end is None else end) - position
                if not 0 < size <= STRETCH_BYTES_MAX:
                    return None
                data = self._file(segment).pread(size, position)
                covers = min(view.durable_offset, segment.end_offset if end_offset is None else end_offset)
                stretch = Stretch(data, base, covers, journal_tag(self._source.identity))
                SHARED.put(key, stretch)
            return stretch.batch(offset)
        except (OSError, BadBatch, FormatError):
            SHARED.drop(key)
            return None

    def _follow(self, offset: int, timeout_s: float | None, visibility: Durability) -> Iterator[Batch]:
        while self._source.wait(offset, visibility, timeout_s):
            for batch in self.scan(offset, visibility=visibility):
                yield batch
                offset = batch.next_offset

    def _batches(self, start: int, stop: int, view: View, limit: int) -> Iterator[Batch]:
        while start < stop:
            segment = _segment_of(view, start)
            for batch in self._walk(segment, start, stop, view):
                self._refuse_lost(batch, start, view, limit)
                if batch.base_offset < start or batch.next_offset > stop:
                    batch = batch.clip(start, stop)  # noqa: PLW2901
                start = batch.next_offset
                yield batch
            if start < stop and _segment_of(view, start) is segment:
                raise self._ends_early(segment, start, view)

    def _walk(
        self,
        segment: Segment,
        start: int,
        stop: int,
        view: View,
        *,
        seek: bool = False,
    ) -> Iterator[Batch]:
        """Yield the checked batches of one segment that hold offsets in [start, stop); every failure is typed."""
        if segment.base_offset > start:
            raise self._damaged(segment, BadBatch(f"the segment with offset {start} is missing"))
        offset = start
        try:
            with storage_errors(self._path(segment)):
                file = self._file(segment)
                for position, batch in self._walk_from_index(file, segment, start, stop, seek=seek):
                    if self._learns:
                        self._note(segment, batch.base_offset, position)
                    if batch.next_offset > start:
                        if seek:
                            batch.check()
                        yield batch
                        offset = batch.next_offset
        except StorageRefused as error:
            now = self._source.view()
            if offset < now.first_offset:  # retention was quicker
                raise OffsetBelowRetained(offset, now.first_offset, now.durable_offset) from error
            raise
        except (BadBatch, BadBatchAt) as bad:
            if offset >= view.durable_offset:  # a torn write that was never acknowledged
                raise OffsetBeyondEnd(offset, view.first_offset, offset) from bad
            raise self._damaged(segment, bad) from bad

    def _walk_from_index(
        self, file: File, segment: Segment, start: int, stop: int, *, seek: bool
    ) -> Iterator[tuple[int, Batch]]:
        index = self._index(file, segment)
        base, position = index.find(start)
        wanted = READ_AHEAD_BYTES_MIN
        if stop < segment.end_offset:
            # An index knows places a stride apart, so this is about how much lies before the end.
            wanted = max(0, index.find(stop)[1] - position) + _SEEK_READ_BYTES
        tag = journal_tag(self._source.identity)
        batches = _walk(file, position, base, stop, tag=tag, seek=seek, wanted=wanted)
        if position != SEGMENT_HEADER_BYTES or base != segment.base_offset:
            first = _first(batches)
            if first is None:  # an index is only a hint, and this one may be wrong
                segment.index = rebuild_index(file, segment)
                base, position = segment.index.find(start)
                batches = _walk(file, position, base, stop, tag=tag, seek=seek, wanted=wanted)
            else:
                yield first
        yield from batches

    def _ends_early(self, segment: Segment, offset: int, view: View) -> Damaged | OffsetBeyondEnd:
        if offset >= view.durable_offset:  # written once, and never promised to survive the machine
            return OffsetBeyondEnd(offset, view.first_offset, offset)
        return self._damaged(segment, BadBatch(f"the segment ends before offset {offset}"))

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

    def _file(self, segment: Segment) -> File:
        """Return an open handle; the one that was used longest ago goes when there are too many."""
        base = segment.base_offset
        with self._lock:
            file = self._files.get(base)
            if file is not None:
                self._files.move_to_end(base)
                return file
        path = self._path(segment)
        file = self._disk.open(path, "read")
        refuse_stranger(read_segment_header(file, str(path)), self._source.identity, base, str(path))
        with self._lock:
            self._files[base] = file
            if len(self._files) > OPEN_FILES_MAX:
                self._files.popitem(last=False)
        return file

    def _index(self, file: File, segment: Segment) -> Index:
        if segment.index is None:
            data = read_file(self._disk, self._folder / format_index_name(segment.base_offset))
            index = None if data is None else parse_index(data, segment.base_offset)
            segment.index = rebuild_index(file, segment) if index is None else index
        return segment.index

    def _note(self, segment: Segment, offset: int, position: int) -> None:
        """Learn where a segment's batches are that another process is still writing."""
        with self._lock:
            if segment.index is not None:
                segment.index.note(offset, position)


def rebuild_index(file: File, segment: Segment) -> Index:
    """Return an index made by hopping over the batches; it ends where the batches stop making sense."""
    index = Index(segment.base_offset)
    try:
        stop = max(segment.end_offset, segment.base_offset)
        for position, batch in walk(file, SEGMENT_HEADER_BYTES, segment.base_offset, stop=stop, check=False):
            index.note(batch.base_offset, position)
    except BadBatchAt:
        return index  # a read up to there gets the error, with its place
    return index


def _walk(
    file: File, position: int, base: int, stop: int, *, tag: int, seek: bool, wanted: int
) -> Iterator[tuple[int, Batch]]:
    """Yield the batches from one on: unchecked and in small bites to find one of them, or ahead of the caller.

    `wanted` is about how many bytes there are to read; it makes no difference but for how they are read.
    """
    if seek:
        yield from walk(file, position, base, stop=stop, check=False, tag=tag, read_bytes=_SEEK_READ_BYTES)
        return
    read_bytes = min(SCAN_READ_BYTES, wanted)
    with _reading_ahead(file, position, wanted) as ahead:
        yield from walk(file, position, base, stop=stop, tag=tag, read_bytes=read_bytes, ahead=ahead)


def _first(batches: Iterator[tuple[int, Batch]]) -> tuple[int, Batch] | None:
    try:
        return next(batches, None)
    except BadBatchAt:
        return None


@contextmanager
def _reading_ahead(file: File, position: int, wanted: int) -> Iterator[Executor | None]:
    """Lend a thread for reading ahead where there is enough to read that it pays."""
    if min(wanted, file.size() - position) < READ_AHEAD_BYTES_MIN:
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
    left = bytes_max
    is_first = True
    for batch in batches:
        part = batch if batch.payload_bytes <= left else batch.clip_bytes(left)
        if is_first or part.payload_bytes <= left:
            yield part
        if part is not batch:
            return
        left -= batch.payload_bytes
        is_first = False
