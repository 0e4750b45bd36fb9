"""Applies acknowledgements to the state of a consumer.

Invariants: acknowledgements apply in the order of arrival; one for a message that was never delivered has no effect and
no reply; replies are sent when what they confirm is on stable storage.
"""

import random
from collections.abc import Callable

import numpy as np

from strandline.broker.api.advisories import AckSample, Advisory, MessageNaked, MessageTerminated
from strandline.broker.api.consumer_config import AckPolicy
from strandline.broker.api.schema import SEQUENCE_MAX
from strandline.broker.consumers.ack_payloads import Ack, AckKind, PlainAcks, parse_delay
from strandline.broker.consumers.feed import NEVER_NS, Feed
from strandline.broker.streams.headers import parse_number, special_headers

_THROUGH = (AckPolicy.ALL, AckPolicy.FLOW_CONTROL)


class AckHandler:
    """The acknowledgements of one consumer."""

    def __init__(self, feed: Feed, tell: Callable[[Advisory], None]) -> None:
        self._feed = feed
        self._tell = tell
        self.last_ns = 0
        """Time of the last acknowledgement, 0 for none."""
        self.replies: list[bytes] = []
        """Reply subjects that wait for durability."""
        self.pulls: list[tuple[bytes, bytes]] = []
        """Pull requests of +NXT: reply subject and payload."""
        self._sample_percent = 0
        self.configure()

    def configure(self) -> None:
        """Apply the sampling frequency of the configuration."""
        digits = self._feed.config.sample_freq.removesuffix("%")
        self._sample_percent = int(digits) if digits.isdigit() else 0
        self._feed.sent_ns = (self._feed.sent_ns or {}) if self._sample_percent > 0 else None

    def take(self, acks: PlainAcks | list[Ack], now_ns: int) -> None:
        """Apply acknowledgements."""
        if isinstance(acks, PlainAcks):
            self._take_plain(acks, now_ns)
            return
        for ack in acks:
            self._take_one(ack, now_ns)

    def _take_plain(self, acks: PlainAcks, now_ns: int) -> None:
        sequences = acks.stream_seqs()
        if not sequences:
            return
        policy = self._feed.config.ack_policy
        if max(sequences) >= self._feed.cursor.position or self._sample_percent or policy is AckPolicy.NONE:
            for at, (count, sequence, consumer_seq) in enumerate(acks.rows):
                reply = b"" if acks.replies is None else acks.replies[at]
                self._acknowledge(int(sequence), int(consumer_seq), int(count), reply, now_ns)
            return
        self.last_ns = now_ns
        if policy in _THROUGH:
            at = max(range(len(sequences)), key=sequences.__getitem__)
            self._acknowledge_through(sequences[at], int(acks.rows[at][2]))
        else:
            self._feed.state.acknowledge(sequences)
            if self._feed.on_done is not None:
                self._feed.done(np.array(sequences, np.uint64))
        if acks.replies is not None:
            self.replies += [reply for reply in acks.replies if reply]

    def _take_one(self, ack: Ack, now_ns: int) -> None:
        sequence, consumer_seq, count = ack.stream_seq, ack.consumer_seq, ack.deliveries
        match ack.kind:
            case AckKind.ACK:
                self._acknowledge(sequence, consumer_seq, count, ack.reply, now_ns)
                return
            case AckKind.NEXT:
                self._acknowledge(sequence, consumer_seq, count, b"", now_ns)
                self.pulls.append((ack.reply, ack.argument))
                return
            case AckKind.TERM:
                reason = ack.argument.decode(errors="replace")
                self._acknowledge(sequence, consumer_seq, count, ack.reply, now_ns, is_sampled=False)
                stream = self._feed.stream.config.name
                self._tell(MessageTerminated(stream, self._feed.name, consumer_seq, sequence, count, reason))
                return
            case AckKind.NAK:
                self._nak(ack, now_ns)
            case AckKind.PROGRESS:
                self._extend(sequence, now_ns)
            case AckKind.UNKNOWN:
                pass
        if ack.reply:
            self.replies.append(ack.reply)

    def _acknowledge(
        self, sequence: int, consumer_seq: int, count: int, reply: bytes, now_ns: int, *, is_sampled: bool = True
    ) -> None:
        feed = self._feed
        policy = feed.config.ack_policy
        if policy is AckPolicy.NONE:
            if feed.on_done is not None and reply:
                self.replies.append(reply)
            return
        if sequence >= feed.cursor.position and not feed.config.flow_control:
            return
        self.last_ns = now_ns
        if policy in _THROUGH:
            self._acknowledge_through(sequence, consumer_seq)
        else:
            if is_sampled and self._sample_percent and sequence in feed.state.pending:
                self._sample(sequence, consumer_seq, count, now_ns)
            feed.state.acknowledge([sequence])
            feed.done(np.array([sequence], np.uint64))
        if reply:
            self.replies.append(reply)

    def _acknowledge_through(self, sequence: int, consumer_seq: int) -> None:
        found = self._feed.state.acknowledge_through(sequence, consumer_seq)
        if found:
            if found[-1] != sequence:
                found.append(sequence)
            self._feed.done(np.array(found, np.uint64))

    def take_floor(self, headers: bytes) -> None:
        """Apply the ack floor in a reply to a flow control request."""
        found = special_headers(headers)
        sequence, consumer_seq = (
            min(parse_number(found.get(name, b"")) or 0, SEQUENCE_MAX)
            for name in (b"Nats-Last-Stream", b"Nats-Last-Consumer")
        )
        if sequence:
            self._acknowledge_through(sequence, consumer_seq)

    def _nak(self, ack: Ack, now_ns: int) -> None:
        state = self._feed.state
        sequence = ack.stream_seq
        if not state.floor_consumer < ack.consumer_seq <= state.delivered_consumer + 1:
            return
        if sequence not in state.pending:
            return
        stream = self._feed.stream.config.name
        self._tell(MessageNaked(stream, self._feed.name, ack.consumer_seq, sequence, ack.deliveries))
        delay_ns = parse_delay(ack.argument)
        if delay_ns is not None:
            state.give_back(sequence, min(max(now_ns + delay_ns, 1), NEVER_NS))
        elif not state.pending.is_queued(sequence):
            state.give_back(sequence, None)

    def _extend(self, sequence: int, now_ns: int) -> None:
        pending = self._feed.state.pending
        if sequence in pending and not pending.is_queued(sequence):
            self._feed.state.extend(sequence, self._feed.deadline_ns(pending.count(sequence), now_ns))

    def _sample(self, sequence: int, consumer_seq: int, count: int, now_ns: int) -> None:
        sent_ns = (self._feed.sent_ns or {}).pop(sequence, now_ns)
        if self._sample_percent < 100 and random.randrange(100) > self._sample_percent:  # noqa: PLR2004, S311 - percent
            return
        stream = self._feed.stream.config.name
        self._tell(AckSample(stream, self._feed.name, consumer_seq, sequence, now_ns - sent_ns, count))
