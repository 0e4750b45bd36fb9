"""A reader beside a writer, in any process: it takes no lock, changes nothing, and learns from the frontier file.

Invariants: `SYNCED` visibility shows only what the writer said was durable; where the writer's word is missing (a
copied folder, an old backup) or older than the files, what the manifest and the batches themselves prove. `WRITTEN`
shows whole batches only. Damage is met where it stands: reading raises there, and never ends before it without a word.
"""

import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from strandline.errors import Closed, FormatError
from strandline.files import Disk, File, OsDisk, read_file, storage_errors
from strandline.journal.async_iteration import in_a_thread
from strandline.journal.batch import BadBatch, Batch, Record, journal_tag
from strandline.journal.config import SYNCED, Durability, check_durability
from strandline.journal.frontier import FRONTIER_NAME, Frontier, parse_frontier
from strandline.journal.frontier_file import STALE_S
from strandline.journal.manifest import Manifest, load_manifest
from strandline.journal.reader import Reader
from strandline.journal.recovery import examine
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatchAt,
    format_segment_name,
    parse_segment_name,
    read_segment_header,
    walk,
)
from strandline.journal.view import Segment, View

POLL_MIN_S, POLL_MAX_S = 0.001, 0.05
_TRIES = 3
"""A torn frontier meets a write in progress, a missing segment a removal; the next look is at another moment."""


class SealedSegment(NamedTuple):
    """The file of durable records [base_offset, end_offset) that nothing is appended to; only a repair changes it."""

    path: Path
    base_offset: int
    end_offset: int


