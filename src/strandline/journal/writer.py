"""Writing: one commit at a time, made of everything that gathered while the last one ran.

A commit is one write of one or more batches and, where somebody asked for it, one fsync. A segment that is full is left
behind unsynced; a checkpoint in the background syncs it, stores its index, and records it in the manifest.

Invariants: offsets are given out in the order of the bytes; `durable_offset` moves only after every file and folder
entry below it was synced; whoever waits is told only after that; after any failure nothing is acknowledged ever again
(`Poisoned`), because what the file then holds is unknown until it is read anew.
"""

import errno
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from strandline.clock import Clock
from strandline.errors import Closed, CommitFailed, Poisoned
from strandline.events import Events
from strandline.files import Buffer, Disk, File, remove_if_there, storage_hint
from strandline.gather import Ticket
from strandline.journal.batch import HEADER_BYTES, format_batch, journal_tag
from strandline.journal.columns import Columns, merge
from strandline.journal.config import SYNCED, WRITTEN, Durability, JournalConfig, KiB
from strandline.journal.events import JournalPoisoned, SegmentRolled, SegmentsRemoved
from strandline.journal.frontier import FRONTIER_NAME, Frontier, format_frontier
from strandline.journal.index import Index, format_index, format_index_name
from strandline.journal.manifest import Manifest, store_manifest
from strandline.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader, format_segment_header, format_segment_name
from strandline.journal.state import Segment, View

SEALING_MAX = 2
RESERVE_BYTES_MIN = 64 * KiB
PUBLISH_LATE_S = 0.005
"""How old the word to readers in other processes may be while appends keep coming."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The receipt of an append: its records are [base_offset, base_offset + count)."""

    base_offset: int
    count: int

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.count


class Append(Ticket[Appended]):
    """An append on its way."""

    __slots__ = ("columns", "durability")

    def __init__(self, columns: Columns, durability: Durability) -> None:
        super().__init__(HEADER_BYTES + columns.size)
        self.columns = columns
        self.durability = durability


