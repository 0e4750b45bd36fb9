"""A pull consumer for each part of a stream: messages from one sequence to another as columns, and counts.

A part of a stream is read so: a consumer is made that begins at the first sequence; batches are asked for, two at a
time so that the server never waits; the consumer is deleted. The end is known by the message that carries it: it has
the last sequence or a later one, or says that none is pending. Where nothing comes for a while, the consumer is asked,
since a message may be deleted after it was counted.

Invariants: messages come in the order of the stream, without gaps of the consumer's own count; after a lost connection
or consumer they go on behind the last one that was handed out. A consumer acknowledges nothing and is kept in memory,
so that reading leaves no trace in a stream that is kept by limits. A consumer that only counts is deleted at once; a
count between two sequences may be too high where messages are added meanwhile, and never too low.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np

from strandline.errors import StrandlineError
from strandline.nats.deliveries import Delivered, Taken, receive_deliveries
from strandline.nats.errors import ConnectionDropped, NoAnswer, ServerRefused, StreamNotFound, Unreachable
from strandline.nats.jetstream import JetStreamApi
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket, new_inbox
from strandline.nats.streams import StreamState
from strandline.spark.errors import invalid_input
from strandline.wire import FrameBatch, Times, format_pub

FETCH_MESSAGES = 8_192
FETCH_BYTES = 2 * 1024 * 1024
"""Two of these fit into the buffers of a connection, so that a slow reader never holds the server up."""
FETCHES_AHEAD = 2
LINGER_S = 0.002
"""How long a piece of what comes is waited for while a whole batch is on its way: larger pieces cost less."""
INACTIVE_NS = 300 * 1_000_000_000
QUIET_S = 1.0
"""When nothing came for so long, the consumer is asked whether anything will."""
OUTAGE_S = 60.0
EXPIRES_NS = 60 * 1_000_000_000
_ENDED = (404, 408, 409)
"""A request is over, with less than it asked for."""
_NS = 1_000_000_000
_NEAR = 0.75
"""A search ends at an end with this share of the allowed messages."""
_NOTHING = Taken(None, 0, 0, is_unbroken=True, others=None)
_LOST = (ConnectionDropped, NoAnswer, Unreachable)


class ConsumerLost(StrandlineError):
    """The consumer is gone, or skipped a message; another one goes on."""

    retryable = True

    def __init__(self, problem: str) -> None:
        super().__init__(f"a consumer was lost: {problem}", hint="read again")
        self.problem = problem


class Session:
    """A connection for questions and parts of one stream; made when it is needed, closed with `close`."""

    def __init__(self, settings: NatsSettings, stream: str, label: str) -> None:
        self._settings = settings
        self.stream = stream
        self.label = label
        self._socket: NatsSocket | None = None

    @property
    def socket(self) -> NatsSocket:
        """Return the connection."""
        if self._socket is None or self._socket.is_closed:
            self._socket = NatsSocket.connect(self._settings)
        return self._socket

    def state(self) -> StreamState:
        """Return the state of the stream; `InvalidInput` if there is none."""
        try:
            return self._api().stream(self.stream)
        except StreamNotFound:
            raise invalid_input(f"there is no {self.label}", "look at its name, the server and the account") from None

    def call(self, subject: str, request: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Ask the JetStream API about the stream, and return its answer; `InvalidInput` if there is no such stream."""
        try:
            return self.call_raw(subject, request)
        except StreamNotFound:
            raise invalid_input(f"there is no {self.label}", "look at its name, the server and the account") from None

    def call_raw(self, subject: str, request: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Ask the JetStream API, and return its answer; its error codes become errors."""
        return self._api().call(subject, request, self.stream)

    def _api(self) -> JetStreamApi:
        return JetStreamApi(self.socket, self._settings.api_prefix)

    def subject(self, rest: str) -> bytes:
        """Return a subject of the JetStream API."""
        return f"{self._settings.api_prefix}.{rest}".encode()

    def another(self) -> "Session":
        """Return a connection of its own for the same stream."""
        return Session(self._settings, self.stream, self.label)

    def close(self) -> None:
        """Disconnect; a second time does nothing."""
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class Consumer:
    """A pull consumer that acknowledges nothing; `start` None begins with the last message of each subject."""

    session: Session
    start: int | None
    filters: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f"strandline-{secrets.token_hex(8)}")

    def create(self) -> int:
        """Make it, and return how many messages it has."""
        return int(self._created().get("num_pending", 0))

    def first(self, time: str) -> int:
        """Make it so that it begins at a time, and return the sequence it begins with."""
        return int(self._created(time)["delivered"]["stream_seq"]) + 1

    def _created(self, time: str | None = None) -> Mapping[str, Any]:
        config: dict[str, Any] = {
            "name": self.name,
            "deliver_policy": "last_per_subject" if self.start is None else "by_start_sequence",
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "inactive_threshold": INACTIVE_NS,
            "num_replicas": 1,
            "mem_storage": True,
        }
        if time is not None:
            config |= {"deliver_policy": "by_start_time", "opt_start_time": time}
        elif self.start is not None:
            config["opt_start_seq"] = max(1, self.start)
        if self.filters or self.start is None:
            config["filter_subjects"] = list(self.filters or (">",))
        request = {"stream_name": self.session.stream, "config": config, "action": "create"}
        return self.session.call(f"CONSUMER.CREATE.{self.session.stream}.{self.name}", request)

    def pending(self) -> int:
        """Return how many messages it has still to send; `ConsumerLost` if it is gone."""
        # On a connection of its own: a request discards messages that arrive before its answer.
        with self.session.another() as other:
            try:
                return int(other.call(f"CONSUMER.INFO.{other.stream}.{self.name}").get("num_pending", 0))
            except ServerRefused as gone:
                raise ConsumerLost(str(gone)) from gone

    def delete(self) -> None:
        """Delete it without waiting for an answer; where that fails the server forgets it after a while."""
        with suppress(StrandlineError):
            subject = self.session.subject(f"CONSUMER.DELETE.{self.session.stream}.{self.name}")
            self.session.socket.send(format_pub(subject, b"", f"{new_inbox()}.0".encode()))


def fetch(
    session: Session,
    start: int | None,
    last: int | None,
    filters: tuple[str, ...] = (),
    counted: Callable[[int], None] = lambda _: None,
    *,
    times: Times = Times.ALL,
) -> Iterator[Delivered]:
    """Yield the messages of a part; `start` None begins with the state, `last` None ends where nothing is pending.

    Subjects are whole, and `times` says of which messages the times are read. `counted` is told how many messages the
    consumer has, from its start to the end of the stream.
    """
    give_up = time.monotonic() + OUTAGE_S
    handed_out = 0
    while True:
        consumer = Consumer(session, start if not handed_out else handed_out + 1, filters)
        try:
            for delivered in _fetch_all(consumer, last, counted, times):
                yield delivered
                handed_out = int(delivered.sequences[-1])
                give_up = time.monotonic() + OUTAGE_S
        except (ConsumerLost, *_LOST):
            # A listing of the last messages cannot resume in the middle: keys before it may have newer messages.
            if time.monotonic() > give_up or (start is None and handed_out):
                raise
            session.close()
            time.sleep(0.1)
            continue
        return


def find_time(session: Session, state: StreamState, time_ns: int) -> int:
    """Return the sequence of the first message that was stored at a time or later; the one to come if there is none."""
    seconds, rest = divmod(time_ns, _NS)
    moment = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
    consumer = Consumer(session, None)
    sequence = consumer.first(moment)
    consumer.delete()
    return min(max(sequence, state.first), state.last + 1)


def count_between(session: Session, start: int, stop: int, filters: tuple[str, ...] = ()) -> int:
    """Return how many messages lie in [start, stop)."""
    behind = _count_from(session, stop, filters)
    return _count_from(session, start, filters) - behind


def find_end(session: Session, start: int, stop: int, rows_max: int, filters: tuple[str, ...] = ()) -> int:
    """Return the end of a range from `start` on that has at most `rows_max` messages, or nearly, and ends by `stop`."""
    if stop - start <= rows_max or count_between(session, start, stop, filters) <= rows_max:
        return stop
    low, high = start + rows_max, stop
    while high - low > rows_max:
        middle = (low + high) // 2
        count = count_between(session, start, middle, filters)
        if count > rows_max:
            high = middle
            continue
        low = middle
        if count >= rows_max * _NEAR:
            break
    return low


def _count_from(session: Session, start: int, filters: tuple[str, ...]) -> int:
    consumer = Consumer(session, start, filters)
    count = consumer.create()
    consumer.delete()
    return count


def _fetch_all(
    consumer: Consumer, last: int | None, counted: Callable[[int], None], times: Times
) -> Iterator[Delivered]:
    count = consumer.create()
    counted(count)
    if not count:
        consumer.delete()
        return
    requests = _Requests(consumer, last, times)
    number = 0
    try:
        while (taken := requests.receive()) is not None:
            delivered = taken.delivered
            if delivered is None:
                requests.go_on(0)
                continue
            check_order(taken, number)
            number = taken.last_number
            seen = int(delivered.sequences[-1])
            is_over = not delivered.pending or (last is not None and seen >= last)
            if not is_over:
                requests.go_on(seen)
            if last is not None and seen > last:
                delivered = delivered.slice(0, int(np.searchsorted(delivered.sequences, last, "right")))
            if len(delivered):
                yield delivered
            if is_over:
                return
    finally:
        requests.end()
        consumer.delete()


def check_order(taken: Taken, number: int) -> None:
    """Raise `ConsumerLost` unless the consumer's own count goes on after a number without a gap."""
    if not taken.follows(number):
        raise ConsumerLost(f"messages from {number + 1} on did not come in order")


class _Requests:
    """Batches that were asked for and did not come yet; no more is asked for than the part has sequences left."""

    def __init__(self, consumer: Consumer, last: int | None, times: Times) -> None:
        self._consumer = consumer
        self._last = last
        self._times = times
        self._socket = consumer.session.socket
        self._inbox = new_inbox()
        self._sid = self._socket.subscribe(f"{self._inbox}.*")
        self._next = consumer.session.subject(f"CONSUMER.MSG.NEXT.{consumer.session.stream}.{consumer.name}")
        self._bytes_max = max(FETCH_BYTES, 2 * self._socket.info.payload_bytes_max)
        self._asked = 0
        self._coming = 0
        self._seen = (consumer.start or 1) - 1
        self._ask()

    def receive(self) -> Taken | None:
        """Return what came, perhaps no messages; None if no more will come."""
        linger_s = LINGER_S if self._coming >= FETCH_MESSAGES else 0.0
        taken = receive_deliveries(
            self._socket, b"", times=self._times, timeout_s=QUIET_S, linger_s=linger_s, sid=self._sid
        )
        if taken is None:
            if not self._consumer.pending():
                return None
            self._coming = 0
            return _NOTHING
        if taken.others is not None:
            self._heed(taken.others)
        if taken.delivered is not None:
            self._coming -= len(taken.delivered)
        return taken

    def go_on(self, seen: int) -> None:
        """Ask for more, after a sequence was seen."""
        self._seen = max(self._seen, seen)
        self._ask()

    def end(self) -> None:
        """Take no more."""
        with suppress(StrandlineError):
            self._socket.unsubscribe(self._sid)

    def _ask(self) -> None:
        while self._coming <= (FETCHES_AHEAD - 1) * FETCH_MESSAGES:
            left = FETCH_MESSAGES if self._last is None else self._last - self._seen - max(self._coming, 0)
            if left <= 0:
                return
            count = min(FETCH_MESSAGES, left)
            request = {"batch": count, "max_bytes": self._bytes_max, "expires": EXPIRES_NS}
            self._asked += 1
            self._coming += count
            reply = f"{self._inbox}.{self._asked}".encode()
            self._socket.send(format_pub(self._next, json.dumps(request).encode(), reply))

    def _heed(self, others: FrameBatch) -> None:
        """Note the requests that are over; a status has no ack subject as reply, and nothing else may come."""
        for number in range(len(others)):
            told = others.headers(number)
            if told.status not in _ENDED:
                raise ConsumerLost(f"status {told.status}")
            self._coming -= int(told.get("Nats-Pending-Messages") or 0)
