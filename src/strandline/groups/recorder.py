"""The files of a group whose owner keeps the state itself, in a form of its own.

The owner passes operations and, from time to time, its whole state, and never waits: frames are written in its thread,
or by a compaction that is replacing files; the executor syncs, compacts, and creates the files with their first
frame.

Invariants: frames have the operations in the order in which they came; a caller that waits for a sync is called after
everything that it recorded before is on stable storage; after a failed write or fsync nothing more is written and every
caller is told so. One thread uses a recorder.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path

from strandline.clock import Clock
from strandline.errors import Closed, CommitFailed, Poisoned
from strandline.files import Disk, storage_errors, storage_hint
from strandline.groups.config import GroupConfig
from strandline.groups.snapshot import Snapshot
from strandline.groups.state import Captured, GroupState
from strandline.groups.store import Cut, Store, open_store

SYNC_AFTER_NS = 1_000_000_000
"""The maximum delay of a frame's sync if no caller asks for one."""

Told = Callable[[BaseException | None], None]


class Recorder:
    """The open files of one group. Made by `open`."""

    def __init__(
        self, store: Store, state: GroupState, clock: Clock, executor: Executor, config: GroupConfig | None = None
    ) -> None:
        self._store = store
        self._found: GroupState | None = state
        self._clock = clock
        self._executor = executor
        self._config = config or GroupConfig()
        # Taken in this order: _files keeps syncs and compactions apart, _io guards the store, _queue what waits for it.
        self._files = threading.Lock()
        self._io = threading.Lock()
        self._queue = threading.Lock()
        self._waiting: list[bytes] = []
        self._told: list[Told] = []
        self._syncing = False
        self._compacting = False
        self._beginning = False
        self._replaced = 0
        """The number of replacements of the whole state: a compaction of an earlier state is dropped."""
        self._dirty_since_ns: int | None = None
        self._failure: str | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: Path,
        name: str,
        *,
        clock: Clock,
        executor: Executor,
        config: GroupConfig | None = None,
    ) -> "Recorder":
        """Open the files of a group; where there are none, they are created with the first frame."""
        with storage_errors(folder):
            store, state, _ = open_store(disk, folder, name, clock.now_ns(), lazily=True)
        return cls(store, state, clock, executor, config)

    def take_state(self) -> GroupState:
        """Return the recovered state; once."""
        found, self._found = self._found, None
        if found is None:
            raise Closed("the state of a recorder")
        return found

    # Frames.

    def record(self, operations: Iterable[bytes]) -> None:
        """Write operations as one frame, now, or as soon as the files can be written to again."""
        self._check()
        if self._dirty_since_ns is None:
            self._dirty_since_ns = self._clock.now_ns()
        with self._queue:
            self._waiting.extend(operations)
        self._flush_if_free()

    def _flush_if_free(self) -> None:
        """Write the queue, unless files are being created or replaced: that step writes the queue at its end."""
        if not self._store.is_begun:
            if not self._beginning:
                self._beginning = True
                self._executor.submit(self._begin)
            return
        while self._waiting and self._io.acquire(blocking=False):
            try:
                self._flush()
            finally:
                self._io.release()

    def _begin(self) -> None:
        try:
            with self._files, self._io:
                if self._failure is not None or self._closed:
                    return
                self._store.begin(self._clock.now_ns())
            self._flush_if_free()
        except OSError as error:
            self._poison(error)
        except CommitFailed:
            pass  # the next call of `record` raises it

    @property
    def is_written(self) -> bool:
        """Whether everything recorded is in the files, though perhaps not on stable storage."""
        return not self._waiting and not self._io.locked()

    def _flush(self) -> None:
        with self._queue:
            operations, self._waiting = self._waiting, []
        if not operations:
            return
        try:
            self._store.append(operations, self._clock.now_ns(), sync=False)
        except OSError as error:
            raise self._poison(error) from error

    # Syncing.

    @property
    def next_sync_ns(self) -> int | None:
        """The time at which `sync_if_due` has work or an error, None if everything is synced or will be."""
        if self._dirty_since_ns is None or self._syncing:
            return None
        return self._dirty_since_ns + SYNC_AFTER_NS

    def sync_if_due(self, now_ns: int) -> None:
        """Begin to sync what was recorded more than a second ago; `Poisoned` if it could not be written."""
        due_ns = self.next_sync_ns
        if due_ns is not None and due_ns <= now_ns:
            self.sync_soon(_ignore)

    def sync_soon(self, told: Told) -> None:
        """Call `done`, from another thread, when everything recorded is on stable storage, or the sync failed."""
        self._check()
        with self._queue:
            self._told.append(told)
            self._dirty_since_ns = None
            if self._syncing:
                return
            self._syncing = True
        self._executor.submit(self._sync)

    def _sync(self) -> None:
        while True:
            with self._queue:
                told, self._told = self._told, []
                if not told:
                    self._syncing = False
                    return
            failure = self._sync_once()
            for tell in told:
                tell(failure)

    def _sync_once(self) -> BaseException | None:
        with self._files:
            try:
                with self._io:
                    if self._failure is not None:
                        return Poisoned(self._store.path, self._failure)
                    self._flush()
                    sequence = self._store.next_sequence
                self._store.sync_until(sequence)
            except OSError as error:
                return self._poison(error)
            except CommitFailed as error:
                return error
        return None

    def sync(self) -> None:
        """Return when everything recorded is on stable storage."""
        self._check()
        failure = self._sync_once()
        if failure is not None:
            raise failure

    # Compacting.

    @property
    def is_large(self) -> bool:
        """Whether a compaction is due, for which the owner passes its whole state."""
        store = self._store
        large = max(self._config.compact_bytes_min, 2 * store.snapshot_bytes)
        return store.delta_bytes >= large and not self._compacting and self._failure is None

    def compact_soon(self, captured: Captured) -> None:
        """Replace snapshot and delta with the given state; recording continues meanwhile."""
        self._check()
        with self._io:
            self._flush()
            self._compacting = True
            cut = self._store.cut()
        self._executor.submit(self._compact, cut, captured, self._replaced)

    def _compact(self, cut: Cut, captured: Captured, replaced: int) -> None:
        store = self._store
        try:
            with self._files:
                if self._failure is not None or self._closed or replaced != self._replaced:
                    return
                now_ns = self._clock.now_ns()
                store.write_snapshot(Snapshot(store.name, store.identity, cut.sequence, now_ns, captured))
                copy = store.copy_delta(cut, now_ns)
                with self._io:
                    store.switch_delta(copy)
            self._flush_if_free()
        except OSError as error:
            self._poison(error)
        except CommitFailed:
            pass  # the next call of `record` raises it
        finally:
            self._compacting = False

    def replace(self, captured: Captured) -> None:
        """Replace the whole state with the given one, durably, in this thread."""
        self._check()
        store = self._store
        with self._files, self._io:
            self._waiting.clear()
            self._replaced += 1
            try:
                now_ns = self._clock.now_ns()
                store.begin(now_ns)
                sequence = store.next_sequence
                store.write_snapshot(Snapshot(store.name, store.identity, sequence, now_ns, captured))
                store.abandon()
                store.start_delta(sequence, now_ns)
            except OSError as error:
                raise self._poison(error) from error
            self._dirty_since_ns = None

    # Life.

    def _check(self) -> None:
        if self._failure is not None:
            raise Poisoned(self._store.path, self._failure)
        if self._closed:
            raise Closed(f"group {self._store.name!r}")

    def _poison(self, error: OSError) -> CommitFailed:
        if self._failure is None:
            self._failure = f"{type(error).__name__}: {error}"
        return CommitFailed(self._store.path, error.strerror or str(error), hint=storage_hint(error))

    def close(self) -> None:
        """Sync everything, and close the files; closing twice is harmless."""
        if self._closed:
            return
        with self._files, self._io:
            self._closed = True
            if self._failure is not None:
                self._store.abandon()
                return
            try:
                self._flush()
                self._store.close(self._clock.now_ns())
            except CommitFailed:
                self._store.abandon()
                raise
            except OSError as error:
                raise self._poison(error) from error


def _ignore(_failure: BaseException | None) -> None:
    """Ignore the end of a sync that no caller asked for."""
