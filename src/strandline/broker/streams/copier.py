"""Copies messages of another stream: a mirror keeps their sequences and times, a source does not.

Invariants: rows are copied in order and without a gap, up to the first for which the stream has no room; a row that was
handled before is skipped. The position of a source is in the same append as its messages, so that a crash keeps both or
neither; the position of a mirror is its own last sequence.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from strandline.broker.api import codes
from strandline.broker.api.codes import ApiError
from strandline.broker.streams import headers as names
from strandline.broker.streams.admission import Draft, lifted_ttl
from strandline.broker.streams.arrays import Flags, Times, Words
from strandline.broker.streams.counters import Sources, parse_counter, parse_sources, parse_value
from strandline.broker.streams.expiry import due_of
from strandline.broker.streams.headers import special_headers, with_headers
from strandline.broker.streams.limits import never_refuses, refusal
from strandline.broker.streams.publisher import Publisher
from strandline.broker.streams.records import Gone, Origins, Position
from strandline.broker.streams.sizes import stored_size
from strandline.broker.streams.source_header import positions_of
from strandline.broker.streams.state import State
from strandline.broker.streams.write_batch import PublishBatch, Published, WriteBatch

ReadLast = Callable[[int, WriteBatch], tuple[bytes, bytes]]
"""Return headers and payload of the last message of a subject, given by number."""


class Claim(Protocol):
    """A copy of a stream, which still needs some of its messages."""

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects that it takes; all of them if there are none."""

    def wants(self, sequences: Words) -> Flags:
        """Tell which messages of the stream it does not hold durably yet."""


