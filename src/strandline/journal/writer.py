"""Writing: one commit at a time, made of everything that gathered while the last one ran.

A commit is one write of one or more batches and, where a caller asked for it, one fsync. A segment that is full is left
behind unsynced; a checkpoint in the background syncs it, stores its index, and records it in the manifest.

Invariants: offsets are given out in the order of the bytes; `durable_offset` moves only after every file and folder
entry below it was synced; callers are told only after that; after any failure nothing is acknowledged ever again
(`Poisoned`), because what the file then holds is unknown until it is read anew.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path

from strandline.clock import Clock
from strandline.errors import Closed, CommitFailed, Poisoned
from strandline.events import Events
from strandline.files import Buffer, Disk, File, remove_if_there, storage_hint
from strandline.journal.appends import Append, Appended, alike, settle
from strandline.journal.batch import HEADER_BYTES, format_batch, format_record, journal_tag, record_bytes
from strandline.journal.columns import Columns, merge
from strandline.journal.config import SYNCED, WRITTEN, Durability, JournalConfig
from strandline.journal.events import JournalPoisoned, SegmentRolled, SegmentsRemoved
from strandline.journal.frontier import Frontier
from strandline.journal.frontier_file import FrontierFile
from strandline.journal.index import Index, format_index, format_index_name
from strandline.journal.limits import is_full, kept_from, reserve
from strandline.journal.manifest import store_manifest
from strandline.journal.segment import SegmentHeader, format_segment_header, format_segment_name
from strandline.journal.view import Segment, View, manifest_of

SEALING_MAX = 2


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
        self._segments = segments
        self._written = self._durable = next_offset
        self._view = View((), 0, 0, 0)
        self._checkpointed = 0
        """Segments that begin below this offset are sealed in the manifest."""
        self._sealing: list[tuple[Segment, File]] = []
        self._reserved = 0
        self._poison: str | None = None
        self._poison_told = False
        self._closed = False
        self._frontier_file = FrontierFile(disk, folder)
        self._folder_dirty = self._frontier_file.is_new
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
            segments, view = self._segments, self._view
            is_new = view.written_offset != self._written or view.durable_offset != self._durable
            if is_new or view.segments is not segments:
                view = self._view = View(segments, segments[0].base_offset, self._written, self._durable)
            return view

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
                settle(appends, receipts, WRITTEN)
            if synced:
                self._sync()
                settle(appends, receipts, SYNCED)
            self._publish_if_stale()
        except BaseException as error:
            self.fail(error)
            for append in appends:
                if not append.settled:
                    append.fail(CommitFailed(str(self._folder), str(error), hint=storage_hint(error)))
            if not isinstance(error, Exception):
                raise

    def commit_value(self, value: bytes, durability: Durability) -> Appended:
        """Commit one record that is only a value, as `commit` would; return its receipt, or raise."""

        def batch(offset: int, now_ns: int) -> tuple[list[Buffer], int]:
            data = format_record(offset, self._durable, now_ns, value, self._tag)
            return [data], len(data)

        return self._commit_alone(1, record_bytes(value), batch, durability)

    def commit_columns(self, columns: Columns, durability: Durability) -> Appended:
        """Commit one append, as `commit` would; return its receipt, or raise."""

        def batch(offset: int, now_ns: int) -> tuple[list[Buffer], int]:
            return format_batch(offset, self._durable, now_ns, columns, self._tag)

        return self._commit_alone(columns.count, HEADER_BYTES + columns.size, batch, durability)

    def _commit_alone(
        self, count: int, size: int, batch: Callable[[int, int], tuple[list[Buffer], int]], durability: Durability
    ) -> Appended:
        with self._commit_lock:
            self._refuse_if_unusable()
            try:
                now_ns = self._clock.now_ns()
                if is_full(self._active, size, self._config, now_ns):
                    self._roll()
                offset = self._written
                buffers, batch_bytes = batch(offset, now_ns)
                places = [(offset, self._active.bytes)]
                self._write_batches(buffers, places, batch_bytes, offset + count, now_ns, durability)
                if durability is SYNCED:
                    self._sync()
                self._publish_if_stale()
            except BaseException as error:
                self.fail(error)
                if not isinstance(error, Exception):
                    raise
                raise CommitFailed(str(self._folder), str(error), hint=storage_hint(error)) from error
            return Appended(offset, count)

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
        if is_full(self._active, sum([append.size for append in appends]), self._config, now_ns):
            self._roll()
        offset = self._written
        position = self._active.bytes
        buffers: list[Buffer] = []
        receipts: list[Appended] = []
        batches: list[tuple[int, int]] = []
        for columns in alike(appends):
            batch, batch_bytes = format_batch(offset, self._durable, now_ns, merge(columns), self._tag)
            buffers += batch
            batches.append((offset, position))
            position += batch_bytes
            for part in columns:
                receipts.append(Appended(offset, part.count))
                offset += part.count
        durability = SYNCED if sync else WRITTEN
        self._write_batches(buffers, batches, position - self._active.bytes, offset, now_ns, durability)
        return receipts

    def _write_batches(
        self,
        buffers: Sequence[Buffer],
        batches: Sequence[tuple[int, int]],
        size: int,
        end_offset: int,
        now_ns: int,
        durability: Durability,
    ) -> None:
        """Write batches, each with its offset and position, at the end; synced, if that makes everything durable."""
        active = self._active
        position = active.bytes
        end = position + size
        if end > self._reserved:
            self._reserve(position, end, synced=durability is SYNCED)
        sync = durability is SYNCED and self._durable == self._written and not self._sealing and not self._folder_dirty
        self._file.pwritev(buffers, position, sync=sync)
        index = _index_of(active)
        with self._state:
            if self._poison is not None or self._closed:
                self._refuse_if_unusable()  # a checkpoint may have failed meanwhile
            for batch_offset, batch_position in batches:
                index.note(batch_offset, batch_position)
            active.bytes = end
            active.end_offset = self._written = end_offset
            active.last_append_ns = now_ns
            if sync:
                self._durable = end_offset
            if self._waiting:
                self._moved.notify_all()

    def _reserve(self, position: int, end: int, *, synced: bool) -> None:
        if not synced:
            self._reserved = reserve(self._file, position, self._reserved, end, self._config, synced=False)
            return
        with self._sync_lock:  # of two fsyncs beside each other only one is told of an error
            try:
                self._reserved = reserve(self._file, position, self._reserved, end, self._config, synced=True)
            except BaseException as error:
                self._stop(error)
                raise

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
            with self._sync_lock:  # no thread may sync a file that is closed here
                with self._state:
                    done = [pair for pair in self._sealing if pair[0].end_offset <= self._durable]
                    self._sealing = self._sealing[len(done) :]
                for segment, file in done:
                    self._store_index(segment)
                    file.close()
            self._store_manifest(at_end=at_end)

    def _store_manifest(self, *, at_end: bool = False) -> None:
        """Name what is sealed and durable."""
        with self._state:
            manifest = manifest_of(self.identity, self._segments, self._durable, at_end=at_end)
        store_manifest(self._disk, self._folder, manifest)
        self._checkpointed = manifest.active_base

    def _store_index(self, segment: Segment) -> None:
        path = self._folder / format_index_name(segment.base_offset)
        remove_if_there(self._disk, path)
        with closing(self._disk.open(path, "create")) as file:
            file.pwritev([format_index(_index_of(segment))], 0)  # not synced: it can be rebuilt

    # Retention.

    def remove_old(self) -> int:
        """Remove whole sealed segments that the configured retention by bytes and age no longer asks for."""
        return self.remove_below(kept_from(self.view(), self._config, self._clock.now_ns()))

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

    # The published frontier, and closing.

    def publish_when_idle(self) -> None:
        """Publish the frontier; called when no append is waiting, so that no append waits for it."""
        if not self._config.tells_readers:
            return
        if self.refusal() is not None or self._frontier_file.has_published(self._written, self._durable):
            return
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001 - no caller waits here; later callers get the error
            self.fail(error)

    def _publish_if_stale(self) -> None:
        """Publish the frontier now and then while appends keep coming."""
        if self._frontier_file.is_stale():
            self._publish()

    def _publish(self) -> None:
        self._frontier_file.publish(self._frontier)

    def _frontier(self) -> Frontier | None:
        with self._state:
            if self._closed:
                return None
            first, active = self._segments[0].base_offset, self._segments[-1]
            return Frontier(self.identity, first, self._written, self._durable, active.base_offset, active.bytes)

    def close(self) -> None:
        """Make everything durable, write a checkpoint and close the files; after a failure, only close the files."""
        with self._commit_lock, self._manifest_lock:  # no commit, checkpoint or removal is under way
            try:
                if self._poison is None:
                    self._release_reserve()
                    self.checkpoint()
            finally:
                with self._state:
                    self._closed = True
                    self._wake()
                with self._sync_lock:
                    for file in (*(file for _, file in self._sealing), self._file):
                        file.close()
                self._frontier_file.close()


def _index_of(segment: Segment) -> Index:
    """Return the index of a segment that this writer filled, which is always there."""
    if segment.index is None:
        raise AssertionError("the writer's segment has no index")
    return segment.index
