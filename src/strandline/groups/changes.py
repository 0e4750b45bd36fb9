"""Changes: the requests of callers, and their execution by a commit, in two steps around its write.

`CommitPlan.reserve` comes before the write: it checks a caller's changes, lets those take effect that keep others away
(marks, takes, nacks, extensions, releases), and turns all of them into operations. `CommitPlan.confirm` comes after it,
when the operations are as durable as asked: only then is anything acknowledged. So no two callers are given the same
offset, and the floor never moves before the acknowledgement is recorded.

Invariants: a caller's changes are reserved all together or not at all; the state after `confirm` is the state that the
operations give when they are replayed in order, as an acknowledged offset ignores whatever else is said of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Generic, TypeVar

from strandline.errors import InvalidInput
from strandline.groups.acks import Acks
from strandline.groups.operations import (
    OPERATION_BYTES,
    WAITING,
    Run,
    format_acked,
    format_entries,
    format_given,
    runs,
)
from strandline.groups.schedule import Scheduled
from strandline.groups.state import Delivery, GroupState, checked_offset, checked_time

R_co = TypeVar("R_co", covariant=True)
Result = int | list[Delivery] | Delivery | None


class ChangeOf(Generic[R_co]):
    """A change whose result is an `R_co`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Ack(ChangeOf[int]):
    """Acknowledge offsets, in any order and however far ahead; gives the number of new ones."""

    offsets: InitVar[Iterable[int]]
    runs: list[Run] = field(init=False)

    def __post_init__(self, offsets: Iterable[int]) -> None:
        """Sort the offsets into runs; reject invalid ones."""
        object.__setattr__(self, "runs", runs(offsets))


@dataclass(frozen=True, slots=True)
class AckBelow(ChangeOf[int]):
    """Acknowledge everything below an offset; gives the number of new ones."""

    offset: int

    def __post_init__(self) -> None:
        """Reject an invalid offset."""
        object.__setattr__(self, "offset", checked_offset(self.offset))


@dataclass(frozen=True, slots=True)
class Mark(ChangeOf[list[Delivery]]):
    """Deliver these offsets until a deadline; `Conflict` where one is acknowledged or in flight."""

    offsets: Sequence[int]
    deadline_ns: int

    def __post_init__(self) -> None:
        """Reject an invalid offset or time."""
        object.__setattr__(self, "offsets", [checked_offset(offset) for offset in self.offsets])
        object.__setattr__(self, "deadline_ns", checked_time(self.deadline_ns))


@dataclass(frozen=True, slots=True)
class Take(ChangeOf[list[Delivery]]):
    """Deliver up to `limit` offsets below `end_offset` that are deliverable at `now_ns`, until a deadline."""

    now_ns: int
    limit: int
    end_offset: int
    deadline_ns: int

    def __post_init__(self) -> None:
        """Reject an invalid time or limit."""
        object.__setattr__(self, "now_ns", checked_time(self.now_ns))
        object.__setattr__(self, "deadline_ns", checked_time(self.deadline_ns))
        if self.limit < 0:
            raise InvalidInput(f"limit must not be negative, as {self.limit} is")


@dataclass(frozen=True, slots=True)
class Nack(ChangeOf[None]):
    """Give an offset back, to be delivered again at `ready_ns` or after; `StaleDelivery` unless it is in flight."""

    offset: int
    ready_ns: int
    epoch: int | None = None

    def __post_init__(self) -> None:
        """Reject an invalid offset or time."""
        object.__setattr__(self, "offset", checked_offset(self.offset))
        object.__setattr__(self, "ready_ns", checked_time(self.ready_ns))


@dataclass(frozen=True, slots=True)
class Extend(ChangeOf[Delivery]):
    """Move the deadline of an offset; `StaleDelivery` unless it is in flight."""

    offset: int
    deadline_ns: int
    epoch: int | None = None

    def __post_init__(self) -> None:
        """Reject an invalid offset or time."""
        object.__setattr__(self, "offset", checked_offset(self.offset))
        object.__setattr__(self, "deadline_ns", checked_time(self.deadline_ns))


Change = Ack | AckBelow | Mark | Take | Nack | Extend


