"""The next deliveries of a consumer, and the bookkeeping of those sent.

Invariants: redeliveries come first, then new messages, up to `max_ack_pending`; a message counts as delivered only
once a client took it. A batch is valid until the stream or the state changes.
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
from strandline.broker.consumers.pending_removals import PendingRemovals
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
"""About the size of a message beside its payload."""
NEVER_NS = 1 << 62
AGAIN_NS = 100_000_000
"""The longest wait before checking again whether a removal is durable."""
GONE = "Unacknowledged message was deleted"
ADVISORIES_MAX = 1_000
"""If more messages than this are removed at once, no advisory is sent for each."""


@dataclass(slots=True)
class DeliveryBatch:
    """Messages ready to be sent, in columns; `headers` is None if no message has any."""

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
        """Add the pin id to the headers of each message."""
        self.headers = headers_with_pin(self.headers or [b""] * len(self), pin)
        self._sizes = None

    def first(self, count: int) -> Deliveries:
        """Return the first `count` messages."""
        if count == len(self):
            return Deliveries(self.subjects, self.payloads, self.replies, self.headers)
        return self.part(0, count)

    def part(self, start: int, stop: int) -> Deliveries:
        """Return some of the messages."""
        rows = slice(start, stop)
        headers = None if self.headers is None else self.headers[rows]
        return Deliveries(self.subjects[rows], self.payloads[rows], self.replies[rows], headers)


class Feed:
    """The deliveries of one consumer."""

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
        self.removals = PendingRemovals(stream, on_wait)
        self.stream = stream
        self.state = state
        self._tell = tell
        self.prefix = f"$JS.ACK.{stream.config.name}.{name}.".encode()
        self.on_done: Callable[[Words], None] | None = None
        self.mean_size = FIRST_SIZE
        """A moving average of message sizes."""
        self.last_ns = 0
        """Time of the last delivery, 0 for none."""
        self.sent_ns: dict[int, int] | None = None
        """Delivery times of outstanding messages, where acks are sampled."""
        replays = config.replay_policy is ReplayPolicy.ORIGINAL
        self._replay = Replay(stream.last_seq) if replays else None
        self.ready_ns: int | None = None
        """When the next message may be delivered, if it must wait."""
        self.configure(config, Cursor(stream, config.filters, state.delivered_stream + 1, state.resume))

    def configure(self, config: ConsumerConfig, cursor: Cursor) -> None:
        """Apply a configuration and a position in the stream."""
        self.config = config
        self.cursor = cursor
        self._waits = config.backoff or (config.ack_wait,)
        self._is_tracked = config.ack_policy is not AckPolicy.NONE
        self._ack_max = config.max_ack_pending if self._is_tracked and config.max_ack_pending > 0 else 0
        self.deliver_max = max(0, config.max_deliver)

    # Next deliveries.

    @property
    def is_full(self) -> bool:
        """Whether `max_ack_pending` is reached."""
        return bool(self._ack_max) and len(self.state.pending) >= self._ack_max

    def available(self) -> int:
        """Return how many messages may be delivered now, or a few more."""
        left = self.cursor.left
        if self._ack_max:
            left = min(left, max(0, self._ack_max - len(self.state.pending)))
        return left + self.state.pending.queued_count

    def next(self, limit: int, room: int, now_ns: int) -> DeliveryBatch | None:
        """Return up to `limit` next messages, None if there are none, or none before `ready_ns`.

        They have about `room` bytes at most, but at least one is returned.
        """
        bytes_max = min(room, PARCEL_BYTES_MAX)
        self.ready_ns = None
        if self.state.pending.queued_count:
            batch = self._repeats(min(limit, REPEATS_MAX), bytes_max, now_ns)
            if batch is not None:
                return batch
        if self._ack_max:
            limit = min(limit, self._ack_max - len(self.state.pending))
        if limit <= 0:
            return None
        if self.stream.is_in_doubt or (self.removals and self.removals.holds):
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

    def _fresh(self, messages: Messages) -> DeliveryBatch:
        replies = ack_subjects(self.prefix, messages, self.state.delivered_consumer + 1, self.cursor.left)
        return self._make_batch(messages, replies, is_repeat=False)

    def _repeats(self, limit: int, bytes_max: int, now_ns: int) -> DeliveryBatch | None:
        pending = self.state.pending
        while queued := pending.queued(limit):
            queued = [sequence for sequence in queued if not self.is_spent(sequence)]
            messages = self.stream.read(np.array(sorted(queued), np.uint64), bytes_max)
            if len(messages) < len(queued):
                found = set(messages.sequences.tolist())
                last = max(found or queued, default=0)  # later messages were not read
                self._miss([each for each in queued if each not in found and each <= last], now_ns)
                queued = [sequence for sequence in queued if sequence in found]
            if not queued:
                continue
            messages = _in_order(messages, queued)
            counts = [pending.count(sequence) + 1 for sequence in queued]
            consumer_seq = self.state.delivered_consumer + 1
            replies = repeated_ack_subjects(self.prefix, messages, counts, consumer_seq, self.cursor.left)
            return self._make_batch(messages, replies, is_repeat=True)
        return None

    def _miss(self, sequences: list[int], now_ns: int) -> None:
        """Forget messages that were not found, or wait if their removal is not durable yet."""
        if is_passed(self.stream.barrier()):
            self.forget(sequences, GONE)
            return
        for sequence in sequences:
            self.state.pending.set_deadline(sequence, now_ns + AGAIN_NS)

    def _make_batch(self, messages: Messages, replies: list[bytes], *, is_repeat: bool) -> DeliveryBatch:
        headers, payloads = messages.headers, messages.payloads
        if self.config.headers_only:
            headers, payloads = headers_with_sizes(headers, payloads), [b""] * len(payloads)
        return DeliveryBatch(
            messages.sequences,
            messages.times,
            messages.subjects,
            payloads,
            replies,
            headers if any(headers) else None,
            is_repeat,
        )

    # Sent deliveries.

    def delivered(self, batch: DeliveryBatch, count: int, now_ns: int) -> None:
        """Note that a client took the first `count` messages of a batch."""
        if not count:
            return
        state = self.state
        self.last_ns = now_ns
        sequences = batch.sequences[:count]
        if batch.is_repeat:
            for sequence in sequences.tolist():
                state.redeliver(sequence, self.deadline_ns(state.pending.count(sequence) + 1, now_ns))
        else:
            self.cursor.passed(sequences)
            if self._replay is not None:
                self._replay.sent(int(batch.times[count - 1]), self.cursor.position)
                if self._replay.is_over:
                    self._replay = None
            if self.removals and self._is_tracked:
                state.pass_over(self.removals.pass_over(int(sequences[-1])))
            state.deliver(sequences, self.deadline_ns(1, now_ns) if self._is_tracked else None)
            if not self._is_tracked:
                self.done(sequences)
        if self.sent_ns is not None:
            self.sent_ns.update(dict.fromkeys(sequences.tolist(), now_ns))

    def deadline_ns(self, deliveries: int, now_ns: int) -> int:
        """Return the ack deadline of a message after so many deliveries."""
        wait_ns = self._waits[min(deliveries, len(self._waits)) - 1]
        return min(now_ns + wait_ns, NEVER_NS) if wait_ns else NEVER_NS

    def expire(self, now_ns: int) -> None:
        """Queue messages past their ack deadline for redelivery, or give up on them."""
        expired = self.state.pending.expire(now_ns)
        if expired and self.deliver_max:
            expired = [sequence for sequence in expired if not self.is_spent(sequence)]
        self.state.pending.queue(expired)

    def is_spent(self, sequence: int) -> bool:
        """Tell whether a message has reached `max_deliver`, and give up on it if so."""
        if not self.deliver_max:
            return False
        count = self.state.pending.count(sequence)
        if count < self.deliver_max:
            return False
        self._tell(MaxDeliveries(self.stream.config.name, self.name, sequence, count))
        self.state.spend(sequence)
        return True

    def note_removed(self, removed: Removed) -> None:
        """Note that messages were removed from the stream; `settle` applies it once the removal is durable."""
        unseen = self.cursor.note_removed(removed)
        if len(unseen):
            self.removals.note_unseen(unseen, by_purge=removed.by_purge)
        first, counts = self.state.pending.first, self.state.pending.counts
        if not first and not counts:
            return
        known = [sequence for sequence in removed.sequences.tolist() if sequence in first or sequence in counts]
        if known:
            removal = self.removals.latest()
            if removed.by_purge or len(known) > ADVISORIES_MAX:  # nats-server sends none for a purge, either
                removal.silent += known
            else:
                removal.announced += known
            self.removals.wait(removal)

    def note_gone(self, sequences: list[int]) -> None:
        """Note that outstanding messages are not in the stream."""
        removal = self.removals.latest()
        removal.silent += sequences
        self.removals.wait(removal)

    def note_purged(self) -> None:
        """Continue where the stream begins after a purge; `settle` updates the stored state."""
        position = self.stream.first_seq
        if self.cursor.position < position:
            self.configure(self.config, Cursor(self.stream, self.config.filters, position, self.state.resume))
        removal = self.removals.latest()
        removal.position = max(position, self.cursor.position)
        self.removals.wait(removal)

    def settle(self) -> bool:
        """Apply the stream's durable removals; return whether the stored state changed."""
        moved = False
        for removal in self.removals.settled():
            self.forget(removal.announced, GONE)
            self.state.acknowledge(removal.silent)
            self.state.drop_passed(removal.passed)
            if removal.position:
                self.state.skip_to(removal.position)
            moved = moved or bool(removal.announced or removal.silent)
        return moved

    def forget(self, sequences: list[int], reason: str) -> None:
        """Forget removed messages, with an advisory for each."""
        pending = self.state.pending
        stream = self.stream.config.name
        for sequence in sequences:
            consumer_seq = pending.first.get(sequence)
            if consumer_seq is not None:
                count = pending.count(sequence)
                self._tell(MessageTerminated(stream, self.name, consumer_seq, sequence, count, reason))
        self.state.acknowledge(sequences)

    def done(self, sequences: Words) -> None:
        """Report messages that the consumer is done with."""
        if self.on_done is not None and len(sequences):
            self.on_done(sequences)


def _in_order(messages: Messages, order: list[int]) -> Messages:
    """Return messages in another order than that of their sequences."""
    row_of = {sequence: at for at, sequence in enumerate(messages.sequences.tolist())}
    rows = [row_of[sequence] for sequence in order]
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
