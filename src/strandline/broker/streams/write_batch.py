"""One change of a stream: the records to append, and the result for publisher and consumers.

Invariants: records are in the order of the changes to the state, so a replay makes the same changes. One change is one
append, so a crash keeps all of it or nothing.
"""

from dataclasses import dataclass, field

import numpy as np

from strandline.broker.api.config import Storage
from strandline.broker.streams.admission import Draft
from strandline.broker.streams.arrays import Ids, Times, Words
from strandline.broker.streams.entries import Entry
from strandline.broker.streams.records import Control, Facts, Gone, KnownId, Placed, Sequence, format_control
from strandline.broker.streams.sizes import FILE_OVERHEAD, HEADER_OVERHEAD, MEMORY_OVERHEAD
from strandline.broker.streams.state import FEW, RemovalBatch, Removed, State
from strandline.broker.streams.storage import DONE, Ticket

ANCHOR_MESSAGES, ANCHOR_BYTES = 4_096, 1 << 20
"""How often the log has a record with the next sequence, so that reading can begin in its middle."""


@dataclass(slots=True)
class PublishBatch:
    """Messages to store, in columns; `headers` is None if no message has any, otherwise empty for messages without."""

    subjects: list[bytes]
    payloads: list[bytes]
    headers: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.subjects)


@dataclass(frozen=True, slots=True)
class Republish:
    """A message to be published again."""

    subject: bytes
    headers: bytes
    payload: bytes


@dataclass(slots=True)
class Published:
    """The result of a batch.

    `sequences` has one for each row, 0 if nothing was stored for it. `answers` has the rows whose answer is not the
    plain one (`{"stream":"S","seq":N}`): errors, duplicates, counters, batches; empty for a staged message. `stored`
    and `subjects` are the messages that it added to the stream, `removed` those that it removed.
    """

    time_ns: int
    sequences: Words
    answers: dict[int, bytes]
    stored: Words
    subjects: Ids
    removed: Removed
    republish: list[Republish] = field(default_factory=list)
    ticket: Ticket = DONE


