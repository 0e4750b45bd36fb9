"""One consumer: what it is asked, told and reminded of, and in which order it does its work.

Invariants: `take_…` and `note_…` only gather; `step` does the work of a turn, in this order: answers, pulls, what ran
out, deliveries, and then one frame for all that changed. Nothing here blocks, waits or looks at a clock.
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
from strandline.broker.consumers.ack_handler import Acking
from strandline.broker.consumers.ack_payloads import Answer, AnswerReader, PlainAcks
from strandline.broker.consumers.cursor import Cursor, beginning
from strandline.broker.consumers.feed import Feed
from strandline.broker.consumers.filter_history import History, Span, passed
from strandline.broker.consumers.pull_delivery import Pulling
from strandline.broker.consumers.push_delivery import Pushing
from strandline.broker.consumers.state import ConsumerState
from strandline.broker.routes import Deliveries, Inbound, Routes
from strandline.broker.streams import Removed, Stream, Ticket
from strandline.broker.streams.arrays import Flags, Words, among

TURN_BYTES = 256 << 10
TURN_MESSAGES = 4_096
"""How much one consumer delivers in a turn, about."""


def _when_settled(ticket: Ticket, action: Callable[[], None]) -> None:
    ticket.add_done_callback(lambda _: action())


class Consumer:
    """A consumer of a stream."""

    def __init__(  # noqa: PLR0913 - everything that it stands between
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
        self._acking = Acking(self._feed, tell)
        self._pulling = None if config.is_push else Pulling(self._feed, routes, tell, self.turn)
        self._pushing = Pushing(self._feed, routes, self.turn, now_ns) if config.is_push else None
        self._reader = AnswerReader(self._feed.prefix)
        self._answers: list[PlainAcks | list[Answer]] = []
        self._asked: list[tuple[bytes, bytes, bytes]] = []
        self._is_closed = False
        self._is_touched = False
        self._created_now_ns = now_ns
        self._paused_until_ns = config.paused_until_ns()
        self._was_paused = self._paused_until_ns > now_ns
        self._forget_what_is_gone()
        self.turn()

    def _forget_what_is_gone(self) -> None:
        """Stop waiting for messages that went while nobody was here."""
        pending = np.array(list(self.state.pending.first), np.uint64)
        if len(pending):
            self._feed.note_gone(pending[~self.stream.is_live(pending)].tolist())
            self._feed.settle()

    def turn(self) -> None:
        """Ask for a turn."""
        if not self._is_closed:
            self._request_turn(self)

    @property
    def config(self) -> ConsumerConfig:
        """The configuration."""
        return self._feed.config

    @property
    def position(self) -> int:
        """The next sequence to be looked at."""
        return self._feed.cursor.position

    @property
    def on_done(self) -> Callable[[Words], None] | None:
        """Who hears of messages that are done with."""
        return self._feed.on_done

    @on_done.setter
    def on_done(self, listener: Callable[[Words], None] | None) -> None:
        self._feed.on_done = listener

    # What comes in.

    def take_pulls(self, messages: list[tuple[bytes, bytes, bytes]]) -> None:
        """Take requests for messages: where to, the payload, the headers."""
        self._asked += [message for message in messages if message[0]]
        self.turn()

    def take_acks(self, messages: Inbound) -> None:
        """Take answers to deliveries."""
        self._answers.append(self._reader.read(messages))
        self.turn()

    def take_flow(self, subject: bytes, headers: bytes = b"") -> None:
        """Take an answer to a flow control request."""
        if self._pushing is None or not self._pushing.answered(subject):
            return
        if self.config.ack_policy is AckPolicy.FLOW_CONTROL and headers:
            self._acking.take_floor(headers)
        self.turn()

    def note_stored(self) -> None:
        """Note that messages have become durable; they are counted when somebody wants to know."""
        if self._pulling is not None:
            if len(self._pulling.pulls):
                self.turn()
        elif self._pushing is not None and self._pushing.is_active:
            self.turn()

    def note_removed(self, removed: Removed) -> None:
        """Note that messages are gone from the stream."""
        self._feed.note_removed(removed)
        self._settle()

    def note_purged(self) -> None:
        """Note that the stream begins further on because somebody purged it."""
        self._feed.note_purged()
        self._settle()
        self.turn()

    def _settle(self) -> None:
        """Follow what is gone from the stream for good."""
        if self._feed.leaving and self._feed.settle():
            self._is_touched = True
            self.turn()

    # The turn.

    def step(self, now_ns: int) -> bool:
        """Do the work of a turn; return whether there is more to do at once."""
        if self._is_closed:
            return False
        self._settle()
        if self._is_touched:
            self._is_touched = False
            self._acking.last_ns = now_ns
        try:
            self._take_answers(now_ns)
            self._take_asked(now_ns)
            due_ns = self.state.pending.next_deadline()
            if due_ns is not None and due_ns <= now_ns:
                self._feed.expire(now_ns)
            return self._deliver(now_ns)
        finally:
            self._write()  # also what was done before something failed

    def _take_answers(self, now_ns: int) -> None:
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        for some in answers:
            self._acking.take(some, now_ns)
        if self._pushing is not None:
            self._pushing.note_answer(now_ns)
        else:
            self._asked += [(reply, payload, b"") for reply, payload in self._acking.pulls]
        self._acking.pulls.clear()

    def _take_asked(self, now_ns: int) -> None:
        asked, self._asked = self._asked, []
        for inbox, payload, headers in asked:
            if self._pulling is not None:
                self._pulling.ask(inbox, payload, headers, now_ns)
            else:
                self._routes.send(inbox, b"", headers=status_headers.status(status_headers.PUSH_BASED))

    def _deliver(self, now_ns: int) -> bool:
        limit = max(16, min(TURN_MESSAGES, TURN_BYTES // self._feed.mean_size))
        is_paused = self._paused_until_ns > now_ns
        if self._pushing is not None:
            return not is_paused and self._pushing.serve(now_ns, limit)
        pulling = self._pulling
        if pulling is None or not len(pulling.pulls):
            return False
        if is_paused:
            pulling.look_if_due(now_ns, at_end=True)
            return False
        served = pulling.serve(now_ns, limit)
        if not served.more:
            pulling.look_if_due(now_ns, at_end=served.at_end)
        return served.more

    def _write(self) -> None:
        self.state.write()
        replies, self._acking.replies = self._acking.replies, []
        if replies:
            answers = Deliveries(replies, [b""] * len(replies))
            self.state.when_synced(lambda: self._routes.send_many(answers))

    # Time.

    def tick(self, now_ns: int) -> bool:
        """Do what is due by time, and the work of a turn; return whether there is more to do at once."""
        if self._is_closed:
            return False
        if self._was_paused and self._paused_until_ns <= now_ns:
            self._was_paused = False
            self._tell(Paused(self.stream.config.name, self.name, paused=False, pause_until=self._paused_until_ns))
        if self._pulling is not None:
            self._pulling.tick(now_ns)
        if self._pushing is not None:
            self._pushing.tick(now_ns)
        self.state.sync_if_due(now_ns)
        return self.step(now_ns)

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing is known of."""
        if self._is_closed:
            return None
        side = self._pulling if self._pulling is not None else self._pushing
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
        """Since when nobody uses the consumer, None if somebody does."""
        if self._pushing is not None:
            return self._pushing.inactive_since_ns
        pulling = self._pulling
        if pulling is None or any(self._routes.has_interest(inbox) for inbox in pulling.pulls.inboxes()):
            return None
        return max(pulling.last_ns, self._acking.last_ns, self._created_now_ns)

    # What it is told.

    def update(self, config: ConsumerConfig, now_ns: int) -> None:
        """Take over a checked configuration."""
        feed = self._feed
        cursor = feed.cursor
        if config.filters != feed.config.filters:
            cursor = Cursor(self.stream, config.filters, cursor.position, self.state.resume)
        feed.configure(config, cursor)
        self._acking.configure()
        if self._pulling is not None:
            self._pulling.configure(config)
        if self._pushing is not None:
            self._pushing.configure(config, now_ns)
        self._set_pause(config.paused_until_ns(), now_ns)
        self.turn()

    def pause(self, until_ns: int, now_ns: int) -> None:
        """Deliver nothing until a time; one that has passed means to go on."""
        pause_until = until_ns if until_ns != ZERO_TIME_NS else None
        self._feed.config = replace(self._feed.config, pause_until=pause_until)
        self._set_pause(until_ns, now_ns)
        self._tell(Paused(self.stream.config.name, self.name, paused=until_ns > now_ns, pause_until=until_ns))
        self.turn()

    def _set_pause(self, until_ns: int, now_ns: int) -> None:
        self._paused_until_ns = until_ns
        self._was_paused = until_ns > now_ns

    def reset(self, position: int) -> None:
        """Begin anew at a sequence that `resets_to` has returned."""
        self.state.begin(position)
        self._feed.leaving.clear()
        self._feed.configure(self.config, Cursor(self.stream, self.config.filters, position))
        self._feed.last_ns = self._acking.last_ns = 0
        self.turn()

    def resets_to(self, sequence: int) -> int:
        """Return where a reset begins: at a sequence, or where everything before is acknowledged, or `ApiError`."""
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
        """Let another client have the pin of the group."""
        if self._pulling is not None:
            self._pulling.unpin("admin")

    # What it tells.

    def info(self, now_ns: int) -> ConsumerInfo:
        """Return the consumer as it is shown."""
        state, feed, pulling = self.state, self._feed, self._pulling
        self._settle()
        if pulling is not None:
            pulling.look(now_ns)
        redelivered = 0 if feed.config.max_deliver == 1 else len(state.pending.counts)
        paused_ns = max(0, self._paused_until_ns - now_ns)
        return ConsumerInfo(
            stream_name=self.stream.config.name,
            name=self.name,
            created=self.created_ns,
            config=feed.config,
            delivered=SequenceInfo(state.delivered_consumer, state.delivered_stream, feed.last_ns or None),
            ack_floor=SequenceInfo(state.floor_consumer, state.floor_stream, self._acking.last_ns or None),
            num_ack_pending=len(state.pending),
            num_redelivered=redelivered,
            num_waiting=0 if pulling is None else len(pulling.pulls),
            num_pending=feed.cursor.left,
            push_bound=self._pushing is not None and self._pushing.is_active,
            paused=paused_ns > 0,
            pause_remaining=paused_ns,
            ts=now_ns,
            priority_groups=self._priority_groups(),
        )

    def _priority_groups(self) -> tuple[PriorityGroupState, ...]:
        groups = self.config.priority_groups
        if not groups or self._pulling is None:
            return ()
        pin = self._pulling.pin
        since_ns = pin.since_ns if pin.identifier else ZERO_TIME_NS
        return (PriorityGroupState(groups[0], pin.identifier, since_ns),)

    def wants(self, sequences: Words) -> Flags:
        """Tell which messages of some sequences, which rise, are of the wanted subjects and not done with."""
        return self._feed.cursor.lets_through(sequences) & self._is_open(sequences)

    def finished(self, first: int, last: int) -> Words:
        """Return the messages between two sequences that are still there, though this consumer is done with them."""
        delivered = self.state.delivered_stream
        found = passed(self.stream, (*self.history, Span(delivered, self.config.filters)), first, min(last, delivered))
        return found[~self._is_open(found)]

    def _is_open(self, sequences: Words) -> Flags:
        """Tell which messages the consumer, if they are its own, did not deliver yet or still waits for."""
        state = self.state
        unseen = sequences > np.uint64(state.delivered_stream)
        if self.config.ack_policy is AckPolicy.EXPLICIT:
            kept = [*state.pending.first, *state.pending.counts]
        else:
            kept = list(state.pending.counts)
            unseen = sequences > np.uint64(state.floor_stream)
        return unseen | among(sequences, np.array(kept, np.uint64))

    def end_pulls(self) -> None:
        """Tell pulls that wait that the server ends."""
        if self._pulling is not None:
            self._pulling.close(status_headers.SHUTDOWN)

    def close(self, reason: str = "") -> None:
        """Stop; pulls that wait are told why, if there is a reason."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pulling is not None:
            self._pulling.close((409, reason.encode()) if reason else None)
        if self._pushing is not None:
            self._pushing.close()
        self._pulling = self._pushing = None  # they hold this consumer
