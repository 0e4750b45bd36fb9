"""Offsets with a time and a delivery count, found by offset or by time: offsets in flight, and waiting offsets.

Each is one integer, the same object in the dict (by offset) and in the heap (by time):

    bits 0 to 31     deliveries so far
    bits 32 to 95    offset
    bits 96 to 158   time, nanoseconds since 1970

so integers order as times do, ties by offset, and the little-endian bytes of the integer are the record on disk.

Invariants: an offset is there once; its integer is in the heap; whatever else is in the heap is stale, is recognised by
not being the dict's, and never outnumbers the live by more than `_SPARE`. `put`, `remove` and `pop_due` cost O(log n)
amortised.
"""

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

OFFSET_SHIFT = 32
TIME_SHIFT = 96
DELIVERIES_MAX = (1 << OFFSET_SHIFT) - 1
OFFSET_MASK = (1 << 64) - 1
_SPARE = 64
_MANY = 4


class Scheduled(NamedTuple):
    """An offset, its time, and its delivery count."""

    time_ns: int
    offset: int
    deliveries: int


def format_scheduled(entry: Scheduled) -> int:
    """Return the entry as one integer, which orders by time."""
    return entry.time_ns << TIME_SHIFT | entry.offset << OFFSET_SHIFT | entry.deliveries


def parse_scheduled(packed: int) -> Scheduled:
    """Return the entry in an integer."""
    return Scheduled(packed >> TIME_SHIFT, packed >> OFFSET_SHIFT & OFFSET_MASK, packed & DELIVERIES_MAX)


class Schedule:
    """Entries by offset and by time; entries are packed integers throughout.

    `live` is the entries by offset, open to be looked into; only the methods change it.
    """

    __slots__ = ("_heap", "live")

    def __init__(self, packed: Collection[int] = ()) -> None:
        self.live = {entry >> OFFSET_SHIFT & OFFSET_MASK: entry for entry in packed}
        self._heap = list(self.live.values())
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self.live)

    def entries(self) -> list[int]:
        """Return all entries, in no order."""
        return list(self.live.values())

    def put(self, offset: int, entry: int) -> None:
        """Add an entry, or replace the one with the same offset."""
        replaced = offset in self.live
        self.live[offset] = entry
        heappush(self._heap, entry)
        if replaced:
            self._sweep()

    def put_many(self, offsets: list[int], entries: list[int]) -> None:
        """Add entries, given with their offsets."""
        if len(entries) <= len(self._heap) // _MANY:
            for offset, entry in zip(offsets, entries, strict=True):
                self.put(offset, entry)
            return
        self.live.update(zip(offsets, entries, strict=True))
        self._heap += entries
        heapify(self._heap)
        self._sweep()

    def remove(self, offset: int) -> int | None:
        """Remove an offset and return its entry, or None if it is missing."""
        entry = self.live.pop(offset, None)
        if entry is not None:
            self._sweep()
        return entry

    def remove_many(self, offsets: Iterable[int]) -> None:
        """Remove offsets, those that are here."""
        pop = self.live.pop
        for offset in offsets:
            pop(offset, None)
        self._sweep()

    def next_time(self) -> int | None:
        """Return the earliest time, or None if there are no entries."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if self.live.get(entry >> OFFSET_SHIFT & OFFSET_MASK) == entry:
                return entry >> TIME_SHIFT
            heappop(heap)
        return None

    def pop_due(self, now_ns: int, limit: int | None = None) -> list[int]:
        """Remove and return up to `limit` entries whose time is `now_ns` or before, earliest first."""
        bound = (now_ns + 1) << TIME_SHIFT
        if limit is None and self._much_is_due(bound):
            return self._split(bound)
        heap = self._heap
        live = self.live
        due: list[int] = []
        while heap and heap[0] < bound and len(due) != limit:
            entry = heappop(heap)
            offset = entry >> OFFSET_SHIFT & OFFSET_MASK
            if live.get(offset) == entry:
                del live[offset]
                due.append(entry)
        self._sweep()
        return due

    def _split(self, bound: int) -> list[int]:
        """Remove and return all entries below `bound` at once, in the order of the dict, not of the heap."""
        due = sorted([entry for entry in self.live.values() if entry < bound])
        if len(due) == len(self.live):
            self.live.clear()
        else:
            self.live = {offset: entry for offset, entry in self.live.items() if entry >= bound}
        self._heap = list(self.live.values())
        heapify(self._heap)
        return due

    def _much_is_due(self, bound: int) -> bool:
        """Whether so many entries are due that one pass over all is cheaper than single pops."""
        heap = self._heap
        enough = len(heap) // _MANY
        found = 0
        look_at = [0] if heap else []
        while look_at and found <= enough:
            at = look_at.pop()
            if heap[at] < bound:
                found += 1
                look_at += range(2 * at + 1, min(2 * at + 3, len(heap)))
        return found > enough

    def _sweep(self) -> None:
        """Build the heap anew when most of it is stale."""
        if len(self._heap) > 2 * len(self.live) + _SPARE:
            self._heap = list(self.live.values())
            heapify(self._heap)