class Anchor:
    """Counts messages and bytes since the last record with the next sequence."""

    def __init__(self) -> None:
        self.messages = ANCHOR_MESSAGES
        self.bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether it is time to say so again."""
        return self.messages >= ANCHOR_MESSAGES or self.bytes >= ANCHOR_BYTES

    def note(self, messages: int, size: int) -> None:
        """Count appended messages."""
        self.messages += messages
        self.bytes += size

    def reset(self) -> None:
        """Restart the count."""
        self.messages = self.bytes = 0


class WriteBatch:
    """Gathers the records of one change, and applies them to the state."""

    def __init__(self, state: State, place: int, anchor: Anchor) -> None:
        self.state = state
        self.removals = RemovalBatch()
        self.time_ns = state.now_ns
        self.republish: list[Republish] = []
        self._base = place
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._headers: list[bytes] | None = None
        self._size = 0
        self._stored: list[Words] = []
        self._subjects: list[Ids] = []
        self._anchor = anchor
        self._overhead = FILE_OVERHEAD if state.config.storage is Storage.FILE else MEMORY_OVERHEAD
        self._header_overhead = HEADER_OVERHEAD if state.config.storage is Storage.FILE else 0
        self._is_file = state.config.storage is Storage.FILE
        self._times: dict[int, Times] = {}

    @property
    def place(self) -> int:
        """Where the next record will be."""
        return self._base + len(self._keys)

    def control(self, control: Control) -> None:
        """Add a control record."""
        if not self._is_file:
            return
        value = format_control(control)
        self._add(b"", value, b"")
        self._size += len(value)

    def _add(self, key: bytes, value: bytes, headers: bytes) -> None:
        if headers and self._headers is None:
            self._headers = [b""] * len(self._keys)
        self._keys.append(key)
        self._values.append(value)
        if self._headers is not None:
            self._headers.append(headers)

    def anchor(self) -> None:
        """Say which sequence comes next."""
        self.control(Sequence(self.state.index.last_seq + 1))
        self._anchor.reset()

    def add_plain(self, subjects: list[bytes], payloads: list[bytes], headers: list[bytes] | None) -> int:
        """Store messages that have no headers of ours; return the first sequence, the others follow it."""
        if self._anchor.is_due:
            self.anchor()
        state, count = self.state, len(subjects)
        if count <= FEW:
            return self._add_few(subjects, payloads, headers)
        numbers = np.array(state.index.subjects.all_numbers(subjects), np.uint32)
        sizes = np.array(list(map(len, payloads)), np.uint32)
        sizes += state.index.subjects.length[numbers]
        sizes += np.uint32(self._overhead)
        if headers is not None:
            lengths = np.array(list(map(len, headers)), np.uint32)
            sizes += lengths + np.where(lengths > 0, np.uint32(self._header_overhead), np.uint32(0))
        first = state.append(numbers, sizes, self.place, self.removals)
        size = int(sizes.sum(dtype=np.int64))
        self._extend(subjects, payloads, headers, size)
        self._stored.append(np.arange(first, first + count, dtype=np.uint64))
        self._subjects.append(numbers)
        return first

    def _add_few(self, subjects: list[bytes], payloads: list[bytes], headers: list[bytes] | None) -> int:
        state, count = self.state, len(subjects)
        numbers = state.index.subjects.all_numbers(subjects)
        first = state.index.last_seq + 1
        place, total = self.place, 0
        for at, number in enumerate(numbers):
            size = self._overhead + len(subjects[at]) + len(payloads[at])
            if headers is not None and headers[at]:
                size += self._header_overhead + len(headers[at])
            state.append_one(number, size, place + at, self.removals)
            total += size
        self._extend(subjects, payloads, headers, total)
        self._stored.append(np.arange(first, first + count, dtype=np.uint64))
        self._subjects.append(np.array(numbers, np.uint32))
        return first

    def _extend(self, subjects: list[bytes], payloads: list[bytes], headers: list[bytes] | None, size: int) -> None:
        if headers is not None and self._headers is None:
            self._headers = [b""] * len(self._keys)
        self._keys += subjects
        self._values += payloads
        if self._headers is not None:
            self._headers += headers if headers is not None else [b""] * len(subjects)
        self._size += size
        self._anchor.note(len(subjects), size)

    def add_draft(self, draft: Draft) -> int:
        """Store one message with the effect of its headers; return its sequence."""
        if self._anchor.is_due:
            self.anchor()
        state = self.state
        number = state.index.subjects.number(draft.subject)
        size = self._overhead + len(draft.subject) + len(draft.payload)
        if draft.headers:
            size += self._header_overhead + len(draft.headers)
        sequence = state.append_special(
            number,
            size,
            self.place,
            self.removals,
            identifier=draft.identifier,
            rollup=draft.rollup,
            ttl_s=draft.ttl_s,
        )
        self._add(draft.subject, draft.payload, draft.headers)
        self._size += size
        self._anchor.note(1, size)
        self._stored.append(np.array([sequence], np.uint64))
        self._subjects.append(np.array([number], np.uint32))
        return sequence

    def add_placed(self, sequences: Words, times: Times, batch: PublishBatch, dues: Times | None = None) -> None:
        """Store messages under sequences and times of their own, which rise; `dues` is when they go by themselves."""
        if not len(sequences):
            return
        self.anchor()
        self.control(Placed(sequences, moved=False, dues=dues))
        state, count = self.state, len(batch)
        self._times[len(self._keys)] = times
        numbers = np.array(state.index.subjects.all_numbers(batch.subjects), np.uint32)
        sizes = np.array(list(map(len, batch.payloads)), np.uint32) + state.index.subjects.length[numbers]
        sizes += np.uint32(self._overhead)
        if batch.headers is not None:
            lengths = np.array(list(map(len, batch.headers)), np.uint32)
            sizes += lengths + np.where(lengths > 0, np.uint32(self._header_overhead), np.uint32(0))
        places = np.arange(self.place, self.place + count, dtype=np.int64)
        state.place(sequences, places, numbers, sizes, times, self.removals)
        self._extend(batch.subjects, batch.payloads, batch.headers, int(sizes.sum(dtype=np.int64)))
        if dues is not None:
            state.expiry.add_dues(sequences, dues)
        self._stored.append(sequences)
        self._subjects.append(numbers)

    def skip(self, draft: Draft) -> int:
        """Use up a sequence for a message without interest; return it."""
        state = self.state
        self.anchor()
        state.skip(state.index.last_seq + 1)
        sequence = state.index.last_seq
        state.last_id = draft.identifier
        state.note(sequence, self.time_ns, draft.identifier, 0)
        known = (KnownId(draft.identifier, sequence, self.time_ns),) if draft.identifier else ()
        self.control(Facts(sequence, self.time_ns, draft.identifier, known))
        return sequence

    def read_back(self, place: int) -> tuple[bytes, bytes] | None:
        """Return headers and payload of a record of this change, None if it is in the log already."""
        at = place - self._base
        if at < 0:
            return None
        return (self._headers[at] if self._headers is not None else b""), bytes(self._values[at])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to append."""
        return not self._keys

    def tell_moved(self) -> None:
        """Say which messages that once were moved have gone: their original place may not be there to follow from."""
        moved = self.removals.moved()
        if len(moved):
            self.control(Gone(self.time_ns, self.state.index.last_seq, moved, by_limits=True))

    def entry(self) -> Entry:
        """Return the records to be appended."""
        count = len(self._keys)
        if count <= FEW and not self._times:
            return Entry(self._keys, self._values, self._headers, [self.time_ns] * count, self._size)
        times = np.full(count, self.time_ns, np.int64)
        for at, own in self._times.items():
            times[at : at + len(own)] = own
        return Entry(self._keys, self._values, self._headers, times, self._size)

    def published(self, sequences: Words, answers: dict[int, bytes]) -> Published:
        """Return the result of a batch, without its ticket."""
        stored = self._stored
        return Published(
            self.time_ns,
            sequences,
            answers,
            stored[0] if len(stored) == 1 else np.concatenate(stored) if stored else np.zeros(0, np.uint64),
            self._subjects[0]
            if len(stored) == 1
            else np.concatenate(self._subjects)
            if stored
            else np.zeros(0, np.uint32),
            self.removals.removed(),
            self.republish,
        )
