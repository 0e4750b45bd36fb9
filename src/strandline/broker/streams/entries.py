"""Appended records in memory, found by place: consecutive records are slices of their columns.

Invariants: entries are consecutive and in order, and are removed oldest first.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from strandline.broker.streams.arrays import Places, Times

_SPARE = 1_024
ENTRY_COST, RECORD_COST = 500, 160
"""Approximate memory of an entry, and of each of its records, beside its bytes."""


@dataclass(slots=True)
class Entry:
    """The records of one append, in columns; `headers` is None if no record has any."""

    keys: list[bytes]
    values: list[bytes]
    headers: list[bytes] | None
    times: list[int] | Times
    size: int

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def cost(self) -> int:
        """How many bytes of memory it takes, about."""
        return self.size + ENTRY_COST + RECORD_COST * len(self.keys)


class Found(NamedTuple):
    """Records that were read, in columns."""

    keys: list[bytes]
    values: list[bytes]
    headers: list[bytes]


class Entries:
    """Consecutive entries, from `first` to `end` (exclusive)."""

    __slots__ = ("_bases", "_entries", "_head", "cost", "end", "first")

    def __init__(self, first: int) -> None:
        self._bases: list[int] = []
        self._entries: list[Entry] = []
        self._head = 0
        self.first = first
        self.end = first
        self.cost = 0
        """How many bytes of memory all of it takes, about."""

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def add(self, entry: Entry) -> None:
        """Put an entry behind the others."""
        self._bases.append(self.end)
        self._entries.append(entry)
        self.end += len(entry)
        self.cost += entry.cost

    def oldest(self) -> Entry:
        """Return the first entry."""
        return self._entries[self._head]

    def drop_oldest(self) -> None:
        """Let go of the first entry."""
        head = self._head
        entry = self._entries[head]
        self.first += len(entry)
        self.cost -= entry.cost
        self._entries[head] = _GONE
        self._head = head = head + 1
        if head > _SPARE and head * 2 > len(self._entries):
            del self._bases[:head], self._entries[:head]
            self._head = 0

    def end_of(self, size: int) -> int:
        """Return where the first entries end that have so many bytes together; the newest is not among them."""
        reached = 0
        for at in range(self._head, len(self._entries) - 1):
            reached += self._entries[at].size
            if reached >= size:
                return self._bases[at] + len(self._entries[at])
        return self._bases[-1]

    def read(self, places: Places) -> Found:
        """Return the records at some places, which rise and are all here."""
        count = len(places)
        found = Found([], [], [])
        if not count:
            return found
        start, last = int(places[0]), int(places[-1])
        if last - start + 1 == count:
            self._read_run(start, last + 1, found)
        else:
            self._read_some(places.tolist(), found)
        return found

    def _read_run(self, start: int, stop: int, found: Found) -> None:
        bases, entries = self._bases, self._entries
        number = bisect_right(bases, start, self._head) - 1
        keys, values, headers = found
        while start < stop:
            entry, base = entries[number], bases[number]
            end = base + len(entry.keys)
            if start == base and end <= stop:
                keys += entry.keys
                values += entry.values
                headers += entry.headers if entry.headers is not None else [b""] * len(entry.keys)
            else:
                part = slice(start - base, min(stop, end) - base)
                keys += entry.keys[part]
                values += entry.values[part]
                headers += entry.headers[part] if entry.headers is not None else [b""] * (part.stop - part.start)
            start = end
            number += 1

    def _read_some(self, places: list[int], found: Found) -> None:
        bases, entries = self._bases, self._entries
        keys, values, headers = found
        at = 0
        while at < len(places):
            number = bisect_right(bases, places[at], self._head) - 1
            entry, base = entries[number], bases[number]
            stop = bisect_right(places, base + len(entry.keys) - 1, at)
            rows = [place - base for place in places[at:stop]]
            keys += [entry.keys[row] for row in rows]
            values += [entry.values[row] for row in rows]
            headers += [entry.headers[row] for row in rows] if entry.headers is not None else [b""] * len(rows)
            at = stop


_GONE = Entry([], [], None, [], 0)