class Writer:
    """The one writer of a journal's files. One thread at a time calls `commit`; any thread may call the rest."""

    def __init__(  # noqa: PLR0913 - everything the edge passes in
        self,
        disk: Disk,
        folder: Path,
        config: JournalConfig,
        clock: Clock,
        executor: Executor,
        events: Events,
        *,
        identity: bytes,
        segments: tuple[Segment, ...],
        next_offset: int,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._config = config
        self._clock = clock
        self._executor = executor
        self._events = events
        self.identity = identity
        self._tag = journal_tag(identity)
        self._state = threading.Lock()
        self._moved = threading.Condition(self._state)
        self._waiting = 0
        # Taken in this order: a commit may wait for a checkpoint, a checkpoint for an fsync, all of them for the state.
        self._commit_lock = threading.Lock()
        self._manifest_lock = threading.RLock()
        self._sync_lock = threading.Lock()
        self._publish_lock = threading.Lock()
        self._segments = segments
        self._written = self._durable = next_offset
        self._checkpointed = 0
        """Segments that begin below this offset are sealed in the manifest."""
        self._sealing: list[tuple[Segment, File]] = []
        self._folder_dirty = False
        self._reserved = 0
        self._poison: str | None = None
        self._poison_told = False
        self._closed = False
        self._published = (-1, -1)
        self._published_s = 0.0
        self._frontier = self._open_frontier()
        self._active: Segment
        self._file: File
        if segments:
            self._go_on_with(segments[-1])
        else:
            self._begin_segment(next_offset)
        self.checkpoint()

    # What readers see.

    def view(self) -> View:
        """Return what can be read now."""
        with self._state:
            return View(self._segments, self._segments[0].base_offset, self._written, self._durable)

    def wait(self, offset: int, visibility: Durability, timeout_s: float | None) -> bool:
        """Return True once `offset` is readable; False on time-out, or when nothing more will come."""

        def ready() -> bool:
            limit = self._durable if visibility is SYNCED else self._written
            return offset < limit or self._closed or self._poison is not None

        with self._state:
            self._waiting += 1
            try:
                self._moved.wait_for(ready, timeout_s)
            finally:
                self._waiting -= 1
            readable = offset < (self._durable if visibility is SYNCED else self._written)
            if not readable and self._poison is not None:
                raise Poisoned(str(self._folder), self._poison)
            return readable

    def _wake(self) -> None:
        if self._waiting:
            self._moved.notify_all()

    def refusal(self) -> Poisoned | Closed | None:
        """Return why nothing more is accepted, or None."""
        if self._poison is not None:
            return Poisoned(str(self._folder), self._poison)
        return Closed(str(self._folder)) if self._closed else None

    # Committing.

    def commit(self, appends: Sequence[Append]) -> None:
        """Write every append, and sync if one of them asked for it; settle each as soon as its own wish is met."""
        with self._commit_lock:
            self._commit(appends)

    def _commit(self, appends: Sequence[Append]) -> None:
        refusal = self.refusal()
        if refusal is not None:
            for append in appends:
                append.fail(refusal)
            return
        try:
            synced = sum(append.durability is SYNCED for append in appends)
            receipts = self._write(appends, sync=synced == len(appends))
            if synced < len(appends):
                _settle(appends, receipts, WRITTEN)
            if synced:
                self._sync()
                _settle(appends, receipts, SYNCED)
            self._publish_if_late()
        except BaseException as error:
            self.fail(error)
            for append in appends:
                if not append.settled:
                    append.fail(CommitFailed(str(self._folder), str(error), hint=storage_hint(error)))
            if not isinstance(error, Exception):
                raise

    def sync(self) -> None:
        """Make everything written so far durable, and say so to readers. The caller turns a failure into poison."""
        self._sync()
        self._publish()

    def _sync(self) -> None:
        with self._sync_lock:
            with self._state:
                self._refuse_if_unusable()
                if self._durable == self._written and not self._folder_dirty:  # the write was a synced one
                    return
                target = self._written
                files = [*(file for _, file in self._sealing), self._file]
                folder_dirty, self._folder_dirty = self._folder_dirty, False
            try:
                for file in files:
                    file.sync()
                if folder_dirty:
                    self._disk.sync_folder(self._folder)
            except BaseException as error:
                self._stop(error)  # under the lock: the next fsync would succeed, and vouch for what this one lost
                raise
            with self._state:
                self._durable = max(self._durable, target)
                self._wake()

    def fail(self, error: BaseException) -> None:
        """Accept nothing more: what the files hold is not known any longer."""
        cause = self._stop(error)
        with self._state:
            told, self._poison_told = self._poison_told, True
        if not told:
            self._events.emit(JournalPoisoned(self._folder, cause))

    def _stop(self, error: BaseException) -> str:
        with self._state:
            if self._poison is None:
                self._poison = f"{type(error).__name__}: {error}"
                self._wake()
            return self._poison

    def _refuse_if_unusable(self) -> None:
        refusal = self.refusal()
        if refusal is not None:
            raise refusal

    def _write(self, appends: Sequence[Append], *, sync: bool) -> list[Appended]:
        """Write one commit; with `sync`, durably, if that makes everything durable."""
        now_ns = self._clock.now_ns()
        if self._is_full(sum([append.size for append in appends]), now_ns):
            self._roll()
        offset = self._written
        active = self._active
        position = active.bytes
        buffers: list[Buffer] = []
        receipts: list[Appended] = []
        batches: list[tuple[int, int]] = []
        for columns in _alike(appends):
            batch, batch_bytes = format_batch(offset, self._durable, now_ns, merge(columns), self._tag)
            buffers += batch
            batches.append((offset, position))
            position += batch_bytes
            for part in columns:
                receipts.append(Appended(offset, part.count))
                offset += part.count
        self._reserve(position)
        sync = sync and self._durable == self._written and not self._sealing and not self._folder_dirty
        self._file.pwritev(buffers, active.bytes, sync=sync)
        with self._state:
            self._refuse_if_unusable()  # a checkpoint may have failed meanwhile
            for batch_offset, batch_position in batches:
                _index_of(active).note(batch_offset, batch_position)
            active.bytes = position
            active.end_offset = self._written = offset
            active.last_append_ns = now_ns
            if sync:
                self._durable = offset
            self._wake()
        return receipts

    def _is_full(self, size: int, now_ns: int) -> bool:
        active = self._active
        if active.bytes <= SEGMENT_HEADER_BYTES:
            return False
        if active.bytes + size > self._config.segment_bytes_max:
            return True
        age_max_s = self._config.segment_age_max_s
        return age_max_s is not None and now_ns - active.created_ns > age_max_s * 1e9

    # Segments.

    def _roll(self) -> None:
        """Leave the active segment behind, to be synced, and begin the next."""
        if len(self._sealing) >= SEALING_MAX:
            self._checkpoint()  # the disk does not keep up: wait for it here
        self._release_reserve()
        with self._state:
            self._sealing.append((self._active, self._file))
        self._begin_segment(self._written)
        self._events.emit(SegmentRolled(self._folder, self._written))
        try:
            self._executor.submit(self._checkpoint_or_fail)
        except RuntimeError:  # it was shut down, or the interpreter is about to end
            self._checkpoint_or_fail()

    def _begin_segment(self, base_offset: int) -> None:
        now_ns = self._clock.now_ns()
        file = self._disk.open(self._folder / format_segment_name(base_offset), "create")
        header = format_segment_header(SegmentHeader(self.identity, base_offset, now_ns))
        file.pwritev([header], 0)
        segment = Segment(base_offset, base_offset, len(header), now_ns, now_ns, Index(base_offset))
        with self._state:  # at once: a sync beside this one takes the new file together with its name, or neither
            self._segments = (*self._segments, segment)
            self._active, self._file = segment, file
            self._reserved = segment.bytes
            self._folder_dirty = True

    def _go_on_with(self, active: Segment) -> None:
        file = self._disk.open(self._folder / format_segment_name(active.base_offset), "write")
        if file.size() > active.bytes:
            file.truncate(active.bytes)
        self._active, self._file = active, file
        self._reserved = active.bytes

    def _reserve(self, end: int) -> None:
        """See that the file reaches `end` and some way beyond, so that an fsync seldom has to record a new size."""
        step = min(max(self._reserved, RESERVE_BYTES_MIN), self._config.reserve_bytes_max)
        if end <= self._reserved or not step:
            return
        reserved = max(end, min(self._reserved + step, self._config.segment_bytes_max))
        try:
            self._file.allocate(reserved)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP):
                raise
            reserved = end  # there is no room to spare; the write itself will tell whether there is enough
        self._reserved = reserved

    def _release_reserve(self) -> None:
        """Cut the file to what was written."""
        if self._reserved > self._active.bytes:
            self._file.truncate(self._active.bytes)

    # Checkpoints.

    def checkpoint(self) -> None:
        """Sync and record everything up to the very end, so that opening reads nothing. No commit may run meanwhile."""
        try:
            self._store_index(self._active)
            self._checkpoint(at_end=True)
        except BaseException as error:
            self.fail(error)
            raise

    def _checkpoint_or_fail(self) -> None:
        with self._manifest_lock:
            if self.refusal() is not None:
                return
            try:
                self._checkpoint()
                self.remove_old()
            except Exception as error:  # noqa: BLE001 - a background failure reaches callers as poison
                self.fail(error)

    def _checkpoint(self, *, at_end: bool = False) -> None:
        with self._manifest_lock:
            self.sync()
            with self._sync_lock:  # nobody may be syncing a file that is closed here
                with self._state:
                    done = [pair for pair in self._sealing if pair[0].end_offset <= self._durable]
                    self._sealing = self._sealing[len(done) :]
                for segment, file in done:
                    self._store_index(segment)
                    file.close()
            self._store_manifest(at_end=at_end)

    def _store_manifest(self, *, at_end: bool = False) -> None:
        """Name what is sealed and durable. The checkpoint lies where the active segment begins, or at its end."""
        with self._state:
            sealed = tuple(s for s in self._segments[:-1] if s.end_offset <= self._durable)
            active = self._segments[len(sealed)]
            manifest = Manifest(
                self.identity,
                self._segments[0].base_offset,
                self._durable if at_end else active.base_offset,
                tuple(segment.sealed() for segment in sealed),
                active.base_offset,
                active.bytes if at_end else SEGMENT_HEADER_BYTES,
                active.last_append_ns if at_end else active.created_ns,
            )
        store_manifest(self._disk, self._folder, manifest)
        self._checkpointed = active.base_offset

    def _store_index(self, segment: Segment) -> None:
        path = self._folder / format_index_name(segment.base_offset)
        remove_if_there(self._disk, path)
        with closing(self._disk.open(path, "create")) as file:
            file.pwritev([format_index(_index_of(segment))], 0)  # not synced: it can be rebuilt

    # Retention.

    def remove_old(self) -> int:
        """Remove whole sealed segments that the configured retention by bytes and age no longer asks for."""
        view = self.view()
        config = self._config
        keep_from = view.first_offset
        kept_bytes = sum(segment.bytes for segment in view.segments)
        oldest_ns = None if config.retain_age_s is None else self._clock.now_ns() - config.retain_age_s * 1e9
        for segment in view.segments[:-1]:
            kept_bytes -= segment.bytes
            too_large = config.retain_bytes is not None and kept_bytes >= config.retain_bytes
            too_old = oldest_ns is not None and segment.last_append_ns < oldest_ns
            if not too_large and not too_old:
                break
            keep_from = segment.end_offset
        return self.remove_below(keep_from)

    def remove_below(self, keep_from: int) -> int:
        """Remove whole sealed segments whose offsets are all below `keep_from`; return how many went."""
        with self._manifest_lock:
            with self._state:
                self._refuse_if_unusable()
                gone = [s for s in self._segments[:-1] if s.end_offset <= min(keep_from, self._checkpointed)]
                self._segments = self._segments[len(gone) :]
                first = self._segments[0].base_offset
            if not gone:
                return 0
            try:
                self._store_manifest()
                self._publish()
                for segment in gone:
                    self._disk.remove(self._folder / format_segment_name(segment.base_offset))
                    remove_if_there(self._disk, self._folder / format_index_name(segment.base_offset))
                self._disk.sync_folder(self._folder)
            except BaseException as error:
                self.fail(error)
                raise
        self._events.emit(SegmentsRemoved(self._folder, len(gone), first))
        return len(gone)

    # The frontier, and the end.

    def _open_frontier(self) -> File:
        path = self._folder / FRONTIER_NAME
        try:
            return self._disk.open(path, "write")
        except FileNotFoundError:
            self._folder_dirty = True
            return self._disk.open(path, "create")

    def publish_when_idle(self) -> None:
        """Tell readers in other processes; called when no append is waiting, so that nobody waits for it."""
        if self.refusal() is not None or self._published == (self._written, self._durable):
            return
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001 - nobody is there to be told; later callers get it as poison
            self.fail(error)

    def _publish_if_late(self) -> None:
        """Tell readers in other processes now and then while appends keep coming."""
        if time.monotonic() - self._published_s > PUBLISH_LATE_S:
            self._publish()

    def _publish(self) -> None:
        with self._publish_lock:  # an older word must not be written over a newer one
            self._published_s = time.monotonic()
            with self._state:
                if self._closed:
                    return
                self._published = (self._written, self._durable)
                first = self._segments[0].base_offset
                active = self._segments[-1].base_offset
                frontier = Frontier(self.identity, first, self._written, self._durable, active)
            self._frontier.pwritev([format_frontier(frontier)], 0)

    def close(self) -> None:
        """Make everything durable, record it, and let the files go; after a failure, only let the files go."""
        with self._commit_lock, self._manifest_lock:  # no commit, checkpoint or removal is under way
            try:
                if self._poison is None:
                    self._release_reserve()
                    self.checkpoint()
            finally:
                with self._state:
                    self._closed = True
                    self._wake()
                with self._sync_lock, self._publish_lock:
                    for file in (*(file for _, file in self._sealing), self._file, self._frontier):
                        file.close()


def _alike(appends: Sequence[Append]) -> list[list[Columns]]:
    """Return the columns of neighbours that can share a batch, because they have the same ones."""
    if len(appends) == 1:
        return [[appends[0].columns]]
    return [
        [append.columns for append in group] for _, group in groupby(appends, key=lambda append: append.columns.present)
    ]


def _settle(appends: Sequence[Append], receipts: Sequence[Appended], durability: Durability) -> None:
    for append, receipt in zip(appends, receipts, strict=True):
        if append.durability is durability:
            append.settle(receipt)


def _index_of(segment: Segment) -> Index:
    """Return the index of a segment that this writer filled, which is always there."""
    if segment.index is None:
        raise AssertionError("the writer's segment has no index")
    return segment.index
