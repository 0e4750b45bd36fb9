"""The state of one group: which offsets are acknowledged, which are in flight, and which wait for the next delivery.

An offset is in exactly one state. Arrows are operations; `deliveries` goes up by one on each mark and is forgotten only
when the offset is acknowledged.

    fresh ── mark ──► in flight ── nack, clear, pop_expired ──► waiting ── mark ──► in flight …
      └────────────────────┴─────────── ack, ack_below ────────────┴──────────────► acknowledged, for good

Invariants: everything below `acked_until` is acknowledged and `acked_until` itself is not; nothing acknowledged is in
flight or waiting; an acknowledgement is never refused, however late or far ahead ("done is done"); `nack`, `extend`
and `clear_inflight` answer for a delivery that is still in flight, and are refused as stale otherwise. The number of
a delivery is its epoch: the n-th delivery of an offset happens once.

No clock, no file and no lock: times are passed in, and callers that share a state among threads lock it.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from strandline.errors import Conflict, InvalidInput, StaleDelivery
from strandline.groups.acks import Acks
from strandline.groups.schedule import (
    DELIVERIES_MAX,
    OFFSET_MASK,
    OFFSET_SHIFT,
    TIME_SHIFT,
    Schedule,
    Scheduled,
    parse_scheduled,
)

OFFSET_LIMIT = 2**63 - 1
TIME_LIMIT = 2**63 - 1


class Delivery(NamedTuple):
    """One delivery of an offset."""

    offset: int
    deliveries: int
    """The number of deliveries, this one included."""
    deadline_ns: int
    """The time of redelivery, unless it is answered or extended."""

    @property
    def epoch(self) -> int:
        """The number of this delivery, which identifies it among those of the same offset."""
        return self.deliveries


class Captured(NamedTuple):
    """A state at one moment, cheap to take, for a later write."""

    acks: Acks
    inflight: list[int]
    waiting: list[int]
    counters: Mapping[int, int] = MappingProxyType({})


def checked_offset(offset: int) -> int:
    """Return an offset as a plain integer; `InvalidInput` unless it is one that a log can have."""
    number = operator.index(offset)
    if 0 <= number < OFFSET_LIMIT:
        return number
    raise InvalidInput(f"offset {number} is not in [0, {OFFSET_LIMIT})")


def checked_time(time_ns: int) -> int:
    """Return a time as a plain integer; `InvalidInput` unless it is one that 63 bits hold."""
    number = operator.index(time_ns)
    if 0 <= number < TIME_LIMIT:
        return number
    raise InvalidInput(f"{number} ns is not a time in [0, {TIME_LIMIT})")


class GroupState:
    """The state of one group, without I/O."""

    __slots__ = ("_acks", "_fresh_from", "_inflight", "_waiting", "counters")

    def __init__(
        self,
        acks: Acks | None = None,
        inflight: Sequence[int] = (),
        waiting: Sequence[int] = (),
        counters: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._acks = Acks() if acks is None else acks
        self._inflight = Schedule(inflight)
        self._waiting = Schedule(waiting)
        self.counters = dict(counters)
        """Numbers that the owner keeps with the group, by their own number."""
        # Every offset below is acknowledged, in flight or waiting. Nothing becomes fresh again, so it only grows.
        self._fresh_from = 0

    # Acknowledging

    @property
    def acked_until(self) -> int:
        """The frontier: every offset below is acknowledged, this one is not."""
        return self._acks.until

    @property
    def lowest_unacked(self) -> int:
        """The lowest offset that is not acknowledged; the frontier by another name."""
        return self._acks.until

    def is_acked(self, offset: int) -> bool:
        """Whether an offset is acknowledged."""
        return checked_offset(offset) in self._acks

    def ack(self, offset: int) -> bool:
        """Acknowledge an offset, in flight or not; return whether it is new."""
        offset = checked_offset(offset)
        if not self._acks.add(offset):
            return False
        self._forget(offset)
        return True

    def ack_many(self, offsets: Iterable[int]) -> int:
        """Acknowledge offsets in any order; return the number of new ones. An invalid offset changes nothing."""
        checked = [checked_offset(offset) for offset in offsets]
        return sum(map(self.ack, checked))

    def ack_range(self, start: int, end: int) -> int:
        """Acknowledge [start, end); return the number of new offsets."""
        news = self._acks.add_range(start, end)
        if news:
            _remove_range(self._inflight, start, end)
            _remove_range(self._waiting, start, end)
        return news

    def ack_runs(self, runs: Iterable[tuple[int, int]]) -> int:
        """Acknowledge runs of (start, exclusive end); return the number of new offsets."""
        news = 0
        for start, end in runs:
            if end - start > 1:
                news += self.ack_range(start, end)
            elif self._acks.add(start):
                news += 1
                self._forget(start)
        return news

    def ack_below(self, offset: int) -> int:
        """Acknowledge all offsets below one, to skip them or because they are gone; return the number of new ones."""
        return self.ack_range(0, checked_offset(offset))

    # Delivering

    def deliverable(self, now_ns: int, limit: int, end_offset: int) -> list[int]:
        """Return up to `limit` deliverable offsets below `end_offset`; nothing is marked.

        First the waiting offsets that are ready, in the order of their ready times (so one that fails repeatedly goes
        behind the others); then fresh ones, ascending. The cost depends on the result, not on offsets in flight or
        acknowledged.
        """
        due = self._pop_ready(now_ns, limit, end_offset)
        return self._put_back(due) + self._fresh(limit - len(due), end_offset)

    def take(self, now_ns: int, limit: int, end_offset: int, deadline_ns: int) -> list[Delivery]:
        """Mark `deliverable` offsets, expired deliveries included, as in flight and return them."""
        deadline_ns = checked_time(deadline_ns)
        self.pop_expired(now_ns)
        due = map(parse_scheduled, self._pop_ready(now_ns, limit, end_offset))
        given = [self._deliver(entry.offset, entry.deliveries, deadline_ns) for entry in due]
        fresh = self._fresh(limit - len(given), end_offset)
        given += [self._deliver(offset, 0, deadline_ns) for offset in fresh]
        if fresh:
            self._fresh_from = fresh[-1] + 1
        return given

    def mark_inflight(self, offset: int, deadline_ns: int) -> Delivery:
        """Deliver an offset until a deadline; `Conflict` where it is acknowledged or in flight."""
        offset = checked_offset(offset)
        self.check_markable(offset)
        return self._mark(offset, checked_time(deadline_ns))

    def mark_many(self, offsets: Iterable[int], deadline_ns: int) -> list[Delivery]:
        """Deliver offsets until a deadline: all of them, or none and an error."""
        deadline_ns = checked_time(deadline_ns)
        checked = [checked_offset(offset) for offset in offsets]
        if len(set(checked)) != len(checked):
            raise InvalidInput("an offset is named twice in one call")
        self.check_all_markable(checked)
        return self.mark_checked(checked, deadline_ns)

    def mark_checked(self, offsets: Sequence[int], deadline_ns: int) -> list[Delivery]:
        """Deliver offsets until a deadline, both checked before; an offset is named once."""
        waiting = self._waiting
        counts = [(waiting.remove(offset) or 0) & DELIVERIES_MAX if offset in waiting.live else 0 for offset in offsets]
        # The count stays within its 32 bits; past four thousand million deliveries an epoch may stand for several.
        given = [
            Delivery(offset, count + 1 if count < DELIVERIES_MAX else count, deadline_ns)
            for offset, count in zip(offsets, counts, strict=True)
        ]
        until = deadline_ns << TIME_SHIFT
        self._inflight.put_many(list(offsets), [until | one[0] << OFFSET_SHIFT | one[1] for one in given])
        return given

    def is_inflight(self, offset: int) -> bool:
        """Whether an offset is in flight."""
        return checked_offset(offset) in self._inflight.live

    def is_waiting(self, offset: int) -> bool:
        """Whether an offset was delivered and waits for redelivery."""
        return checked_offset(offset) in self._waiting.live

    def deliveries(self, offset: int) -> int:
        """Return the delivery count of an unacknowledged offset; 0 for an acknowledged or fresh one."""
        offset = checked_offset(offset)
        entry = self._inflight.live.get(offset) or self._waiting.live.get(offset) or 0
        return entry & DELIVERIES_MAX

    def delivery_counts(self, offsets: Iterable[int]) -> list[int]:
        """Return what `deliveries` returns for each of some offsets that this state named."""
        inflight, waiting = self._inflight.live, self._waiting.live
        return [(inflight.get(offset) or waiting.get(offset) or 0) & DELIVERIES_MAX for offset in offsets]

    # Answering otherwise

    def nack(self, offset: int, ready_ns: int, epoch: int | None = None) -> None:
        """Give an offset back, to be delivered again at `ready_ns` or after; `StaleDelivery` unless it is in flight."""
        offset = checked_offset(offset)
        self.put_waiting(offset, checked_time(ready_ns), self.check_inflight(offset, epoch))

    def extend(self, offset: int, deadline_ns: int, epoch: int | None = None) -> Delivery:
        """Move the deadline of an offset, either way; `StaleDelivery` unless it is in flight."""
        offset = checked_offset(offset)
        deadline_ns = checked_time(deadline_ns)
        deliveries = self.check_inflight(offset, epoch)
        self.put_inflight(offset, deadline_ns, deliveries)
        return Delivery(offset, deliveries, deadline_ns)

    def clear_inflight(self, offset: int, epoch: int | None = None) -> None:
        """Give an offset back, deliverable at once and before all others; it keeps its count."""
        self.nack(offset, 0, epoch)

    # Time

    def next_expiry(self) -> int | None:
        """Return the earliest deadline of a delivery in flight, or None."""
        return self._inflight.next_time()

    def next_ready(self) -> int | None:
        """Return the earliest ready time of a waiting offset, or None."""
        return self._waiting.next_time()

    def pop_expired(self, now_ns: int) -> list[int]:
        """Make deliveries whose deadline is `now_ns` or before deliverable again; return their offsets by deadline.

        Their ready time is their deadline, so the time and number of calls make no difference.
        """
        expired = self._inflight.pop_due(now_ns)
        return self._put_back(expired)

    # For the durable group and its recovery

    def check_markable(self, offset: int) -> None:
        """Raise `Conflict` where an offset is acknowledged or in flight."""
        if offset in self._inflight.live:
            raise Conflict(f"offset {offset} is in flight", hint="wait until it is answered or its deadline passes")
        if offset in self._acks:
            raise Conflict(f"offset {offset} is acknowledged", hint="go on with the next one")

    def check_all_markable(self, offsets: Sequence[int]) -> None:
        """Raise `Conflict` where one of some offsets is acknowledged or in flight."""
        if not self._inflight.live.keys().isdisjoint(offsets) or not self._acks.isdisjoint(offsets):
            for offset in offsets:  # to name the one
                self.check_markable(offset)

    def check_inflight(self, offset: int, epoch: int | None) -> int:
        """Return the delivery count of an offset in flight; `StaleDelivery` where it is not, or not this delivery."""
        entry = self._inflight.live.get(offset)
        if entry is None or epoch not in (None, entry & DELIVERIES_MAX):
            raise StaleDelivery(offset, self.deliveries(offset) if epoch is None else epoch)
        return entry & DELIVERIES_MAX

    def put_inflight(self, offset: int, deadline_ns: int, deliveries: int) -> None:
        """Put an offset in flight from any state but acknowledged."""
        if offset not in self._acks:
            self._waiting.remove(offset)
            self._inflight.put(offset, deadline_ns << TIME_SHIFT | offset << OFFSET_SHIFT | deliveries)

    def put_waiting(self, offset: int, ready_ns: int, deliveries: int) -> None:
        """Let an offset wait, from any state but acknowledged."""
        if offset not in self._acks:
            self._inflight.remove(offset)
            self._waiting.put(offset, ready_ns << TIME_SHIFT | offset << OFFSET_SHIFT | deliveries)

    def capture(self) -> Captured:
        """Return a copy of the state, which may change afterwards."""
        return Captured(self._acks.copy(), self._inflight.entries(), self._waiting.entries(), self.counters.copy())

    def inflight(self) -> list[Scheduled]:
        """Return the entries in flight, by deadline."""
        return [parse_scheduled(entry) for entry in sorted(self._inflight.entries())]

    def waiting(self) -> list[Scheduled]:
        """Return the waiting entries, by ready time."""
        return [parse_scheduled(entry) for entry in sorted(self._waiting.entries())]

    def acked_ranges(self) -> list[tuple[int, int]]:
        """Return the acknowledged runs above the frontier, ascending, as (start, exclusive end)."""
        return list(self._acks.ranges())

    @property
    def inflight_count(self) -> int:
        """The number of offsets in flight."""
        return len(self._inflight)

    @property
    def waiting_count(self) -> int:
        """The number of waiting offsets."""
        return len(self._waiting)

    def _forget(self, offset: int) -> None:
        if offset in self._inflight.live:
            self._inflight.remove(offset)
        elif offset in self._waiting.live:
            self._waiting.remove(offset)

    def _mark(self, offset: int, deadline_ns: int) -> Delivery:
        before = self._waiting.remove(offset) if offset in self._waiting.live else None
        return self._deliver(offset, (before or 0) & DELIVERIES_MAX, deadline_ns)

    def _deliver(self, offset: int, before: int, deadline_ns: int) -> Delivery:
        # The count stays within its 32 bits; past four thousand million deliveries an epoch may stand for several.
        deliveries = before + 1 if before < DELIVERIES_MAX else before
        self._inflight.put(offset, deadline_ns << TIME_SHIFT | offset << OFFSET_SHIFT | deliveries)
        return Delivery(offset, deliveries, deadline_ns)

    def _pop_ready(self, now_ns: int, limit: int, end_offset: int) -> list[int]:
        """Remove and return up to `limit` waiting entries that are ready and below `end_offset`."""
        if limit < 0:
            raise InvalidInput(f"limit must not be negative, as {limit} is")
        ready: list[int] = []
        beyond: list[int] = []
        while len(ready) < limit and (due := self._waiting.pop_due(now_ns, limit - len(ready))):
            for entry in due:
                (ready if entry >> OFFSET_SHIFT & OFFSET_MASK < end_offset else beyond).append(entry)
        self._put_back(beyond)
        return ready

    def _put_back(self, entries: list[int]) -> list[int]:
        """Add waiting entries; return their offsets."""
        offsets = [entry >> OFFSET_SHIFT & OFFSET_MASK for entry in entries]
        self._waiting.put_many(offsets, entries)
        return offsets

    def _fresh(self, limit: int, end_offset: int) -> list[int]:
        found: list[int] = []
        inflight, waiting = self._inflight.live, self._waiting.live
        for start, end in self._acks.gaps(self._fresh_from, end_offset):
            for offset in range(start, end):
                if len(found) >= limit:
                    return found
                if offset in inflight or offset in waiting:
                    continue
                if not found:
                    self._fresh_from = offset
                found.append(offset)
        if not found:
            self._fresh_from = max(self._fresh_from, end_offset)
        return found


def _remove_range(schedule: Schedule, start: int, end: int) -> None:
    """Remove [start, end), iterating over the smaller of range and entries."""
    if end - start <= len(schedule):
        schedule.remove_many(range(start, end))
        return
    schedule.remove_many([offset for offset in schedule.live if start <= offset < end])
