"""One consumer: its input, its timers, and the order of work in a turn.

Invariants: `take_…` and `note_…` only collect; `step` does the work of a turn, in this order: acknowledgements, pulls,
expired deliveries, new deliveries, then one frame for all changes. Nothing here blocks, waits or reads a clock.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from strandline.broker.api import codes
from strandline.broker.api.advisories import Advisory, Paused
from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig, DeliverPolicy
from strandline.broker.api.consumer_responses import ConsumerInfo, PriorityGroupState, SequenceInfo
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.broker.consumers import status_headers
from strandline.broker.consumers.ack_handler import AckHandler
from strandline.broker.consumers.ack_payloads import Ack, AckParser, PlainAcks
from strandline.broker.consumers.cursor import Cursor, beginning
from strandline.broker.consumers.feed import Feed
from strandline.broker.consumers.filter_history import History, Span, passed
from strandline.broker.consumers.pull_delivery import PullDelivery
from strandline.broker.consumers.push_delivery import PushDelivery
from strandline.broker.consumers.state import ConsumerState
from strandline.broker.routes import Deliveries, Inbound, Routes
from strandline.broker.streams import Removed, Stream, Ticket
from strandline.broker.streams.arrays import Flags, Words, among

TURN_BYTES = 256 << 10
TURN_MESSAGES = 4_096
"""About how much one consumer delivers in a turn."""


def _when_settled(ticket: Ticket, action: Callable[[], None]) -> None:
    ticket.add_done_callback(lambda _: action())


class Consumer:
    """A consumer of a stream."""

    def __init__(  # noqa: PLR0913 - a consumer connects all of these
        self,
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        stream: Stream,
        routes: Routes,
        state: ConsumerState,
        tell: Callable[[Advisory], None],
        request_turn: Callable[["Consumer"], None],
        *,
        now_ns: int,
        when_settled: Callable[[Ticket, Callable[[], None]], None] = _when_settled,
    ) -> None:
        self.name = name
        self.stream = stream
        self.created_ns = created_ns
        self.state = state
        self.history: History = ()
        self._routes = routes
        self._tell = tell
        self._request_turn = request_turn
        if state.is_new:
            state.begins = beginning(stream, config, state.begins)
            state.begin(*state.begins)
        elif state.delivered_stream > (end := max(stream.last_seq, config.opt_start_seq - 1)):
            state.fall_back(end)
        self._feed = Feed(name, config, stream, state, tell, lambda ticket: when_settled(ticket, self.turn))
        self._ack_handler = AckHandler(self._feed, tell)
        self._pull_delivery = None if config.is_push else PullDelivery(self._feed, routes, tell, self.turn)
        self._push_delivery = PushDelivery(self._feed, routes, self.turn, now_ns) if config.is_push else None
        self._ack_parser = AckParser(self._feed.prefix)
        self._acks: list[PlainAcks | list[Ack]] = []
        self._pull_requests: list[tuple[bytes, bytes, bytes]] = []
        self._is_closed = False
        self._is_touched = False
        self._created_now_ns = now_ns
        self._paused_until_ns = config.paused_until_ns()
        self._was_paused = self._paused_until_ns > now_ns
        self._forget_removed()
        self.turn()

    def _forget_removed(self) -> None:
        """Forget outstanding messages that were removed while the consumer was closed."""
        pending = np.array(list(self.state.pending.first), np.uint64)
        if len(pending):
            self._feed.note_gone(pending[~self.stream.is_live(pending)].tolist())
            self._feed.settle()

    def turn(self) -> None:
        """Request a turn."""
        if not self._is_closed:
            self._request_turn(self)

    @property
    def config(self) -> ConsumerConfig:
        """The configuration."""
        return self._feed.config

    @property
    def position(self) -> int:
        """The next stream sequence to read."""
        return self._feed.cursor.position

    @property
    def on_done(self) -> Callable[[Words], None] | None:
        """The callback for messages that the consumer is done with."""
        return self._feed.on_done

    @on_done.setter
    def on_done(self, listener: Callable[[Words], None] | None) -> None:
        self._feed.on_done = listener

    # Input.

    def take_pulls(self, messages: list[tuple[bytes, bytes, bytes]]) -> None:
        """Take pull requests: reply subject, payload, headers."""
        self._pull_requests += [message for message in messages if message[0]]
        self.turn()

    def take_acks(self, messages: Inbound) -> None:
        """Take acknowledgements."""
        self._acks.append(self._ack_parser.parse(messages))
        self.turn()

    def take_flow(self, subject: bytes, headers: bytes = b"") -> None:
        """Take a reply to a flow control request."""
        if self._push_delivery is None or not self._push_delivery.answered(subject):
            return
        if self.config.ack_policy is AckPolicy.FLOW_CONTROL and headers:
            self._ack_handler.take_floor(headers)
        self.turn()

    def note_stored(self) -> None:
        """Note that messages have become durable; they are counted on demand."""
        if self._pull_delivery is not None:
            if len(self._pull_delivery.pulls):
                self.turn()
        elif self._push_delivery is not None and self._push_delivery.is_active:
            self.turn()

    def note_removed(self, removed: Removed) -> None:
        """Note that messages were removed from the stream."""
        self._feed.note_removed(removed)
        self._settle()

    def note_purged(self) -> None:
        """Note that the stream was purged and begins later."""
        self._feed.note_purged()
        self._settle()
        self.turn()

    def _settle(self) -> None:
        """Apply durable removals of the stream."""
        if self._feed.removals and self._feed.settle():
            self._is_touched = True
            self.turn()

    # The turn.

    def step(self, now_ns: int) -> bool:
        """Do the work of a turn; return whether more work is ready."""
        if self._is_closed:
            return False
        self._settle()
        if self._is_touched:
            self._is_touched = False
            self._ack_handler.last_ns = now_ns
        try:
            self._apply_acks(now_ns)
            self._take_pull_requests(now_ns)
            due_ns = self.state.pending.next_deadline()
            if due_ns is not None and due_ns <= now_ns:
                self._feed.expire(now_ns)
            return self._deliver(now_ns)
        finally:
            self._write()  # also after a failure in between

    def _apply_acks(self, now_ns: int) -> None:
        if not self._acks:
            return
        acks, self._acks = self._acks, []
        for some in acks:
            self._ack_handler.take(some, now_ns)
        if self._push_delivery is not None:
            self._push_delivery.note_ack(now_ns)
        else:
            self._pull_requests += [(reply, payload, b"") for reply, payload in self._ack_handler.pulls]
        self._ack_handler.pulls.clear()

    def _take_pull_requests(self, now_ns: int) -> None:
        requests, self._pull_requests = self._pull_requests, []
        for inbox, payload, headers in requests:
            if self._pull_delivery is not None:
                self._pull_delivery.request(inbox, payload, headers, now_ns)
            else:
                self._routes.send(inbox, b"", headers=status_headers.status(status_headers.PUSH_BASED))

    def _deliver(self, now_ns: int) -> bool:
        limit = max(16, min(TURN_MESSAGES, TURN_BYTES // self._feed.mean_size))
        is_paused = self._paused_until_ns > now_ns
        if self._push_delivery is not None:
            return not is_paused and self._push_delivery.serve(now_ns, limit)
        pull_delivery = self._pull_delivery
        if pull_delivery is None or not len(pull_delivery.pulls):
            return False
        if is_paused:
            pull_delivery.check_if_due(now_ns, at_end=True)
            return False
        served = pull_delivery.serve(now_ns, limit)
        if not served.more:
            pull_delivery.check_if_due(now_ns, at_end=served.at_end)
        return served.more

    def _write(self) -> None:
        self.state.write()
        replies, self._ack_handler.replies = self._ack_handler.replies, []
        if replies:
            answers = Deliveries(replies, [b""] * len(replies))
            self.state.when_synced(lambda: self._routes.send_many(answers))

    # Timers.

    def tick(self, now_ns: int) -> bool:
        """Run due timers and the work of a turn; return whether more work is ready."""
        if self._is_closed:
            return False
        if self._was_paused and self._paused_until_ns <= now_ns:
            self._was_paused = False
            self._tell(Paused(self.stream.config.name, self.name, paused=False, pause_until=self._paused_until_ns))
        if self._pull_delivery is not None:
            self._pull_delivery.tick(now_ns)
        if self._push_delivery is not None:
            self._push_delivery.tick(now_ns)
        self.state.sync_if_due(now_ns)
        return self.step(now_ns)

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` is due, None if nothing is scheduled."""
        if self._is_closed:
            return None
        side = self._pull_delivery if self._pull_delivery is not None else self._push_delivery
        due = (
            self._feed.ready_ns,
            self.state.pending.next_deadline(),
            self.state.next_sync_ns(),
            side.next_due_ns() if side is not None else None,
            self._paused_until_ns if self._was_paused else None,
        )
        return min((time_ns for time_ns in due if time_ns is not None), default=None)

    @property
    def idle_since_ns(self) -> int | None:
        """Since when the consumer is inactive, None while it is in use."""
        if self._push_delivery is not None:
            return self._push_delivery.inactive_since_ns
        pull_delivery = self._pull_delivery
        if pull_delivery is None or any(self._routes.has_interest(inbox) for inbox in pull_delivery.pulls.inboxes()):
            return None
        return max(pull_delivery.last_ns, self._ack_handler.last_ns, self._created_now_ns)

    # Commands.

    def update(self, config: ConsumerConfig, now_ns: int) -> None:
        """Apply a checked configuration."""
        feed = self._feed
        cursor = feed.cursor
        if config.filters != feed.config.filters:
            cursor = Cursor(self.stream, config.filters, cursor.position, self.state.resume)
        feed.configure(config, cursor)
        self._ack_handler.configure()
        if self._pull_delivery is not None:
            self._pull_delivery.configure(config)
        if self._push_delivery is not None:
            self._push_delivery.configure(config, now_ns)
        self._set_pause(config.paused_until_ns(), now_ns)
        self.turn()

    def pause(self, until_ns: int, now_ns: int) -> None:
        """Deliver nothing until a time; a time in the past resumes."""
        pause_until = until_ns if until_ns != ZERO_TIME_NS else None
        self._feed.config = replace(self._feed.config, pause_until=pause_until)
        self._set_pause(until_ns, now_ns)
        self._tell(Paused(self.stream.config.name, self.name, paused=until_ns > now_ns, pause_until=until_ns))
        self.turn()

    def _set_pause(self, until_ns: int, now_ns: int) -> None:
        self._paused_until_ns = until_ns
        self._was_paused = until_ns > now_ns

    def reset(self, position: int) -> None:
        """Restart at a sequence that `resets_to` has returned."""
        self.state.begin(position)
        self._feed.removals.clear()
        self._feed.configure(self.config, Cursor(self.stream, self.config.filters, position))
        self._feed.last_ns = self._ack_handler.last_ns = 0
        self.turn()

    def resets_to(self, sequence: int) -> int:
        """Return where a reset to a sequence starts (0: after the ack floor); `ApiError` if it is not allowed."""
        config = self.config
        if not sequence:
            return self.state.floor_stream + 1
        match config.deliver_policy:
            case DeliverPolicy.ALL:
                problem = ""
            case DeliverPolicy.BY_START_SEQUENCE:
                problem = "below start seq" if sequence < config.opt_start_seq else ""
            case DeliverPolicy.BY_START_TIME:
                first = self.stream.sequence_at(config.opt_start_time or 0)
                problem = "below start time" if sequence < first else ""
            case _:
                problem = "not allowed"
        if problem:
            raise codes.CONSUMER_INVALID_RESET.with_text(err=problem)
        return sequence

    def unpin(self) -> None:
        """Release the pin of the priority group."""
        if self._pull_delivery is not None:
            self._pull_delivery.unpin("admin")

    # Queries.

    def info(self, now_ns: int) -> ConsumerInfo:
        """Return the consumer's info."""
        state, feed, pull_delivery = self.state, self._feed, self._pull_delivery
        self._settle()
        if pull_delivery is not None:
            pull_delivery.check(now_ns)
        redelivered = 0 if feed.config.max_deliver == 1 else len(state.pending.counts)
        paused_ns = max(0, self._paused_until_ns - now_ns)
        return ConsumerInfo(
            stream_name=self.stream.config.name,
            name=self.name,
            created=self.created_ns,
            config=feed.config,
            delivered=SequenceInfo(state.delivered_consumer, state.delivered_stream, feed.last_ns or None),
            ack_floor=SequenceInfo(state.floor_consumer, state.floor_stream, self._ack_handler.last_ns or None),
            num_ack_pending=len(state.pending),
            num_redelivered=redelivered,
            num_waiting=0 if pull_delivery is None else len(pull_delivery.pulls),
            num_pending=feed.cursor.left,
            push_bound=self._push_delivery is not None and self._push_delivery.is_active,
            paused=paused_ns > 0,
            pause_remaining=paused_ns,
            ts=now_ns,
            priority_groups=self._priority_groups(),
        )

    def _priority_groups(self) -> tuple[PriorityGroupState, ...]:
        groups = self.config.priority_groups
        if not groups or self._pull_delivery is None:
            return ()
        pin = self._pull_delivery.pin
        since_ns = pin.since_ns if pin.identifier else ZERO_TIME_NS
        return (PriorityGroupState(groups[0], pin.identifier, since_ns),)

    def wants(self, sequences: Words) -> Flags:
        """Tell which of some ascending sequences match the filters and are not done."""
        return self._feed.cursor.lets_through(sequences) & self._is_open(sequences)

    def finished(self, first: int, last: int) -> Words:
        """Return the stored messages between two sequences that this consumer is done with."""
        delivered = self.state.delivered_stream
        found = passed(self.stream, (*self.history, Span(delivered, self.config.filters)), first, min(last, delivered))
        return found[~self._is_open(found)]

    def _is_open(self, sequences: Words) -> Flags:
        """Tell which messages are undelivered or unacknowledged."""
        state = self.state
        unseen = sequences > np.uint64(state.delivered_stream)
        if self.config.ack_policy is AckPolicy.EXPLICIT:
            kept = [*state.pending.first, *state.pending.counts]
        else:
            kept = list(state.pending.counts)
            unseen = sequences > np.uint64(state.floor_stream)
        return unseen | among(sequences, np.array(kept, np.uint64))

    def end_pulls(self) -> None:
        """End waiting pulls with the status of a shutdown."""
        if self._pull_delivery is not None:
            self._pull_delivery.close(status_headers.SHUTDOWN)

    def close(self, reason: str = "") -> None:
        """Close; waiting pulls end with the reason, if there is one."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pull_delivery is not None:
            self._pull_delivery.close((409, reason.encode()) if reason else None)
        if self._push_delivery is not None:
            self._push_delivery.close()
        self._pull_delivery = self._push_delivery = None  # they refer to this consumer
