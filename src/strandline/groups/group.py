"""A durable group: the operations that its owner calls, each one a commit or a read.

Invariants: a change returns once it is as durable as requested, or raises and was not made (after `CommitFailed` the
outcome is unknown until the group is opened again); reads never wait for the disk.

The caller holds the lock of the folder: there is one `Group` for a group's files.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast

from strandline.clock import Clock, SystemClock
from strandline.events import Events
from strandline.files import Disk, storage_errors
from strandline.groups.changes import Ack, AckBelow, Change, ChangeOf, Extend, Mark, Nack, Result, Take
from strandline.groups.config import GroupConfig
from strandline.groups.engine import Engine
from strandline.groups.events import GroupOpened
from strandline.groups.state import Captured, Delivery, GroupState
from strandline.groups.store import open_store
from strandline.journal.config import SYNCED, Durability

T = TypeVar("T")


class Group:
    """The deliveries and acknowledgements of one group over one log."""

    def __init__(self, name: str, engine: Engine, clock: Clock, own_executor: Executor | None) -> None:
        """Use `Group.open`."""
        self._name = name
        self._engine = engine
        self._clock = clock
        self._own_executor = own_executor

    def __repr__(self) -> str:
        """Show the group and its frontier."""
        captured = self.capture()
        shown = f"acked_until={captured.acks.until}, in_flight={len(captured.inflight)}"
        return f"Group({self._name!r}, {shown}, waiting={len(captured.waiting)})"

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: Path,
        name: str,
        *,
        config: GroupConfig | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        compactor: Executor | None = None,
        events: Events | None = None,
    ) -> Self:
        """Open a group, recovering it, or create it.

        `executor` runs the commits of what gathered while another ran, `compactor` the compactions; many groups may
        share them, but a compaction on the only thread of `executor` would hold commits up. Without them the group
        has its own.
        """
        clock = clock or SystemClock()
        events = events or Events()
        with storage_errors(folder):
            store, state, recovery = open_store(disk, folder, name, clock.now_ns())
        own_executor = None
        if executor is None:
            executor = own_executor = ThreadPoolExecutor(2, thread_name_prefix="strandline-group")
        engine = Engine(store, state, config or GroupConfig(), clock, executor, compactor or executor, events)
        frames, torn_bytes = (recovery.frames, recovery.torn_bytes) if recovery else (0, 0)
        events.emit(GroupOpened(name, recovery is None, frames, torn_bytes))
        engine.compact_if_due()
        return cls(name, engine, clock, own_executor)

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._name

    # Changes

    def commit(self, *changes: Change, durability: Durability = SYNCED) -> list[Result]:
        """Make changes, all or none, in one frame; return the result of each once they are as durable as asked.

        They are checked against the state before the first of them. Takes are carried out last, acknowledgements take
        effect when the frame is written, and no other two changes may name the same offset.
        """
        return self._engine.commit(changes, durability)

    def commit_soon(self, *changes: Change, durability: Durability = SYNCED) -> "Future[list[Result]]":
        """Make changes as `commit` does, without waiting for them; blocks only while the queue is full."""
        return self._engine.commit_soon(changes, durability)

    def take(self, limit: int, deadline_ns: int, end_offset: int, *, durability: Durability = SYNCED) -> list[Delivery]:
        """Deliver up to `limit` offsets below `end_offset` to the caller until a deadline.

        Deliveries that expired by now are deliverable; see `GroupState.deliverable` for the order.
        """
        return self._one(Take(self._clock.now_ns(), limit, end_offset, deadline_ns), durability)

    def mark_inflight(self, offset: int, deadline_ns: int, *, durability: Durability = SYNCED) -> Delivery:
        """Deliver one offset to the caller until a deadline; `Conflict` where it is acknowledged or in flight."""
        return self.mark_many([offset], deadline_ns, durability=durability)[0]

    def mark_many(self, offsets: Sequence[int], deadline_ns: int, *, durability: Durability = SYNCED) -> list[Delivery]:
        """Deliver offsets to the caller until a deadline: all of them, or none and an error."""
        return self._one(Mark(offsets, deadline_ns), durability)

    def ack(self, offset: int, *, durability: Durability = SYNCED) -> int:
        """Acknowledge an offset, in flight or not; return 1 if it is new, else 0."""
        return self.ack_many((offset,), durability=durability)

    def ack_many(self, offsets: Iterable[int], *, durability: Durability = SYNCED) -> int:
        """Acknowledge offsets in any order, however far ahead, in one frame; return the number of new ones."""
        return self._one(Ack(offsets), durability)

    def ack_below(self, offset: int, *, durability: Durability = SYNCED) -> int:
        """Acknowledge all offsets below one, to skip them or because they are gone; return the number of new ones."""
        return self._one(AckBelow(offset), durability)

    def nack(self, offset: int, ready_ns: int, epoch: int | None = None, *, durability: Durability = SYNCED) -> None:
        """Give an offset back, to be delivered again at `ready_ns` or after; `StaleDelivery` unless it is in flight."""
        self._one(Nack(offset, ready_ns, epoch), durability)

    def extend(
        self, offset: int, deadline_ns: int, epoch: int | None = None, *, durability: Durability = SYNCED
    ) -> Delivery:
        """Move the deadline of an offset, either way; `StaleDelivery` unless it is in flight."""
        return self._one(Extend(offset, deadline_ns, epoch), durability)

    def clear_inflight(self, offset: int, epoch: int | None = None, *, durability: Durability = SYNCED) -> None:
        """Give an offset back, deliverable at once and before all others; it keeps its delivery count."""
        self._one(Nack(offset, 0, epoch), durability)

    def sync(self) -> None:
        """Return when everything written so far is on stable storage."""
        self.commit()

    # Questions

    @property
    def acked_until(self) -> int:
        """The frontier: every offset below is acknowledged, this one is not."""
        return self._engine.ask(lambda state: state.acked_until)

    @property
    def durable_acked_until(self) -> int:
        """The part of the frontier that is on stable storage; offsets below it are never delivered again."""
        return self._engine.durable_until

    @property
    def lowest_unacked(self) -> int:
        """The lowest offset that is not acknowledged; the frontier by another name."""
        return self.acked_until

    def is_acked(self, offset: int) -> bool:
        """Whether an offset is acknowledged."""
        return self._engine.ask(lambda state: state.is_acked(offset))

    def is_inflight(self, offset: int) -> bool:
        """Whether an offset is in flight."""
        return self._engine.ask(lambda state: state.is_inflight(offset))

    def deliveries(self, offset: int) -> int:
        """Return the delivery count of an unacknowledged offset; 0 for an acknowledged or fresh one."""
        return self._engine.ask(lambda state: state.deliveries(offset))

    def delivery_counts(self, offsets: Sequence[int]) -> list[int]:
        """Return the delivery counts of offsets that `deliverable` or `pop_expired` returned."""
        return self._engine.ask(lambda state: state.delivery_counts(offsets))

    def deliverable(self, limit: int, end_offset: int) -> list[int]:
        """Return the offsets that are deliverable now; another caller may take them first, so prefer `take`."""
        now_ns = self._clock.now_ns()
        return self._engine.ask(lambda state: state.deliverable(now_ns, limit, end_offset))

    def next_expiry(self) -> int | None:
        """Return the earliest deadline of a delivery in flight, or None."""
        return self._engine.ask(GroupState.next_expiry)

    def next_ready(self) -> int | None:
        """Return the earliest ready time of a waiting offset, or None."""
        return self._engine.ask(GroupState.next_ready)

    def pop_expired(self, now_ns: int) -> list[int]:
        """Make deliveries whose deadline has passed deliverable again; return their offsets by deadline.

        Nothing is written: expiry follows from the deadlines, which are.
        """
        return self._engine.ask(lambda state: state.pop_expired(now_ns))

    def capture(self) -> Captured:
        """Return a copy of the whole state."""
        return self._engine.ask(GroupState.capture)

    # Life

    def close(self) -> None:
        """Flush, let a compaction end, and close; closing twice is harmless."""
        try:
            self._engine.close()
        finally:
            if self._own_executor is not None:
                self._own_executor.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def compact_if_due(self) -> None:
        """Begin a compaction in the background if the delta is large or old enough and none is under way.

        Each commit asks; an owner of groups that fall silent may ask from a timer.
        """
        self._engine.compact_if_due()

    def compact(self) -> None:
        """Write a snapshot and begin a new delta, in this thread; commits wait only at the two ends of it."""
        self._engine.compact()

    def _one(self, change: ChangeOf[T], durability: Durability) -> T:
        return cast("T", self.commit(cast("Change", change), durability=durability)[0])
