"""From a batch of messages to one change: plain messages many at a time, messages with headers of ours one by one.

Invariants: rows are decided in order, each sees the effect of the rows before it; a refused row has no effect. Nothing
is written here: the caller appends what `WriteBatch` gathered.
"""

from collections.abc import Callable

import numpy as np

from strandline.broker.api.codes import ACCOUNT_RESOURCES_EXCEEDED, INSUFFICIENT_RESOURCES, ApiError
from strandline.broker.api.config import Retention, StreamConfig
from strandline.broker.api.responses import PubAck, format_duplicate
from strandline.broker.api.schema import to_json
from strandline.broker.api.subject_mapping import SubjectMapping
from strandline.broker.api.times import format_time
from strandline.broker.api.trace_headers import TRACE_DEST, parse_trace, without_trace
from strandline.broker.streams import headers as names
from strandline.broker.streams.admission import HEADERS_MAX, BatchSoFar, Checker, Draft, Duplicate
from strandline.broker.streams.arrays import Times, Words
from strandline.broker.streams.atomic_batches import AtomicBatches
from strandline.broker.streams.headers import NOTHING, special_headers, with_headers
from strandline.broker.streams.limits import never_refuses
from strandline.broker.streams.scheduler import Scheduler
from strandline.broker.streams.state import State
from strandline.broker.streams.subjects import Filter
from strandline.broker.streams.write_batch import PublishBatch, Republish, WriteBatch

OVERHEAD, OVERHEAD_MAX = 16, 512
"""Bytes of a message beside its subject, headers and payload: the minimum, and with the longest usual subject."""
ReadPlace = Callable[[int], tuple[bytes, bytes]]


