"""A group as simply as it can be written: sets and dicts, searched from end to end."""

import copy
from dataclasses import dataclass, field

from strandline.groups import GroupState

Timed = tuple[int, int]
"""A time and a delivery count."""


@dataclass
class NaiveGroup:
    """What `GroupState` should do, by looking at everything every time."""

    floor: int = 0
    acked: set[int] = field(default_factory=set)
    inflight: dict[int, Timed] = field(default_factory=dict)
    waiting: dict[int, Timed] = field(default_factory=dict)

    def copy(self) -> "NaiveGroup":
        return copy.deepcopy(self)

    def is_acked(self, offset: int) -> bool:
        return offset < self.floor or offset in self.acked

    def markable(self, offset: int) -> bool:
        return not self.is_acked(offset) and offset not in self.inflight

    def mark(self, offset: int, deadline_ns: int) -> Timed:
        _, before = self.waiting.pop(offset, (0, 0))
        self.inflight[offset] = (deadline_ns, before + 1)
        return self.inflight[offset]

    def ack(self, offset: int) -> bool:
        if self.is_acked(offset):
            return False
        self.acked.add(offset)
        self.inflight.pop(offset, None)
        self.waiting.pop(offset, None)
        while self.floor in self.acked:
            self.acked.remove(self.floor)
            self.floor += 1
        return True

    def ack_below(self, offset: int) -> int:
        return sum([self.ack(below) for below in range(self.floor, offset)])

    def current(self, offset: int, epoch: int | None) -> bool:
        return offset in self.inflight and epoch in (None, self.inflight[offset][1])

    def nack(self, offset: int, ready_ns: int) -> None:
        _, deliveries = self.inflight.pop(offset)
        self.waiting[offset] = (ready_ns, deliveries)

    def extend(self, offset: int, deadline_ns: int) -> None:
        self.inflight[offset] = (deadline_ns, self.inflight[offset][1])

    def pop_expired(self, now_ns: int) -> list[int]:
        due = sorted((timed[0], offset) for offset, timed in self.inflight.items() if timed[0] <= now_ns)
        for _, offset in due:
            self.waiting[offset] = self.inflight.pop(offset)
        return [offset for _, offset in due]

    def deliverable(self, now_ns: int, limit: int, end_offset: int) -> list[int]:
        ready = sorted((timed[0], offset) for offset, timed in self.waiting.items() if timed[0] <= now_ns)
        fresh = (
            offset
            for offset in range(end_offset)
            if not self.is_acked(offset) and offset not in self.inflight and offset not in self.waiting
        )
        return [*(offset for _, offset in ready if offset < end_offset), *fresh][:limit]

    def take(self, now_ns: int, limit: int, end_offset: int, deadline_ns: int) -> list[tuple[int, Timed]]:
        self.pop_expired(now_ns)
        return [(offset, self.mark(offset, deadline_ns)) for offset in self.deliverable(now_ns, limit, end_offset)]


def same(state: GroupState, model: NaiveGroup) -> bool:
    """Whether a state knows exactly what the model knows."""
    above = {offset for start, end in state.acked_ranges() for offset in range(start, end)}
    return (
        state.acked_until == model.floor
        and above == model.acked
        and {entry.offset: (entry.time_ns, entry.deliveries) for entry in state.inflight()} == model.inflight
        and {entry.offset: (entry.time_ns, entry.deliveries) for entry in state.waiting()} == model.waiting
    )