class JournalReader:
    """Reads a journal that another process writes, or no process."""

    def __init__(self, disk: Disk, folder: Path, visibility: Durability) -> None:
        """Use `JournalReader.open`."""
        self._folder = folder
        self._visibility = visibility
        self._source = _FilesSource(disk, folder)
        self._reader = Reader(disk, folder, self._source, learns=True)
        self._is_closed = False

    def __repr__(self) -> str:
        """Say where the journal is, and which offsets can be read."""
        if self._is_closed:
            return f"JournalReader({str(self._folder)!r}, closed)"
        view = self._source.view()
        shown = f"[{view.first_offset}, {view.limit(self._visibility)})"
        return f"JournalReader({str(self._folder)!r}, {shown}, {self._visibility.name})"

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, visibility: Durability = SYNCED, disk: Disk | None = None) -> Self:
        """Open a journal's folder for reading; `FormatError` where there is no journal."""
        check_durability("visibility", visibility)
        folder = Path(path)
        with storage_errors(folder):
            return cls(disk or OsDisk(), folder, visibility)

    def fetch(self, offset: int) -> Record:
        """Return one record; raises `OffsetBelowRetained`, `OffsetBeyondEnd` or `OffsetsLost` where there is none."""
        self._refuse_if_closed()
        return self._reader.fetch(offset, self._visibility)

    def scan(
        self, start: int, *, stop: int | None = None, max_records: int | None = None, max_bytes: int | None = None
    ) -> Iterator[Batch]:
        """Return an iterator of batches from `start` to `stop` (exclusive), or to what is readable now."""
        self._refuse_if_closed()
        return self._reader.scan(
            start, stop=stop, max_records=max_records, max_bytes=max_bytes, visibility=self._visibility
        )

    def follow(self, start: int, *, timeout_s: float | None = None) -> Iterator[Batch]:
        """Return an iterator of batches from `start` that waits for more; ends after `timeout_s` without any."""
        self._refuse_if_closed()
        return self._reader.follow(start, timeout_s=timeout_s, visibility=self._visibility)

    def scan_async(
        self, start: int, *, stop: int | None = None, max_records: int | None = None, max_bytes: int | None = None
    ) -> AsyncIterator[Batch]:
        """Return what `scan` returns, for `async for`: it reads in a thread of its own."""
        return in_a_thread(self.scan(start, stop=stop, max_records=max_records, max_bytes=max_bytes))

    def follow_async(self, start: int, *, timeout_s: float | None = None) -> AsyncIterator[Batch]:
        """Return what `follow` returns, for `async for`: it reads and waits in a thread of its own."""
        self._refuse_if_closed()
        return self._reader.follow_async(
            start, timeout_s=timeout_s, visibility=self._visibility, has_ended=lambda: self._is_closed
        )

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder

    @property
    def identity(self) -> bytes:
        """Sixteen bytes that no other journal has."""
        return self._source.identity

    @property
    def first_offset(self) -> int:
        """The lowest offset that can be read."""
        return self._source.view().first_offset

    @property
    def next_offset(self) -> int:
        """The offset after the last that this reader may see."""
        return self._source.view().limit(self._visibility)

    @property
    def durable_offset(self) -> int:
        """Everything below this is known to be on stable storage."""
        return self._source.view().durable_offset

    def sealed_segments(self) -> tuple[SealedSegment, ...]:
        """Return the segments before the active one, in the order of their offsets."""
        view = self._source.view()
        sealed = [segment for segment in view.segments[:-1] if segment.end_offset <= view.durable_offset]
        paths = [self._folder / format_segment_name(segment.base_offset) for segment in sealed]
        ends = [(segment.base_offset, segment.end_offset) for segment in sealed]
        return tuple(SealedSegment(path, *end) for path, end in zip(paths, ends, strict=True))

    def close(self) -> None:
        """Let the file handles go. Closing twice is harmless."""
        self._is_closed = True
        self._reader.close()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise Closed(str(self._folder))

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class _FilesSource:
    """Views made from the frontier file, or, where it is missing or too old, from an examination."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._segments: tuple[Segment, ...] = ()
        self._listed_for: tuple[bytes, int, int] | None = None
        self._manifest: Manifest | None = None
        """As it was when the segments were listed."""
        self._told: Frontier | None = None
        self._overtaken: tuple[Frontier, View] | None = None
        """A frontier that the files are ahead of, and what they hold; until it changes, no writer is at work."""
        self._lock = threading.Lock()
        self.identity = b""
        self.view()

    def view(self) -> View:
        """Return what can be read now."""
        with self._lock, storage_errors(self._folder):
            frontier = behind = None
            for _ in range(_TRIES):
                frontier = self._frontier()
                if behind is not None and frontier == behind:
                    break  # no writer is at work on it
                if frontier is not None and self._overtaken is not None and frontier == self._overtaken[0]:
                    return self._overtaken[1]
                if frontier is None or not self._matches(frontier):
                    continue
                # A frontier that moves forward is the word of a writer at work, which is always a little late.
                moves = behind is not None and frontier.written_offset >= behind.written_offset
                if not moves and self._is_behind(frontier):
                    behind = frontier
                    time.sleep(STALE_S)
                    continue
                self._told, self._overtaken = frontier, None
                first = self._segments[0].base_offset
                return View(self._segments, first, frontier.written_offset, frontier.durable_offset)
            examined = self._examined()
            self._overtaken = None if frontier is None else (frontier, examined)
            return examined

    def _matches(self, frontier: Frontier) -> bool:
        """Whether the files are those that the frontier speaks of; list them where that is not known yet."""
        if self._listed_for == (frontier.identity, frontier.first_offset, frontier.active_base):
            return True
        self._manifest = load_manifest(self._disk, self._folder)
        if not self._is_of(frontier) or not self._list(frontier):
            return False
        self._recognise(frontier.identity)
        return True

    def _is_of(self, frontier: Frontier) -> bool:
        """Whether the manifest and the active segment have the frontier's identity, as far as they have any."""
        if self._manifest is not None and self._manifest.identity != frontier.identity:
            return False
        name = format_segment_name(frontier.active_base)
        try:
            with closing(self._disk.open(self._folder / name, "read")) as file:
                return read_segment_header(file, name).identity == frontier.identity
        except (BadBatch, FormatError):
            return True  # reading the segment tells what is wrong with it
        except FileNotFoundError:
            return False

    def _recognise(self, identity: bytes) -> None:
        if self.identity not in (b"", identity):
            problem = "the journal was replaced by another while it was read"
            raise FormatError(str(self._folder), problem, hint="open it anew; its offsets mean something else now")
        self.identity = identity

    def _is_behind(self, frontier: Frontier) -> bool:
        """Whether the files hold more than a frontier tells that is the first one seen, or older than the last."""
        if self._told is not None and frontier.written_offset >= self._told.written_offset:
            return False
        if self._overtaken is not None and frontier.written_offset >= self._overtaken[1].written_offset:
            return False  # it moved since the files were examined
        manifest = self._manifest if self._told is None else load_manifest(self._disk, self._folder)
        later = [base for base in self._bases() if base > frontier.active_base]
        if later or (manifest is not None and manifest.durable_offset > frontier.durable_offset):
            return True
        path = self._folder / format_segment_name(frontier.active_base)
        with closing(self._disk.open(path, "read")) as file:
            return _goes_on(file, frontier)

    def wait(self, offset: int, visibility: Durability, timeout_s: float | None) -> bool:
        """Return True once `offset` is readable; False on time-out."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = POLL_MIN_S
        while self.view().limit(visibility) <= offset:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_MAX_S)
        return True

    def _frontier(self) -> Frontier | None:
        data = read_file(self._disk, self._folder / FRONTIER_NAME)
        return None if data is None else parse_frontier(data)

    def _bases(self) -> list[int]:
        names = self._disk.names(self._folder)
        return [base for name in names if (base := parse_segment_name(name)) is not None]

    def _list(self, frontier: Frontier) -> bool:
        """List the segments; False where retention was at work meanwhile, or the frontier is older than the files."""
        first, active = frontier.first_offset, frontier.active_base
        if self._manifest is not None:  # it knows first of what retention removed, and is sure to survive a crash
            first = max(first, self._manifest.first_offset)
        bases = [base for base in self._bases() if first <= base <= active]
        if not bases or (bases[0], bases[-1]) != (first, active) or first > frontier.durable_offset:
            return False
        known = {segment.base_offset: segment for segment in self._segments}
        ends = [*bases[1:], active]
        segments = [known.get(base) or Segment(base, end, 0, 0, 0, None) for base, end in zip(bases, ends, strict=True)]
        for segment, end in zip(segments, ends, strict=True):
            segment.end_offset = end
        self._segments = tuple(segments)
        self._listed_for = (frontier.identity, frontier.first_offset, active)
        return True

    def _examined(self) -> View:
        """Return what the files alone can tell."""
        found = examine(self._disk, self._folder)
        if not found.segments:
            found.refuse_damage(self._folder)
        if found.identity is None or not found.segments:
            raise FormatError(str(self._folder), "there is no journal here", hint="check the path")
        self._recognise(found.identity)
        self._segments = tuple(
            Segment(scan.base_offset, scan.end_offset, scan.end_position, 0, 0, scan.index) for scan in found.segments
        )
        self._listed_for = None
        durable = max(found.first_offset, found.proof)
        return View(self._segments, found.first_offset, max(found.next_offset, durable), durable)


def _goes_on(file: File, frontier: Frontier) -> bool:
    """Whether a whole batch of the journal follows the written offset in the active segment."""
    tag = journal_tag(frontier.identity)
    position = frontier.active_bytes or SEGMENT_HEADER_BYTES
    offset = frontier.written_offset if frontier.active_bytes else frontier.active_base
    try:
        for _, batch in walk(file, position, offset, tag=tag):
            if batch.base_offset >= frontier.written_offset:
                return True
    except BadBatchAt:
        return False
    return False