class Publisher:
    """Decides about messages for one stream."""

    def __init__(self, state: State, read_place: ReadPlace) -> None:
        self._state = state
        self._read_place = read_place
        self._atomic = AtomicBatches()
        self.scheduler = Scheduler()
        self._interest: tuple[Filter, ...] | None = None
        self._room: Callable[[], int] | None = None
        self._server_room: Callable[[int], int] | None = None
        self._mapping: SubjectMapping | None = None
        self._republish: SubjectMapping | None = None
        self._own_row = False
        self.configure(state.config)

    def configure(self, config: StreamConfig) -> None:
        """Follow a change of the configuration."""
        transform, again = config.subject_transform, config.republish
        self._mapping = SubjectMapping(transform.src, transform.dest) if transform and transform.dest else None
        self._republish = SubjectMapping(again.src, again.dest or ">") if again else None
        if not config.allow_atomic:
            self._atomic.clear()
        self._settle()

    def set_interest(self, filters: tuple[Filter, ...] | None) -> None:
        """Set the interest of consumers; None keeps every message."""
        self._interest = filters
        self._settle()

    def set_room(self, room: Callable[[], int]) -> None:
        """Set the function that returns the room of the account."""
        self._room = room

    def set_server_room(self, room: Callable[[int], int]) -> None:
        """Set the function that returns the room of the server; its argument is the size to store."""
        self._server_room = room

    def _settle(self) -> None:
        config = self._state.config
        self._own_row = (
            config.sealed
            or config.allow_msg_counter
            or self._republish is not None
            or (config.retention is Retention.INTEREST and self._interest is not None)
        )

    @property
    def atomic(self) -> AtomicBatches:
        """The batches that are put aside."""
        return self._atomic

    def publish(self, write_batch: WriteBatch, batch: PublishBatch) -> tuple[Words, dict[int, bytes]]:
        """Take messages in; return each row's sequence, 0 where it has none, and the answers that are not plain."""
        if self._mapping is not None:
            batch = PublishBatch([self.mapped(subject) for subject in batch.subjects], batch.payloads, batch.headers)
        own = self._rows_of_their_own(batch)
        if not own:
            first = write_batch.add_plain(batch.subjects, batch.payloads, batch.headers)
            return np.arange(first, first + len(batch), dtype=np.uint64), {}
        run = _Run(self._state, write_batch, batch)
        for at in own:
            identifier = b"" if isinstance(own, range) else _only_identifier(batch, at)
            if identifier and run.takes(at, identifier):
                continue
            run.end(at)
            try:
                run.sequences[at] = self._one(write_batch, batch, at, run.answers)
            except ApiError as error:
                run.answers[at] = to_json(PubAck(error=error, stream=self._state.config.name))
        run.end(len(batch))
        return run.sequences, run.answers

    @property
    def is_plain(self) -> bool:
        """Whether messages without headers of ours can be taken many at a time."""
        return self._mapping is None and not self._own_row

    def mapped(self, subject: bytes) -> bytes:
        """Return a subject after the stream's own transform."""
        mapping = self._mapping
        found = mapping.apply(subject.decode(errors="surrogateescape")) if mapping is not None else None
        return subject if found is None else found.encode(errors="surrogateescape")

    def _rows_of_their_own(self, batch: PublishBatch) -> list[int] | range:
        """Return the rows that cannot be taken together with their neighbours."""
        config, count = self._state.config, len(batch)
        if self._own_row:
            return range(count)
        limit = config.max_msg_size
        if config.discard.value == "new" or limit > 0 or self._room is not None or self._server_room is not None:
            sizes = list(map(len, batch.payloads))
            if batch.headers is not None:
                sizes = [size + len(block) for size, block in zip(sizes, batch.headers, strict=True)]
            if not never_refuses(self._state.index, config, count, sum(sizes) + sum(map(len, batch.subjects))):
                return range(count)
            if 0 < limit < max(sizes, default=0) or not self._is_spacious(sum(sizes) + OVERHEAD_MAX * count):
                return range(count)
        if batch.headers is None:
            return []
        return [at for at, block in enumerate(batch.headers) if names.MARK in block or len(block) > HEADERS_MAX]

    def _is_spacious(self, most: int) -> bool:
        """Tell whether account and server have room for a number of bytes."""
        if self._room is not None and most > self._room():
            return False
        return self._server_room is None or most <= self._server_room(most)

    def _one(self, write_batch: WriteBatch, batch: PublishBatch, at: int, answers: dict[int, bytes]) -> int:
        """Store one message; return its sequence, or 0 if it has none of its own."""
        block = bytes(batch.headers[at]) if batch.headers is not None else b""
        draft = Draft(
            batch.subjects[at], block, bytes(batch.payloads[at]), special_headers(block) if block else NOTHING
        )
        checker = self._checker(write_batch)
        checker.check_size(draft)
        size = len(draft.subject) + len(block) + len(draft.payload)
        if self._server_room is not None and self._server_room(size + OVERHEAD_MAX) < 0:
            raise INSUFFICIENT_RESOURCES.error()
        if self._room is not None and size + OVERHEAD > self._room():
            raise ACCOUNT_RESOURCES_EXCEEDED.error()
        trace = parse_trace(draft.headers) if TRACE_DEST in draft.special else None
        is_only_traced = trace is not None and trace.only
        if draft.special.get(names.BATCH_ID) and not is_only_traced:
            return self._staged(write_batch, draft, at, answers)
        found = checker.check(draft, write_batch.time_ns)
        if isinstance(found, Duplicate):
            answers[at] = format_duplicate(self._state.config.name, found.sequence)
            return 0
        if is_only_traced:
            return 0
        if trace is not None and trace.dest:
            draft.headers = without_trace(draft.headers)
        sequence = self.store(write_batch, draft)
        if draft.counter:
            answers[at] = to_json(PubAck(stream=self._state.config.name, seq=sequence, val=draft.counter))
        return sequence

    def _checker(self, write_batch: WriteBatch) -> Checker:
        state = self._state

        def read_last(number: int) -> tuple[bytes, bytes]:
            place = state.index.rows.place_at[state.index.row_of(state.index.subjects.last_at[number])]
            return write_batch.read_back(place) or self._read_place(place)

        return Checker(state.config, state.index, state.dedupe, read_last, state.last_id)

    def store(self, write_batch: WriteBatch, draft: Draft) -> int:
        """Store a message that was checked, if a consumer wants it; return its sequence."""
        if not self._is_wanted(draft.subject):
            return write_batch.skip(draft)
        before = self._last_before(draft)
        sequence = write_batch.add_draft(draft)
        if draft.special and self._state.config.allow_msg_schedules:
            self.scheduler.note(draft.subject, sequence, draft.special, write_batch.time_ns)
        if self._republish is not None:
            self._publish_again(write_batch, draft, sequence, before)
        return sequence

    def note_schedules(self, sequences: Words, times: Times, batch: PublishBatch) -> None:
        """Learn which of some messages that were stored elsewhere are schedules."""
        if not self._state.config.allow_msg_schedules or batch.headers is None:
            return
        for at, block in enumerate(batch.headers):
            if names.SCHEDULE in block:
                special = special_headers(block)
                self.scheduler.note(batch.subjects[at], int(sequences[at]), special, int(times[at]))

    def fire(self, write_batch: WriteBatch) -> None:
        """Publish the messages of schedules that are due."""
        index = self._state.index

        def read(sequence: int) -> tuple[bytes, bytes]:
            place = index.rows.place_at[index.row_of(sequence)]
            return write_batch.read_back(place) or self._read_place(place)

        def publish(draft: Draft) -> None:
            self._checker(write_batch).check(draft, write_batch.time_ns)
            self.store(write_batch, draft)

        self.scheduler.fire(write_batch, read, publish)

    def _is_wanted(self, subject: bytes) -> bool:
        if self._interest is None or self._state.config.retention is not Retention.INTEREST:
            return True
        return any(matching.matches_subject(subject) for matching in self._interest)

    def _last_before(self, draft: Draft) -> int:
        subjects = self._state.index.subjects
        number = subjects.find(draft.subject)
        return 0 if number is None else int(subjects.last_at[number])

    def _publish_again(self, write_batch: WriteBatch, draft: Draft, sequence: int, before: int) -> None:
        again, mapping = self._state.config.republish, self._republish
        target = mapping.apply(draft.subject.decode(errors="surrogateescape")) if mapping is not None else None
        if target is None or again is None:
            return
        pairs = [
            (b"Nats-Stream", self._state.config.name.encode()),
            (b"Nats-Subject", draft.subject),
            (b"Nats-Sequence", b"%d" % sequence),
            (b"Nats-Time-Stamp", format_time(write_batch.time_ns).encode()),
            (b"Nats-Last-Sequence", b"%d" % before),
        ]
        if again.headers_only:
            pairs.append((b"Nats-Msg-Size", b"%d" % len(draft.payload)))
        payload = b"" if again.headers_only else draft.payload
        subject = target.encode(errors="surrogateescape")
        write_batch.republish.append(Republish(subject, with_headers(draft.headers, pairs), payload))

    def _staged(self, write_batch: WriteBatch, draft: Draft, at: int, answers: dict[int, bytes]) -> int:
        """Put a message of an atomic batch aside, or store the batch."""
        drafts = self._atomic.stage(draft, self._state.config, write_batch.time_ns)
        if drafts is None:
            answers[at] = b""
            return 0
        checker, so_far = self._checker(write_batch), BatchSoFar()
        for part in drafts:
            checker.check(part, write_batch.time_ns, so_far)
            so_far.add(part)
        sequence = 0
        for part in drafts:
            sequence = self.store(write_batch, part)
        identifier = draft.special[names.BATCH_ID].decode(errors="replace")
        answers[at] = to_json(PubAck(stream=self._state.config.name, seq=sequence, batch=identifier, count=len(drafts)))
        return sequence