def operation_bytes(change: Change) -> int:
    """Return the maximum bytes of operations of a change."""
    match change:
        case Ack():
            return len(change.runs) * OPERATION_BYTES
        case Mark():
            return len(change.offsets) * OPERATION_BYTES
        case Take():
            return change.limit * OPERATION_BYTES
        case AckBelow() | Nack() | Extend():
            return OPERATION_BYTES


@dataclass(slots=True)
class Reserved:
    """The results of one caller, valid once its acknowledgements are confirmed."""

    results: list[Result]
    acks: list[tuple[int, list[Run]]] = field(default_factory=list)
    any_operations: bool = False


class CommitPlan:
    """One commit: the operations of all callers that share it, in the order in which they were reserved."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._pending: list[Run] = []
        self.operations: list[bytes] = []

    def reserve(self, changes: Sequence[Change]) -> Reserved:
        """Check changes against the state, apply the reserving ones, and collect the operations of all."""
        for change in changes:
            self._check(change)
        if len(changes) > 1:
            _check_distinct(changes)
        reserved = Reserved([None] * len(changes))
        before = len(self.operations)
        # Takes come last: they see the effect of the other changes.
        for index, change in sorted(enumerate(changes), key=lambda pair: isinstance(pair[1], Take)):
            self._reserve_one(index, change, reserved)
        reserved.any_operations = len(self.operations) > before
        return reserved

    def confirm(self, reserved: Reserved) -> list[Result]:
        """Apply the caller's acknowledgements after their write; return the caller's results."""
        for index, acked in reserved.acks:
            reserved.results[index] = self._state.ack_runs(acked)
        return reserved.results

    def _check(self, change: Change) -> None:
        match change:
            case Mark():
                self._state.check_all_markable(change.offsets)
                if len(set(change.offsets)) != len(change.offsets):
                    raise InvalidInput("an offset is named twice in one call")
            case Nack() | Extend():
                self._state.check_inflight(change.offset, change.epoch)
            case Ack() | AckBelow() | Take():
                pass

    def _reserve_one(self, index: int, change: Change, reserved: Reserved) -> None:
        match change:
            case Ack():
                self._acknowledge(index, change.runs, reserved)
            case AckBelow():
                self._acknowledge(index, [(0, change.offset)] if change.offset else [], reserved)
            case Mark():
                reserved.results[index] = self._given(self._state.mark_checked(change.offsets, change.deadline_ns))
            case Take():
                reserved.results[index] = self._given(self._take(change))
            case Nack():
                deliveries = self._state.check_inflight(change.offset, change.epoch)
                self._state.put_waiting(change.offset, change.ready_ns, deliveries)
                self._note(WAITING, [Scheduled(change.ready_ns, change.offset, deliveries)])
            case Extend():
                delivery = self._state.extend(change.offset, change.deadline_ns, change.epoch)
                reserved.results[index] = delivery
                self._given([delivery])

    def _acknowledge(self, index: int, acked: list[Run], reserved: Reserved) -> None:
        reserved.acks.append((index, acked))
        self._pending += acked
        if acked:
            self.operations.append(format_acked(acked))

    def _take(self, take: Take) -> list[Delivery]:
        given = self._state.take(take.now_ns, take.limit, take.end_offset, take.deadline_ns)
        if not given or not self._pending:
            return given
        # A late acknowledgement in the same commit: the offset was deliverable again, but need not be done twice.
        done = Acks()
        for start, end in self._pending:
            done.add_range(start, end)
        return [one for one in given if one.offset not in done]

    def _given(self, deliveries: list[Delivery]) -> list[Delivery]:
        if deliveries:
            self.operations.append(format_given(deliveries))
        return deliveries

    def _note(self, kind: int, entries: list[Scheduled]) -> None:
        if entries:
            self.operations.append(format_entries(kind, entries))


def _check_distinct(changes: Sequence[Change]) -> None:
    """Reject two changes of one offset, unless one of them acknowledges it."""
    named: list[int] = []
    for change in changes:
        if isinstance(change, Mark):
            named += change.offsets
        elif isinstance(change, Nack | Extend):
            named.append(change.offset)
    if len(set(named)) != len(named):
        raise InvalidInput("an offset is named twice in one commit", hint="give each change a commit of its own")