@dataclass(slots=True)
class OriginBatch:
    """Messages to store, in columns, by the sequences of their origin, in ascending order.

    `name` is that of the source, empty for a mirror; `identity` distinguishes the origin from others of the same name.
    """

    sequences: Words
    times: Times
    subjects: list[bytes]
    headers: list[bytes]
    payloads: list[bytes]
    name: bytes = b""
    identity: bytes = b""

    def __len__(self) -> int:
        return len(self.subjects)


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a batch: the number of handled rows, and the reason why the next one was refused."""

    published: Published
    count: int
    refusal: ApiError | None = None


class Copier:
    """Copies messages of origins into one stream."""

    def __init__(self, state: State, publisher: Publisher, read_last: ReadLast) -> None:
        self._state = state
        self._publisher = publisher
        self._read_last = read_last

    def take(self, write_batch: WriteBatch, batch: OriginBatch) -> tuple[int, ApiError | None]:
        """Copy rows; return the number of handled rows, and the reason why the next one was refused."""
        start = int(np.searchsorted(batch.sequences, np.uint64(self._floor(batch)), side="right"))
        if start == len(batch):
            return start, None
        if self._state.config.sealed:
            return start, codes.STREAM_SEALED.error()
        if not batch.name:
            return self._mirror(write_batch, batch, start)
        stop, refused = self._source(write_batch, batch, start)
        if stop > start:
            position = Position(int(batch.sequences[stop - 1]), batch.identity)
            self._state.origins[batch.name] = position
            write_batch.control(Origins({batch.name: position}))
        return stop, refused

    def note(self, write_batch: WriteBatch, blocks: list[bytes]) -> None:
        """Record the positions of sources after messages were stored by other means, such as a restore."""
        positions = positions_of(blocks) if self._state.config.sources else {}
        if positions:
            self._state.origins.update(positions)
            write_batch.control(Origins(positions))

    def _floor(self, batch: OriginBatch) -> int:
        """Return the last handled sequence of the origin."""
        if not batch.name:
            return self._state.index.last_seq
        position = self._state.origins.get(batch.name, Position(0))
        return position.sequence if position.identity == batch.identity else 0

    # Mirrors.

    def _mirror(self, write_batch: WriteBatch, batch: OriginBatch, start: int) -> tuple[int, ApiError | None]:
        fits = self._surely_fits(batch, start)
        rollups = self._rollups(batch, start)
        ends: Iterable[int] = range(start + 1, len(batch) + 1)
        if fits:
            ends = sorted({*(at + 1 for at in rollups), len(batch)})
        for end in ends:
            refused = None if fits else self._refusal(batch, start)
            if refused is not None:
                return start, refused
            self._place(write_batch, batch, start, end)
            if end - 1 in rollups:
                self._roll_up(write_batch, batch, end - 1, rollups[end - 1])
            start = end
        return len(batch), None

    def _rollups(self, batch: OriginBatch, start: int) -> dict[int, bytes]:
        if not self._state.config.allow_rollup_hdrs:
            return {}
        found = [at for at in range(start, len(batch)) if names.ROLLUP in batch.headers[at]]
        return {at: special_headers(batch.headers[at]).get(names.ROLLUP, b"").lower() for at in found}

    def _place(self, write_batch: WriteBatch, batch: OriginBatch, start: int, end: int) -> None:
        part = slice(start, end)
        rows = PublishBatch(batch.subjects[part], batch.payloads[part], batch.headers[part])
        dues = self.dues(batch.times[part], batch.headers[part])
        write_batch.add_placed(batch.sequences[part], batch.times[part], rows, dues)

    def dues(self, times: Times, blocks: list[bytes]) -> Times | None:
        """Return when messages expire, -1 for never, 0 for no time of their own; None if no message has one."""
        if not self._state.config.allow_msg_ttl:
            return None
        dues = np.zeros(len(blocks), np.int64)
        for at, block in enumerate(blocks):
            ttl_s = self._ttl(special_headers(block)) if names.TTL in block else 0
            if ttl_s:
                dues[at] = ttl_s if ttl_s == names.NEVER else due_of(int(times[at]), ttl_s)
        return dues if dues.any() else None

    def _roll_up(self, write_batch: WriteBatch, batch: OriginBatch, at: int, rollup: bytes) -> None:
        """Remove all earlier messages; the log names them, because a replay does not look at a mirror's headers."""
        state, before = self._state, write_batch.removals.count
        number = state.index.subjects.number(batch.subjects[at])
        state.roll_up(number, int(batch.sequences[at]), rollup, write_batch.removals)
        if write_batch.removals.count > before:
            write_batch.control(Gone(write_batch.time_ns, state.index.last_seq, np.sort(write_batch.removals.last())))

    # Sources.

    def _source(self, write_batch: WriteBatch, batch: OriginBatch, start: int) -> tuple[int, ApiError | None]:
        own: Iterable[int] = range(start, len(batch))
        if self._publisher.is_plain and self._surely_fits(batch, start):
            # Each has one header of ours, with its source.
            own = [at for at in own if batch.headers[at].count(names.MARK) > 1]
        for at in own:
            self._plain(write_batch, batch, start, at)
            refused = self._one(write_batch, batch, at)
            if refused is not None:
                return at, refused
            start = at + 1
        self._plain(write_batch, batch, start, len(batch))
        return len(batch), None

    def _plain(self, write_batch: WriteBatch, batch: OriginBatch, start: int, stop: int) -> None:
        if start < stop:
            part = slice(start, stop)
            write_batch.add_plain(batch.subjects[part], batch.payloads[part], batch.headers[part])

    def _one(self, write_batch: WriteBatch, batch: OriginBatch, at: int) -> ApiError | None:
        """Copy one message with the effect of its headers; return the reason if it is refused."""
        state, config = self._state, self._state.config
        refused = self._refusal(batch, at)
        if refused is not None:
            return refused
        special = special_headers(batch.headers[at])
        identifier = special.get(names.MSG_ID, b"")
        if identifier and state.dedupe.find(identifier, write_batch.time_ns, config.duplicate_window) is not None:
            return None
        subject = self._publisher.mapped(batch.subjects[at])
        draft = Draft(subject, batch.headers[at], batch.payloads[at], special, identifier)
        draft.rollup = special.get(names.ROLLUP, b"").lower() if config.allow_rollup_hdrs else b""
        draft.ttl_s = self._ttl(special) if config.allow_msg_ttl else 0
        if config.allow_msg_counter and not self._count(write_batch, draft):
            return codes.MESSAGE_COUNTER_BROKEN.error()
        self._publisher.store(write_batch, draft)
        return None

    def _count(self, write_batch: WriteBatch, draft: Draft) -> bool:
        """Add the growth of this source to the sum of all sources; return whether everything could be read."""
        try:
            value = parse_counter(draft.payload)
            source, _, _, _, subject, *_ = draft.special[names.STREAM_SOURCE].decode(errors="replace").split(" ")
            total, sources = self._sum_before(write_batch, draft)
            known = parse_value(sources.get(source, {}).get(subject, "0"))
        except (ValueError, KeyError):
            return False
        sources.setdefault(source, {})[subject] = str(value)
        told = json.dumps(sources, sort_keys=True, separators=(",", ":")).encode()
        block = names.without_header(draft.headers, names.COUNTER_SOURCES)
        draft.headers = with_headers(block, [(names.COUNTER_SOURCES, told)])
        draft.counter = str(total + value - known)
        draft.payload = b'{"val":"%s"}' % draft.counter.encode()
        return True

    def _sum_before(self, write_batch: WriteBatch, draft: Draft) -> tuple[int, Sources]:
        subjects = self._state.index.subjects
        number = subjects.find(draft.subject)
        if number is None or not subjects.last_at[number]:
            return 0, {}
        headers, payload = self._read_last(number, write_batch)
        told = special_headers(headers).get(names.COUNTER_SOURCES, b"{}")
        return parse_counter(payload), parse_sources(told)

    # Both.

    def _ttl(self, special: names.Special) -> int:
        try:
            return lifted_ttl(self._state.config, names.parse_ttl(special.get(names.TTL, b"")))
        except ValueError:
            return 0

    def _surely_fits(self, batch: OriginBatch, start: int) -> bool:
        config = self._state.config
        if config.discard.value != "new" and config.max_msg_size < 0:
            return True
        rows = zip(batch.headers[start:], batch.payloads[start:], strict=True)
        sizes = [len(block) + len(payload) for block, payload in rows]
        if 0 <= config.max_msg_size < max(sizes):
            return False
        return never_refuses(self._state.index, config, len(sizes), sum(sizes) + sum(map(len, batch.subjects[start:])))

    def _refusal(self, batch: OriginBatch, at: int) -> ApiError | None:
        config, index = self._state.config, self._state.index
        size = len(batch.headers[at]) + len(batch.payloads[at])
        if 0 <= config.max_msg_size < size:
            return codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.error()
        stored = stored_size(config.storage, batch.subjects[at], batch.headers[at], batch.payloads[at])
        full = refusal(index, config, index.subjects.number(batch.subjects[at]), stored)
        return None if full is None else codes.STREAM_STORE_FAILED.with_text(err=full)


def part_of(batch: OriginBatch, start: int, stop: int | None = None) -> OriginBatch:
    """Return a range of rows."""
    part = slice(start, stop)
    return replace(
        batch,
        sequences=batch.sequences[part],
        times=batch.times[part],
        subjects=batch.subjects[part],
        headers=batch.headers[part],
        payloads=batch.payloads[part],
    )