class _Run:
    """Rows that are stored together: plain ones, and those whose only header of ours is a new identifier."""

    def __init__(self, state: State, write_batch: WriteBatch, batch: PublishBatch) -> None:
        self.sequences: Words = np.zeros(len(batch), np.uint64)
        self.answers: dict[int, bytes] = {}
        self._state = state
        self._write_batch = write_batch
        self._batch = batch
        self._start = 0
        self._identifiers: dict[bytes, int] = {}

    def takes(self, at: int, identifier: bytes) -> bool:
        """Tell whether a row can be part of the run: its identifier is not in the duplicate window."""
        if identifier in self._identifiers:
            return False
        window = self._state.config.duplicate_window
        if self._state.dedupe.find(identifier, self._write_batch.time_ns, window) is not None:
            return False
        self._identifiers[identifier] = at
        return True

    def end(self, stop: int) -> None:
        """Store the rows before one; rows that were skipped before are left out."""
        start, self._start = self._start, stop + 1
        if start >= stop:
            return
        batch, state = self._batch, self._state
        headers = batch.headers[start:stop] if batch.headers is not None else None
        first = self._write_batch.add_plain(batch.subjects[start:stop], batch.payloads[start:stop], headers)
        self.sequences[start:stop] = np.arange(first, first + stop - start, dtype=np.uint64)
        for identifier, at in self._identifiers.items():
            state.dedupe.add(identifier, first + at - start, self._write_batch.time_ns)
            if at == stop - 1:
                state.last_id = identifier
        self._identifiers.clear()


def _only_identifier(batch: PublishBatch, at: int) -> bytes:
    """Return a row's identifier if that is its only header of ours, else nothing."""
    block = batch.headers[at] if batch.headers is not None else b""
    if len(block) > HEADERS_MAX or block.count(names.MARK) != 1:
        return b""
    begin = block.find(_ID_LINE)
    return bytes(block[begin + len(_ID_LINE) : block.find(b"\r\n", begin + 2)]).strip() if begin >= 0 else b""


_ID_LINE = b"\r\n" + names.MSG_ID + b":"
