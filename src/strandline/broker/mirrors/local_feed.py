"""An origin in the same account: its stream is read in place, without a consumer.

Invariants: nothing is copied before it is as durable in the origin as asked, so a copy never holds a message that its
origin has lost. Nothing counts as held before it is as durable in the copy, whichever feed copied it and whatever
happens to the origin meanwhile. One step copies about a quarter of a MiB, whatever the size of its messages.
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from strandline.broker.api import codes
from strandline.broker.api.config import Retention
from strandline.broker.mirrors.copy_plan import CopyPlan
from strandline.broker.mirrors.feed import NO_SEQUENCES, Feed, Stored
from strandline.broker.mirrors.source_names import stream_identity
from strandline.broker.streams import OriginBatch, Stream, Ticket
from strandline.broker.streams.arrays import Flags, Words, among
from strandline.broker.streams.storage import is_passed
from strandline.clock import NS_PER_S

STEP_BYTES = 1 << 18
STEP_MAX, STEP_FIRST = 4_096, 256
MESSAGE_BYTES = 64

Released = Callable[[Stream, Words], None]
"""Hears which messages of an origin a copy holds durably now, where its retention asks for that; none: it has begun."""


class LocalFeed(Feed):
    """Copies from another stream of this server."""

    def __init__(
        self,
        stream: Stream,
        plan: CopyPlan,
        stored: Stored,
        find: Callable[[str], Stream | None],
        released: Released,
    ) -> None:
        super().__init__(stream, plan, stored)
        self._find = find
        self._released = released
        self._on_the_way: deque[tuple[Ticket, int]] = deque()
        """Appends of the copy that are not durable yet, each with the sequence of the origin up to which it then holds
        everything.
        """
        self._held = 0
        self._origin: Stream | None = None
        self._identity = b""
        self._next = 0
        self._limit = STEP_FIRST

    def step(self, now_ns: int) -> bool:
        """Copy some messages; return whether there are more."""
        origin = self.attach()
        if origin is None:
            return False
        self.settle()
        self.heard_ns = now_ns
        wanted = origin.next_sequences(origin.filter(self.plan.filters), self._next, self._limit)
        wanted = wanted[wanted <= origin.durable_seq] if len(wanted) else NO_SEQUENCES
        if not len(wanted):
            self.error, self.next_due_ns = None, None
            return False
        found = origin.read(wanted)
        weight = sum(map(len, found.payloads)) + sum(map(len, found.headers)) + MESSAGE_BYTES * len(found)
        self._limit = max(1, min(STEP_MAX, STEP_BYTES * len(found) // max(1, weight)))
        batch = OriginBatch(
            found.sequences, found.times, found.subjects, found.headers, found.payloads, identity=self._identity
        )
        copied = self.take(batch, now_ns)
        is_whole = copied.refusal is None
        self._next = int(wanted[-1]) + 1 if is_whole else int(found.sequences[copied.count])
        self._on_the_way.append((copied.published.ticket, self._next - 1))
        self.settle()
        return is_whole

    def attach(self) -> Stream | None:
        """Return the origin, after finding where to resume if it is another one than before."""
        origin = self._find(self.plan.source.name)
        if origin is not self._origin:
            self._change(origin)
        if origin is None:
            self.error, self.next_due_ns = codes.STREAM_NOT_FOUND.error(), None
        return origin

    def _change(self, origin: Stream | None) -> None:
        """Resume with another origin, or with the same one, opened again."""
        identity = b"" if origin is None else stream_identity(origin.created_ns).encode()
        is_same = identity == self._identity
        if not is_same:
            self.close()
        self._origin, self._identity = origin, identity
        if origin is None:
            return
        start = self.start(identity)
        self._next = start.sequence if start.time_ns is None else origin.sequence_at(start.time_ns)
        if is_same:  # appends under way are still under way
            self._held = min(self._held, self._next - 1)
        else:
            self._begin()
        if self not in origin.claims:
            origin.claims.append(self)
        self._released(origin, NO_SEQUENCES)

    def _begin(self) -> None:
        """Advance the held position to what is durable in the copy: another feed may just have copied it."""
        barrier, last = self.stream.barrier(), self._next - 1
        self._held = last if is_passed(barrier) else 0
        if last > self._held:
            self._on_the_way.append((barrier, last))

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects that are taken; all of them if there are none."""
        return self.plan.filters

    def wants(self, sequences: Words) -> Flags:
        """Tell which messages of the origin the copy does not hold durably yet."""
        origin = self._origin
        if origin is None:
            return np.zeros(len(sequences), np.bool_)
        wanted: Flags = sequences > np.uint64(self._held)
        if self.plan.filters and wanted.any():
            own = origin.next_sequences(origin.filter(self.plan.filters), self._held + 1, int(sequences[-1]))
            wanted &= among(sequences, own)
        return wanted

    def settle(self) -> None:
        """Release messages that are durable in the copy, if the origin keeps messages only while there is interest."""
        while self._on_the_way and self._on_the_way[0][0].done():
            ticket, last = self._on_the_way.popleft()
            origin, held = self._origin, self._held
            if ticket.exception() is None and origin is not None and last > held:
                self._held = last
                if origin.config.retention is not Retention.LIMITS:
                    self._release(origin, held + 1, last)

    def _release(self, origin: Stream, first: int, last: int) -> None:
        matching = origin.filter(self.plan.filters)
        count = origin.pending(matching, first, last)
        if count:  # none would say that something has begun
            self._released(origin, origin.next_sequences(matching, first, count))

    def leave(self) -> bool:
        """Copy no more, and release the origin when all appends are durable; return whether they are."""
        self.settle()
        if self._on_the_way and self._find(self.stream.config.name) is self.stream:
            return False
        self.close()
        return True

    def close(self) -> None:
        """Want nothing more of the origin."""
        self._on_the_way.clear()
        if self._origin is not None and self in self._origin.claims:
            self._origin.claims.remove(self)
            self._released(self._origin, NO_SEQUENCES)

    def lag(self) -> int:
        """Return how many messages are still to be copied."""
        origin = self._origin
        return 0 if origin is None else origin.pending(origin.filter(self.plan.filters), self._next)

    def beat(self, now_ns: int) -> None:
        """Record that the origin is alive, as a heartbeat of a remote origin would."""
        if self._origin is not None and now_ns - self.heard_ns > NS_PER_S:
            self.heard_ns = now_ns
