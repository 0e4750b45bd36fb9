"""What a consumer delivers next, ready to be sent, and what is remembered once it was sent.

Invariants: what waits to be delivered again comes first, then what is new, as far as `max_ack_pending` lets it; nothing
counts as delivered before somebody took it. A parcel is good until the stream or the state changes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from strandline.broker.api.advisories import Advisory, MaxDeliveries, MessageTerminated
from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig, ReplayPolicy
from strandline.broker.consumers.cursor import Cursor
from strandline.broker.consumers.flow_control import Replay
from strandline.broker.consumers.message_columns import (
    ack_subjects,
    headers_with_pin,
    headers_with_sizes,
    repeated_ack_subjects,
    sizes_of,
)
from strandline.broker.consumers.pending_removals import Leaving
from strandline.broker.consumers.state import ConsumerState
from strandline.broker.routes import Deliveries
from strandline.broker.streams import Removed, Stream, Ticket
from strandline.broker.streams.arrays import Times, Words
from strandline.broker.streams.messages import Messages
from strandline.broker.streams.storage import is_passed

REPEATS_MAX = 256
PARCEL_BYTES_MAX = 2 << 20
FIRST_SIZE = 256
OVERHEAD = 100
"""What a message takes beside its payload, about."""
NEVER_NS = 1 << 62
AGAIN_NS = 100_000_000
"""After how long it is looked again, at the latest, whether what went is gone for good."""
GONE = "Unacknowledged message was deleted"
TOLD_MAX = 1_000
"""When more messages than that go at once, nobody is told of each."""


@dataclass(slots=True)
class Parcel:
    """Messages ready to be sent, in columns; `headers` is None where none has any."""

    sequences: Words
    times: Times
    subjects: list[bytes]
    payloads: list[bytes]
    replies: list[bytes]
    headers: list[bytes] | None
    is_repeat: bool
    _sizes: list[int] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.subjects)

    def sizes(self) -> list[int]:
        """Return the size of each message."""
        if self._sizes is None:
            self._sizes = sizes_of(self.subjects, self.replies, self.headers, self.payloads)
        return self._sizes

    def pin(self, pin: str) -> None:
        """Say in each message which pin the client has."""
        self.headers = headers_with_pin(self.headers or [b""] * len(self), pin)
        self._sizes = None

    def first(self, count: int) -> Deliveries:
        """Return the first so many messages."""
        if count == len(self):
            return Deliveries(self.subjects, self.payloads, self.replies, self.headers)
        return self.part(0, count)

    def part(self, start: int, stop: int) -> Deliveries:
        """Return some of the messages."""
        rows = slice(start, stop)
        headers = None if self.headers is None else self.headers[rows]
        return Deliveries(self.subjects[rows], self.payloads[rows], self.replies[rows], headers)


class Feed:
    """One consumer's messages."""

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        stream: Stream,
        state: ConsumerState,
        tell: Callable[[Advisory], None],
        on_wait: Callable[[Ticket], None],
    ) -> None:
        self.name = name
        self.leaving = Leaving(stream, on_wait)
        self.stream = stream
        self.state = state
        self._tell = tell
        self.prefix = f"$JS.ACK.{stream.config.name}.{name}.".encode()
        self.on_done: Callable[[Words], None] | None = None
        self.mean_size = FIRST_SIZE
        """About how large messages are."""
        self.last_ns = 0
        """When something was delivered last; 0 for never."""
        self.sent_ns: dict[int, int] | None = None
        """When each outstanding message was delivered, where that is measured."""
        replays = config.replay_policy is ReplayPolicy.ORIGINAL
        self._replay = Replay(stream.last_seq) if replays else None
        self.ready_ns: int | None = None
        """When the next message may be delivered, where it has to wait for its time."""
        self.configure(config, Cursor(stream, config.filters, state.delivered_stream + 1, state.resume))

    def configure(self, config: ConsumerConfig, cursor: Cursor) -> None:
        """Take over a configuration, and a place in the stream."""
        self.config = config
        self.cursor = cursor
        self._waits = config.backoff or (config.ack_wait,)
        self._is_tracked = config.ack_policy is not AckPolicy.NONE
        self._ack_max = config.max_ack_pending if self._is_tracked and config.max_ack_pending > 0 else 0
        self.deliver_max = max(0, config.max_deliver)

    # What may be delivered.

    @property
    def is_full(self) -> bool:
        """Whether as much is outstanding as may be."""
        return bool(self._ack_max) and len(self.state.pending) >= self._ack_max

    def available(self) -> int:
        """Return how many messages may be delivered now, or a few more than that."""
        left = self.cursor.left
        if self._ack_max:
            left = min(left, max(0, self._ack_max - len(self.state.pending)))
        return left + self.state.pending.queued_count

    def next(self, limit: int, room: int, now_ns: int) -> Parcel | None:
        """Return up to so many messages that come next, None if there are none, or not before `ready_ns`.

        They have about `room` bytes at most, but one is always taken.
        """
        bytes_max = min(room, PARCEL_BYTES_MAX)
        self.ready_ns = None
        if self.state.pending.queued_count:
            parcel = self._repeats(min(limit, REPEATS_MAX), bytes_max, now_ns)
            if parcel is not None:
                return parcel
        if self._ack_max:
            limit = min(limit, self._ack_max - len(self.state.pending))
        if limit <= 0:
            return None
        if self.stream.is_in_doubt or (self.leaving and self.leaving.holds):
            self.ready_ns = now_ns + AGAIN_NS
            return None
        sequences = self.cursor.next(limit)
        if not len(sequences):
            return None
        messages = self.stream.read(sequences, bytes_max)
        middle = messages.payloads[len(messages) // 2]
        self.mean_size = (self.mean_size + 2 * (OVERHEAD + len(middle))) // 3 or 1
        if self._replay is not None:
            count, self.ready_ns = self._replay.fits(messages.times.tolist(), now_ns)
            if count < len(messages):
                return self._fresh(self.stream.read(sequences[:count])) if count else None
        return self._fresh(messages)

    def _fresh(self, messages: Messages) -> Parcel:
        replies = ack_subjects(self.prefix, messages, self.state.delivered_consumer + 1, self.cursor.left)
        return self._parcel(messages, replies, is_repeat=False)

    def _repeats(self, limit: int, bytes_max: int, now_ns: int) -> Parcel | None:
        pending = self.state.pending
        while queued := pending.queued(limit):
            queued = [sequence for sequence in queued if not self.is_spent(sequence)]
            messages = self.stream.read(np.array(sorted(queued), np.uint64), bytes_max)
            if len(messages) < len(queued):
                found = set(messages.sequences.tolist())
                last = max(found or queued, default=0)  # what comes after it was not looked at
                self._miss([each for each in queued if each not in found and each <= last], now_ns)
                queued = [sequence for sequence in queued if sequence in found]
            if not queued:
                continue
            messages = _in_order(messages, queued)
            counts = [pending.count(sequence) + 1 for sequence in queued]
            consumer_seq = self.state.delivered_consumer + 1
            replies = repeated_ack_subjects(self.prefix, messages, counts, consumer_seq, self.cursor.left)
            return self._parcel(messages, replies, is_repeat=True)
        return None

    def _miss(self, sequences: list[int], now_ns: int) -> None:
        """Stop waiting for messages that were not found, or wait a little where they might come back."""
        if is_passed(self.stream.barrier()):
            self.forget(sequences, GONE)
            return
        for sequence in sequences:
            self.state.pending.set_deadline(sequence, now_ns + AGAIN_NS)

    def _parcel(self, messages: Messages, replies: list[bytes], *, is_repeat: bool) -> Parcel:
        headers, payloads = messages.headers, messages.payloads
        if self.config.headers_only:
            headers, payloads = headers_with_sizes(headers, payloads), [b""] * len(payloads)
        return Parcel(
            messages.sequences,
            messages.times,
            messages.subjects,
            payloads,
            replies,
            headers if any(headers) else None,
            is_repeat,
        )

    # What was delivered.

    def delivered(self, parcel: Parcel, count: int, now_ns: int) -> None:
        """Note that somebody took the first so many messages of a parcel."""
        if not count:
            return
        state = self.state
        self.last_ns = now_ns
        sequences = parcel.sequences[:count]
        if parcel.is_repeat:
            for sequence in sequences.tolist():
                state.redeliver(sequence, self.deadline_ns(state.pending.count(sequence) + 1, now_ns))
        else:
            self.cursor.passed(sequences)
            if self._replay is not None:
                self._replay.sent(int(parcel.times[count - 1]), self.cursor.position)
                if self._replay.is_over:
                    self._replay = None
            if self.leaving and self._is_tracked:
                state.pass_over(self.leaving.pass_over(int(sequences[-1])))
            state.deliver(sequences, self.deadline_ns(1, now_ns) if self._is_tracked else None)
            if not self._is_tracked:
                self.done(sequences)
        if self.sent_ns is not None:
            self.sent_ns.update(dict.fromkeys(sequences.tolist(), now_ns))

    def deadline_ns(self, deliveries: int, now_ns: int) -> int:
        """Return until when a message that was delivered so often must be answered."""
        wait_ns = self._waits[min(deliveries, len(self._waits)) - 1]
        return min(now_ns + wait_ns, NEVER_NS) if wait_ns else NEVER_NS

    def expire(self, now_ns: int) -> None:
        """Let what was not answered in time be delivered again, or give up on it."""
        expired = self.state.pending.expire(now_ns)
        if expired and self.deliver_max:
            expired = [sequence for sequence in expired if not self.is_spent(sequence)]
        self.state.pending.queue(expired)

    def is_spent(self, sequence: int) -> bool:
        """Tell whether a message was delivered often enough, and give up on it if it was."""
        if not self.deliver_max:
            return False
        count = self.state.pending.count(sequence)
        if count < self.deliver_max:
            return False
        self._tell(MaxDeliveries(self.stream.config.name, self.name, sequence, count))
        self.state.spend(sequence)
        return True

    def note_removed(self, removed: Removed) -> None:
        """Note that messages are gone from the stream; `settle` says what that means as soon as it is for good."""
        unseen = self.cursor.note_removed(removed)
        if len(unseen):
            self.leaving.saw_go(unseen, by_purge=removed.by_purge)
        first, counts = self.state.pending.first, self.state.pending.counts
        if not first and not counts:
            return
        known = [sequence for sequence in removed.sequences.tolist() if sequence in first or sequence in counts]
        if known:
            change = self.leaving.latest()
            if removed.by_purge or len(known) > TOLD_MAX:  # of a purge nats-server tells nothing, either
                change.untold += known
            else:
                change.told += known
            self.leaving.wait(change)

    def note_gone(self, sequences: list[int]) -> None:
        """Note that outstanding messages were not found in the stream."""
        change = self.leaving.latest()
        change.untold += sequences
        self.leaving.wait(change)

    def note_purged(self) -> None:
        """Go on where the stream begins after a purge; what is kept follows by `settle`."""
        position = self.stream.first_seq
        if self.cursor.position < position:
            self.configure(self.config, Cursor(self.stream, self.config.filters, position, self.state.resume))
        change = self.leaving.latest()
        change.position = max(position, self.cursor.position)
        self.leaving.wait(change)

    def settle(self) -> bool:
        """Follow what became durable of the stream's changes; return whether that changed what is kept."""
        moved = False
        for change in self.leaving.settled():
            self.forget(change.told, GONE)
            self.state.acknowledge(change.untold)
            self.state.drop_passed(change.passed)
            if change.position:
                self.state.skip_to(change.position)
            moved = moved or bool(change.told or change.untold)
        return moved

    def forget(self, sequences: list[int], reason: str) -> None:
        """Stop waiting for messages that are no longer there."""
        pending = self.state.pending
        stream = self.stream.config.name
        for sequence in sequences:
            consumer_seq = pending.first.get(sequence)
            if consumer_seq is not None:
                count = pending.count(sequence)
                self._tell(MessageTerminated(stream, self.name, consumer_seq, sequence, count, reason))
        self.state.acknowledge(sequences)

    def done(self, sequences: Words) -> None:
        """Tell whoever removes messages that these are done with."""
        if self.on_done is not None and len(sequences):
            self.on_done(sequences)


def _in_order(messages: Messages, order: list[int]) -> Messages:
    """Return messages in another order than that of their sequences."""
    places = {sequence: at for at, sequence in enumerate(messages.sequences.tolist())}
    rows = [places[sequence] for sequence in order]
    if rows == list(range(len(rows))):
        return messages
    return Messages(
        messages.sequences[rows],
        messages.times[rows],
        messages.numbers[rows],
        [messages.subjects[row] for row in rows],
        [messages.headers[row] for row in rows],
        [messages.payloads[row] for row in rows],
    )
