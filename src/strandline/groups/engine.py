"""The engine of a durable group: commits that keep the files ahead of the state, and compactions beside them.

Callers' changes gather into commits. A commit reserves under the state's lock, writes one frame and syncs it without
that lock, and confirms under it again; so reads do not wait for the disk, and concurrent callers share one fsync.

Invariants: commits do not overlap, and frames are written in the order in which changes were reserved; nothing is
acknowledged, in memory or to a caller, before its frame is as durable as the caller asked; after a failed write or
fsync, in a commit or a compaction, the engine is poisoned and changes nothing more.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from typing import TypeVar

from strandline.clock import Clock
from strandline.errors import Closed, CommitFailed, InvalidInput, Poisoned, StrandlineError
from strandline.events import Events
from strandline.files import storage_hint
from strandline.gather import CommitRequest, Gather
from strandline.groups.changes import Change, CommitPlan, Reserved, Result, operation_bytes
from strandline.groups.config import GroupConfig
from strandline.groups.delta import OPERATIONS_MAX
from strandline.groups.events import GroupCompacted, GroupPoisoned
from strandline.groups.operations import OPERATION_BYTES
from strandline.groups.snapshot import Snapshot
from strandline.groups.state import Captured, GroupState
from strandline.groups.store import Cut, Store
from strandline.journal.config import SYNCED, Durability

T = TypeVar("T")


class _Request(CommitRequest[list[Result]]):
    __slots__ = ("changes", "durability")

    def __init__(self, changes: Sequence[Change], durability: Durability) -> None:
        super().__init__(sum(map(operation_bytes, changes)))
        self.changes = changes
        self.durability = durability


class Engine:
    """The state and the store of one group, and the order in which they change."""

    def __init__(
        self,
        store: Store,
        state: GroupState,
        config: GroupConfig,
        clock: Clock,
        executor: Executor,
        compactor: Executor,
        events: Events,
    ) -> None:
        self._store = store
        self._state = state
        self._config = config
        self._clock = clock
        self._compactor = compactor
        self._events = events
        # Taken in this order: _one_compaction at a time; _io keeps commits and the ends of a compaction apart; _lock
        # guards the state.
        self._one_compaction = threading.Lock()
        self._io = threading.Lock()
        self._lock = threading.Lock()
        self._gather: Gather[_Request] = Gather(
            self._commit,
            executor,
            queue_bytes_max=config.queue_bytes_max,
            batch_bytes_max=config.frame_bytes_max,
        )
        self._failure: str | None = None
        self._closing = False
        self._closed = False
        self._compacting = False
        self._compaction: Future[None] | None = None
        self.durable_until = state.acked_until

    def commit(self, changes: Sequence[Change], durability: Durability) -> list[Result]:
        """Make changes, all or none, and return their results once they are as durable as requested."""
        request = self._request(changes, durability)
        self._gather.run(request)
        return request.wait()

    def commit_soon(self, changes: Sequence[Change], durability: Durability) -> "Future[list[Result]]":
        """Make changes as `commit` does, without waiting for them."""
        request = self._request(changes, durability)
        future = request.future()
        self._gather.soon(request)
        return future

    def ask(self, question: Callable[[GroupState], T]) -> T:
        """Return the result of a read of the state."""
        with self._lock:
            return question(self._state)

    def close(self) -> None:
        """Commit what is queued, let a compaction end, and close the files; closing twice is harmless."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._gather.drain()
        if self._compaction is not None and not self._compaction.cancel():
            wait_for([self._compaction])
        with self._one_compaction, self._io:
            self._closed = True
            if self._failure is not None:
                self._store.abandon()
                return
            try:
                self._store.close(self._clock.now_ns())
            except OSError as error:
                self._poison(error)
                raise self._failed(error) from error

    # Commits

    def _request(self, changes: Sequence[Change], durability: Durability) -> _Request:
        if self._closing:
            raise Closed(f"group {self._store.name!r}")
        request = _Request(changes, durability)
        if request.size > OPERATIONS_MAX * OPERATION_BYTES:
            raise InvalidInput(f"one commit has at most {OPERATIONS_MAX:,} operations", hint="split it")
        return request

    def _commit(self, requests: Sequence[_Request]) -> None:
        with self._io:
            self._check_usable()
            try:
                results = self._carry_out(requests)
            except OSError as error:
                self._poison(error)
                raise self._failed(error) from error
            except BaseException as error:
                self._poison(error)
                raise
        for request, result in results:
            request.settle(result)
        self.compact_if_due()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise Poisoned(self._store.path, self._failure)
        if self._closed:
            raise Closed(f"group {self._store.name!r}")

    def _carry_out(self, requests: Sequence[_Request]) -> list[tuple[_Request, list[Result]]]:
        plan, accepted = self._reserve(requests)
        sync = any(_wants_sync(request, reserved) for request, reserved in accepted)
        if plan.operations:
            self._store.append(plan.operations, self._clock.now_ns(), sync=sync)
        elif sync:
            self._store.sync()
        with self._lock:
            results = [(request, plan.confirm(reserved)) for request, reserved in accepted]
            self._note_durable()
        return results

    def _reserve(self, requests: Sequence[_Request]) -> tuple[CommitPlan, list[tuple[_Request, Reserved]]]:
        plan = CommitPlan(self._state)
        accepted = []
        with self._lock:
            for request in requests:
                try:
                    accepted.append((request, plan.reserve(request.changes)))
                except StrandlineError as error:
                    request.fail(error)
        return plan, accepted

    def _note_durable(self) -> None:
        if self._store.synced_sequence == self._store.next_sequence:
            self.durable_until = self._state.acked_until

    def _poison(self, error: BaseException) -> None:
        """Refuse further changes; the first failure is the one that is reported."""
        if self._failure is None:
            self._failure = f"{type(error).__name__}: {error}"
            self._events.emit(GroupPoisoned(self._store.name, self._failure))

    def _failed(self, error: OSError) -> CommitFailed:
        return CommitFailed(self._store.path, error.strerror or str(error), hint=storage_hint(error))

    # Compactions

    def compact_if_due(self) -> None:
        """Begin a compaction in the background if the delta is large or old enough and none is under way."""
        with self._lock:
            if self._compacting or not self._is_due():
                return
            self._compacting = True
        try:
            self._compaction = self._compactor.submit(self._compact_in_background)
        except BaseException:
            self._compacting = False
            raise

    def compact(self) -> None:
        """Write a snapshot and begin a new delta, in this thread; commits wait only at the two ends of it."""
        try:
            with self._one_compaction:
                self._compact()
        except OSError as error:
            self._poison(error)
            raise self._failed(error) from error
        except BaseException as error:
            self._poison(error)
            raise

    def _compact_in_background(self) -> None:
        try:
            self.compact()
        finally:
            self._compacting = False

    def _is_due(self) -> bool:
        store = self._store
        since_ns = store.since_ns
        if since_ns is None or self._closing or self._failure is not None:
            return False
        if store.delta_bytes >= max(self._config.compact_bytes_min, store.snapshot_bytes):
            return True
        age_max_s = self._config.compact_age_s
        return age_max_s is not None and self._clock.now_ns() - since_ns >= age_max_s * 1e9

    def _compact(self) -> None:
        begun = self._begin_compaction()
        if begun is None:
            return
        cut, captured = begun
        store = self._store
        now_ns = self._clock.now_ns()
        store.write_snapshot(Snapshot(store.name, store.identity, cut.sequence, now_ns, captured))
        copy = store.copy_delta(cut, now_ns)
        with self._io:
            if self._failure is not None:
                copy.file.close()
                return
            store.switch_delta(copy)
            with self._lock:
                self._note_durable()
        self._events.emit(GroupCompacted(store.name, store.snapshot_bytes, store.delta_bytes))

    def _begin_compaction(self) -> tuple[Cut, Captured] | None:
        with self._io, self._lock:
            if self._failure is not None or self._closed:
                return None
            return self._store.cut(), self._state.capture()


def _wants_sync(request: _Request, reserved: Reserved) -> bool:
    # An empty commit is a request to sync; a commit without effect, such as an empty take, needs no sync.
    return request.durability is SYNCED and (reserved.any_operations or not request.changes)
