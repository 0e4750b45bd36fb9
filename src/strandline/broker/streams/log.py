"""Where a stream's records lie: a journal, or memory, behind one small contract.

Invariants: places are consecutive from `first_place` to `next_place`; a record is readable from the moment `append`
returns, whether or not it is on disk yet; the ticket of an append is done when its records are as durable as asked, and
fails if they may not be. Tickets are done in the order of the appends.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from strandline.broker.streams.arrays import Places, Times
from strandline.clock import Clock
from strandline.errors import Closed
from strandline.files import Disk
from strandline.journal import SYNCED, WRITTEN, Appended, Batch, Durability, Journal, JournalConfig

MiB = 1 << 20
SEGMENT_BYTES = 32 * MiB
TAIL_BYTES_MAX = 16 * MiB
RECORD_OVERHEAD = 24
"""What a record takes beside its bytes: three offsets and a time."""
GAP_MAX = 2_048
"""Records not asked for that are read along rather than looked for anew."""


class Ticket(Future[None]):
    """When an append is as durable as asked: done, or failed."""


def done_ticket() -> Ticket:
    """Return a ticket that is done."""
    ticket = Ticket()
    ticket.set_result(None)
    return ticket


DONE = done_ticket()


@dataclass(slots=True)
class Entry:
    """The records of one append, in columns; `headers` is None where no record has any."""

    keys: list[bytes]
    values: list[bytes]
    headers: list[bytes] | None
    times: list[int] | Times
    size: int

    def __len__(self) -> int:
        return len(self.keys)


class Found(NamedTuple):
    """Records that were read, in columns."""

    keys: list[bytes]
    values: list[bytes]
    headers: list[bytes]


class MessageLog(Protocol):
    """What a stream needs of the place where its records lie."""

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
        """About how many bytes the records take, dead ones included."""
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
        """Let go of whole parts whose records are all below a place."""
        ...

    def close(self) -> None:
        """Finish what is under way, and let go of everything."""
        ...


class _Tail:
    """The newest entries, kept for reading: those not written yet, and as many others as fit."""

    def __init__(self, first: int) -> None:
        self._bases: deque[int] = deque()
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self.first = first

    def add(self, base: int, entry: Entry) -> None:
        self._bases.append(base)
        self._entries.append(entry)
        self._bytes += entry.size

    def trim(self, bytes_max: int, written: int) -> None:
        while self._entries and self._bytes > bytes_max and self._bases[0] + len(self._entries[0]) <= written:
            self._bytes -= self._entries.popleft().size
            self._bases.popleft()
        self.first = self._bases[0] if self._bases else written

    def read(self, places: list[int]) -> Found:
        bases, entries = list(self._bases), self._entries
        keys, values, headers = [], [], []
        number = -1
        begin = end = 0
        entry: Entry | None = None
        for place in places:
            if not begin <= place < end or entry is None:
                number = bisect_right(bases, place) - 1
                entry, begin = entries[number], bases[number]
                end = begin + len(entry)
            at = place - begin
            keys.append(entry.keys[at])
            values.append(bytes(entry.values[at]))
            headers.append(bytes(entry.headers[at]) if entry.headers is not None else b"")
        return Found(keys, values, headers)


class JournalLog:
    """Records in a journal."""

    def __init__(self, journal: Journal, durability: Durability) -> None:
        self._journal = journal
        self._durability = durability
        self._next = journal.next_offset
        self._tail = _Tail(self._next)
        self._written = self._next

    @classmethod
    def open(
        cls, folder: Path, disk: Disk, clock: Clock, durability: Durability, executor: Executor | None = None
    ) -> "JournalLog":
        """Open the journal in a folder, making it where there is none."""
        config = JournalConfig(segment_bytes_max=SEGMENT_BYTES)
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
            ticket = Ticket()
            soon = self._journal.append_soon(
                entry.values, keys=entry.keys, headers=entry.headers, timestamps=entry.times, durability=SYNCED
            )
            soon.add_done_callback(self._settler(ticket, base + len(entry)))
        self._next = base + len(entry)
        self._tail.add(base, entry)
        self._tail.trim(TAIL_BYTES_MAX, self._written)
        return ticket

    def _settler(self, ticket: Ticket, end: int) -> Callable[[Future[Appended]], None]:
        def settle(future: Future[Appended]) -> None:
            error = future.exception()
            if error is not None:
                ticket.set_exception(error)
                return
            self._written = max(self._written, end)
            ticket.set_result(None)

        return settle

    def read(self, places: Places) -> Found:
        """Return the records at some places, which rise."""
        split = int(np.searchsorted(places, self._tail.first))
        recent = self._tail.read(places[split:].tolist())
        if not split:
            return recent
        old = self._read_journal(places[:split])
        return Found(old.keys + recent.keys, old.values + recent.values, old.headers + recent.headers)

    def _read_journal(self, places: Places) -> Found:
        keys: list[bytes] = []
        values: list[bytes] = []
        headers: list[bytes] = []
        at = 0
        while at < len(places):
            if at + 1 == len(places) or int(places[at + 1]) - int(places[at]) > GAP_MAX:
                record = self._journal.fetch(int(places[at]), visibility=WRITTEN)
                keys.append(record.key or b"")
                values.append(record.value)
                headers.append(record.headers or b"")
                at += 1
                continue
            at = self._scan(places, at, keys, values, headers)
        return Found(keys, values, headers)

    def _scan(self, places: Places, at: int, keys: list[bytes], values: list[bytes], headers: list[bytes]) -> int:
        """Read on from one place until the next is far off; return how many places were read in all."""
        gaps = np.flatnonzero(np.diff(places[at:]) > GAP_MAX)
        stop = at + int(gaps[0]) + 1 if len(gaps) else len(places)
        last = int(places[stop - 1])
        for batch in self._journal.scan(int(places[at]), stop=last + 1, visibility=WRITTEN):
            end = at + int(np.searchsorted(places[at:stop], batch.next_offset))
            _take(batch, places[at:end] - batch.base_offset, keys, values, headers)
            at = end
        return at

    def scan(self, start: int) -> Iterator[Batch]:
        """Return every batch from a place on; what replay reads."""
        return self._journal.scan(start, visibility=WRITTEN)

    def oldest_end(self) -> int | None:
        """Return the place up to which `remove_below` could remove the oldest part, None if it is the only one."""
        return self._journal.oldest_segment_end

    def remove_below(self, place: int) -> None:
        """Let go of whole parts whose records are all below a place."""
        self._journal.remove_below(place)

    def sync(self) -> None:
        """Return when everything is on stable storage."""
        self._journal.sync()

    def close(self) -> None:
        """Finish what is under way, and let go of everything."""
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
        self._bases: list[int] = []
        self._entries: list[Entry] = []
        self._next = 0
        self._closed = False
        self.stored_bytes = 0

    @property
    def first_place(self) -> int:
        """The lowest place that can be read."""
        return self._bases[0] if self._bases else self._next

    @property
    def next_place(self) -> int:
        """The place that the next record will have."""
        return self._next

    def append(self, entry: Entry) -> Ticket:
        """Add records at `next_place`; raises and adds nothing where that is not possible."""
        if self._closed:
            raise Closed("stream")
        self._bases.append(self._next)
        # Payloads may be views that hold a whole read buffer, so they are copied.
        kept = Entry(entry.keys, [bytes(value) for value in entry.values], entry.headers, [], entry.size)
        self._entries.append(kept)
        self._next += len(entry)
        self.stored_bytes += entry.size + RECORD_OVERHEAD * len(entry)
        return DONE

    def read(self, places: Places) -> Found:
        """Return the records at some places, which rise."""
        keys, values, headers = [], [], []
        end = begin = 0
        entry = None
        for place in places.tolist():
            if entry is None or not begin <= place < end:
                number = bisect_right(self._bases, place) - 1
                entry, begin = self._entries[number], self._bases[number]
                end = begin + len(entry)
            keys.append(entry.keys[place - begin])
            values.append(entry.values[place - begin])
            headers.append(entry.headers[place - begin] if entry.headers is not None else b"")
        return Found(keys, values, headers)

    def oldest_end(self) -> int | None:
        """Return the place up to which `remove_below` could remove the oldest part, None if it is the only one."""
        if len(self._bases) < 2:  # noqa: PLR2004 - the newest entry stays
            return None
        reached = 0
        for base, entry in zip(self._bases[:-1], self._entries, strict=False):
            reached += entry.size
            if reached >= MiB:
                return base + len(entry)
        return self._bases[-1]

    def remove_below(self, place: int) -> None:
        """Let go of whole parts whose records are all below a place."""
        gone = 0
        while gone < len(self._bases) and self._bases[gone] + len(self._entries[gone]) <= place:
            entry = self._entries[gone]
            self.stored_bytes -= entry.size + RECORD_OVERHEAD * len(entry)
            gone += 1
        del self._bases[:gone], self._entries[:gone]

    def close(self) -> None:
        """Let go of everything."""
        self._closed = True
