"""The log of a stream: a journal, or memory, behind one small contract.

Invariants: places are consecutive from `first_place` to `next_place`. A record is readable from the moment `append`
returns, whether or not it is on disk yet. The ticket of an append is done when its records are as durable as asked, and
fails if they may not be. Tickets are done in the order of the appends.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from strandline.broker.streams.arrays import Places
from strandline.broker.streams.entries import RECORD_COST, Entries, Entry, Found
from strandline.broker.streams.losses import LostPlaces
from strandline.clock import Clock
from strandline.errors import Closed
from strandline.files import Disk
from strandline.journal import SYNCED, WRITTEN, Appended, Batch, Durability, Journal, JournalConfig

MiB = 1 << 20
SEGMENT_BYTES = 32 * MiB
TAIL_BYTES_MAX = 4 * MiB
"""Bytes of the newest records that stay in memory, for readers at the end of the log."""
RECORD_OVERHEAD = 24
"""Bytes of a record beside its content: three offsets and a time."""
GAP_MAX = 2_048
"""A gap of so many records is read through, rather than looked up."""
AHEAD_MIN, AHEAD_DENSITY = 16, 2
"""A read of so many records, at least one in so many of them wanted, counts as sequential."""
AHEAD_MAX, AHEAD_BYTES_MAX, AHEAD_READERS = 8_192, MiB, 4
"""How many records and bytes are read ahead at most, and for how many readers."""


Ticket = Future[Any]
"""The journal's promise for an append: done when its records are as durable as asked, failed if they may not be.

Its result is not used. It cannot be cancelled: the journal marks it as running, and records cannot be taken back.
"""


def done_ticket() -> Ticket:
    """Return a ticket that is done."""
    ticket: Ticket = Future()
    ticket.set_result(None)
    return ticket


DONE = done_ticket()


def is_passed(ticket: Ticket) -> bool:
    """Tell whether the append of a ticket is durable: it is done, and did not fail."""
    return ticket.done() and ticket.exception() is None


class MessageLog(Protocol):
    """The contract of a log."""

    @property
    def first_place(self) -> int:
        """The lowest place that can be read."""
        ...

    @property
    def next_place(self) -> int:
        """The place that the next record will have."""
        ...

    @property
    def stored_bytes(self) -> int:
        """Approximate bytes of the records, dead ones included."""
        ...

    def append(self, entry: Entry) -> Ticket:
        """Add records at `next_place`; raises and adds nothing where that is not possible."""
        ...

    def read(self, places: Places) -> Found:
        """Return the records at some places, which rise."""
        ...

    def oldest_end(self) -> int | None:
        """Return the place up to which `remove_below` could remove the oldest part, None if it is the only one."""
        ...

    def remove_below(self, place: int) -> None:
        """Remove whole parts whose records are all below a place."""
        ...

    def close(self) -> None:
        """Finish appends under way, and release everything."""
        ...


class _Ahead:
    """Records read ahead for a sequential reader."""

    def __init__(self, start: int) -> None:
        self.entries = Entries(start)
        self.records = 0
        """How many records to read beyond the wanted ones."""

    def covers(self, place: int) -> bool:
        """Tell whether a place is here, or is the next one."""
        return self.entries.first <= place <= self.entries.end

    def forget_below(self, place: int) -> None:
        """Drop records that were read."""
        entries = self.entries
        while len(entries) and entries.first + len(entries.oldest()) <= place:
            entries.drop_oldest()

    def add(self, batch: Batch) -> None:
        """Take in the next batch."""
        values, headers = batch.values(), batch.headers()
        keys = batch.keys() or [b""] * len(values)
        self.entries.add(Entry(keys, values, headers, [], 0))


class JournalLog:
    """Records in a journal."""

    def __init__(self, journal: Journal, durability: Durability) -> None:
        self._journal = journal
        self._durability = durability
        self._next = journal.next_offset
        self._tail = Entries(self._next)
        self._written = self._next
        self._ahead: list[_Ahead] = []
        self._lost = [LostPlaces(lost.base_offset, lost.next_offset, lost.stored_bytes) for lost in journal.lost()]

    @classmethod
    def open(
        cls, folder: Path, disk: Disk, clock: Clock, durability: Durability, executor: Executor | None = None
    ) -> "JournalLog":
        """Open the journal in a folder, making it where there is none."""
        config = JournalConfig(segment_bytes_max=SEGMENT_BYTES, tells_readers=False)
        return cls(Journal.open(folder, config, disk=disk, clock=clock, executor=executor), durability)

    @property
    def identity(self) -> bytes:
        """Sixteen bytes that no other log has."""
        return self._journal.identity

    @property
    def first_place(self) -> int:
        """The lowest place that can be read."""
        return self._journal.first_offset

    @property
    def next_place(self) -> int:
        """The place that the next record will have."""
        return self._next

    @property
    def durable_place(self) -> int:
        """Everything below this place is as durable as asked, as far as is known; it moves no more after a failure."""
        return self._journal.durable_offset if self._durability is SYNCED else self._journal.next_offset

    @property
    def stored_bytes(self) -> int:
        """How many bytes the journal takes, dead records included."""
        return self._journal.stored_bytes

    def append(self, entry: Entry) -> Ticket:
        """Add records at `next_place`; raises and adds nothing where that is not possible."""
        base = self._next
        if self._durability is WRITTEN:
            self._journal.append(
                entry.values, keys=entry.keys, headers=entry.headers, timestamps=entry.times, durability=WRITTEN
            )
            ticket = DONE
            self._written = base + len(entry)
        else:
            ticket = self._journal.append_soon(
                entry.values, keys=entry.keys, headers=entry.headers, timestamps=entry.times, durability=SYNCED
            )
            ticket.add_done_callback(self._note_written)
        self._next = base + len(entry)
        tail = self._tail
        tail.add(entry)
        while tail.cost > TAIL_BYTES_MAX and tail.first + len(tail.oldest()) <= self._written:
            tail.drop_oldest()
        return ticket

    def _note_written(self, appended: Future[Appended]) -> None:
        """Note which records the journal can be read for; until then they are read from the tail."""
        if appended.exception() is None:
            self._written = max(self._written, appended.result().next_offset)

    def read(self, places: Places) -> Found:
        """Return the records at some places, which rise."""
        split = int(np.searchsorted(places, self._tail.first))
        recent = self._tail.read(places[split:])
        if not split:
            return recent
        old = self._read_journal(places[:split])
        if split == len(places):
            return old
        return Found(old.keys + recent.keys, old.values + recent.values, old.headers + recent.headers)

    def _read_journal(self, places: Places) -> Found:
        lost = self._next_lost(int(places[0]))
        if lost is None or lost.first > int(places[-1]):
            return self._read_whole(places)
        split = int(np.searchsorted(places, lost.first))
        if not split:  # it is lost itself, and the journal raises
            return self._read_whole(places[:1])
        before, after = self._read_whole(places[:split]), self._read_journal(places[split:])
        return Found(before.keys + after.keys, before.values + after.values, before.headers + after.headers)

    def _next_lost(self, place: int) -> LostPlaces | None:
        """Return the first lost places that a place is in, or before."""
        return next((lost for lost in self._lost if lost.end > place), None)

    def _read_whole(self, places: Places) -> Found:
        """Read places between which nothing is lost."""
        count = len(places)
        if count >= AHEAD_MIN and int(places[-1]) - int(places[0]) < AHEAD_DENSITY * count:
            return self._read_along(places)
        found = Found([], [], [])
        at = 0
        while at < count:
            if at + 1 == count or int(places[at + 1]) - int(places[at]) > GAP_MAX:
                record = self._journal.fetch(int(places[at]), visibility=WRITTEN)
                found.keys.append(record.key or b"")
                found.values.append(record.value)
                found.headers.append(record.headers or b"")
                at += 1
                continue
            at = self._scan(places, at, *found)
        return found

    def _read_along(self, places: Places) -> Found:
        """Read many places that lie close together, and ahead of a sequential reader."""
        start, stop = int(places[0]), int(places[-1]) + 1
        ahead = next((one for one in self._ahead if one.covers(start)), None)
        if ahead is None:
            ahead = _Ahead(start)
            del self._ahead[: -AHEAD_READERS + 1]
        else:
            self._ahead = [one for one in self._ahead if one is not ahead]
            ahead.forget_below(start)
            if stop > ahead.entries.end:
                ahead.records = min(self._ahead_max(), max(stop - start, 2 * ahead.records))
        end = ahead.entries.end
        if stop > end:
            lost = self._next_lost(start)
            limit = self._tail.first if lost is None else min(self._tail.first, lost.first)
            for batch in self._journal.scan(end, stop=min(stop + ahead.records, limit), visibility=WRITTEN):
                ahead.add(batch)
        if stop < self._tail.first:  # the records after it are in memory anyway
            self._ahead.append(ahead)
        return ahead.entries.read(places)

    def _ahead_max(self) -> int:
        """Return how many records may be read ahead."""
        mean = self.stored_bytes // max(1, self._next - self.first_place)
        return min(AHEAD_MAX, AHEAD_BYTES_MAX // (mean + RECORD_COST))

    def _scan(self, places: Places, at: int, keys: list[bytes], values: list[bytes], headers: list[bytes]) -> int:
        """Read from one place until the next is far off; return the number of places read so far."""
        gaps = np.flatnonzero(np.diff(places[at:]) > GAP_MAX)
        stop = at + int(gaps[0]) + 1 if len(gaps) else len(places)
        last = int(places[stop - 1])
        for batch in self._journal.scan(int(places[at]), stop=last + 1, visibility=WRITTEN):
            end = at + int(np.searchsorted(places[at:stop], batch.next_offset))
            _take(batch, places[at:end] - batch.base_offset, keys, values, headers)
            at = end
        return at

    @property
    def lost(self) -> list[LostPlaces]:
        """The lost places, in order."""
        return [lost for lost in self._lost if lost.end > self.first_place]

    def scan(self, start: int, stop: int | None = None) -> "Iterator[Batch | LostPlaces]":
        """Yield every batch between two places, and the lost places between them; replay reads this."""
        stop = self._journal.next_offset if stop is None else stop
        for lost in self._lost:
            if start >= stop or lost.first >= stop:
                break
            if lost.end > start:
                if start < lost.first:
                    yield from self._journal.scan(start, stop=lost.first, visibility=WRITTEN)
                yield lost
                start = lost.end
        if start < stop:
            yield from self._journal.scan(start, stop=stop, visibility=WRITTEN)

    def oldest_end(self) -> int | None:
        """Return the place up to which `remove_below` could remove the oldest part, None if it is the only one."""
        return self._journal.oldest_segment_end

    def remove_below(self, place: int) -> None:
        """Remove whole parts whose records are all below a place."""
        self._ahead = []  # not emptied in place: this is not the thread that reads
        self._journal.remove_below(place)

    def sync(self) -> None:
        """Return when everything is on stable storage."""
        self._journal.sync()

    def retire(self) -> None:
        """Leave the journal to another object that opens it; its records can be read here until `close`."""
        self._journal.retire()

    def close(self) -> None:
        """Finish appends under way, and release everything."""
        self._journal.close()


def _take(batch: Batch, wanted: Places, keys: list[bytes], values: list[bytes], headers: list[bytes]) -> None:
    count = len(wanted)
    if not count:
        return
    if count < len(batch):
        first, last = int(wanted[0]), int(wanted[-1])
        batch = batch.clip(batch.base_offset + first, batch.base_offset + last + 1)
        wanted = wanted - first
    found_keys, found_values, found_headers = batch.keys() or [], batch.values(), batch.headers()
    if count == len(batch):
        keys += found_keys
        values += found_values
        headers += found_headers if found_headers is not None else [b""] * count
        return
    numbers = wanted.tolist()
    keys += [found_keys[number] for number in numbers]
    values += [found_values[number] for number in numbers]
    headers += [b""] * count if found_headers is None else [found_headers[number] for number in numbers]


class MemoryLog:
    """Records in memory, for streams with memory storage; gone with the process."""

    def __init__(self) -> None:
        self._entries = Entries(0)
        self._closed = False
        self.stored_bytes = 0

    @property
    def first_place(self) -> int:
        """The lowest place that can be read."""
        return self._entries.first

    @property
    def next_place(self) -> int:
        """The place that the next record will have."""
        return self._entries.end

    def append(self, entry: Entry) -> Ticket:
        """Add records at `next_place`; raises and adds nothing where that is not possible."""
        if self._closed:
            raise Closed("stream")
        # Payloads may be views that hold a whole read buffer, so they are copied.
        kept = Entry(entry.keys, [bytes(value) for value in entry.values], entry.headers, [], entry.size)
        self._entries.add(kept)
        self.stored_bytes += entry.size + RECORD_OVERHEAD * len(entry)
        return DONE

    def read(self, places: Places) -> Found:
        """Return the records at some places, which rise."""
        return self._entries.read(places)

    def oldest_end(self) -> int | None:
        """Return the place up to which `remove_below` could remove the oldest part, None if it is the only one."""
        if len(self._entries) < 2:  # noqa: PLR2004 - the newest entry stays
            return None
        return self._entries.end_of(MiB)

    def remove_below(self, place: int) -> None:
        """Remove whole parts whose records are all below a place."""
        entries = self._entries
        while len(entries) and entries.first + len(entries.oldest()) <= place:
            entry = entries.oldest()
            self.stored_bytes -= entry.size + RECORD_OVERHEAD * len(entry)
            entries.drop_oldest()

    def close(self) -> None:
        """Let go of everything."""
        self._closed = True
