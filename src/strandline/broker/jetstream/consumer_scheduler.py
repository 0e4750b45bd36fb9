"""Consumers in the commit cycle: it takes acknowledgements and pulls to them, and lets each deliver.

Invariants: a consumer that asked for a step gets one, after gathered publishes are stored. A consumer with more work
gets another step in the next cycle, so that it does not delay the others. A consumer that fails is loaded again, and
the others are not affected. An acknowledgement to an unknown consumer gets a no-responders status.
"""

from collections.abc import Callable

from strandline.broker.api.consumer_config import AckPolicy
from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.registry import Registry
from strandline.broker.jetstream.stream_sink import headers_of
from strandline.broker.routes import Inbound, Routes
from strandline.broker.timers import Timers

_SHORT_DOTS, _LONG_DOTS = 8, 10
"""Number of dots in an ack subject: exactly, without a domain; at least, with one."""


class ConsumerScheduler:
    """The consumers of one account, and which of them are ready for a step."""

    def __init__(self, routes: Routes, timers: Timers, wake: Callable[[], None]) -> None:
        self.consumers: Registry
        self._routes = routes
        self._timers = timers
        self._wake = wake
        self._ready: dict[Consumer, None] = {}

    def request_turn(self, consumer: Consumer) -> None:
        """Give a consumer a step soon."""
        self._ready[consumer] = None
        self._wake()

    def flush(self, now_ns: int) -> None:
        """Give each ready consumer its step."""
        if not self._ready:
            return
        ready, self._ready = self._ready, {}
        for consumer in ready:
            self._do(consumer, consumer.step, now_ns)

    def _tick(self, consumer: Consumer, now_ns: int) -> None:
        self._do(consumer, consumer.tick, now_ns)

    def _do(self, consumer: Consumer, what: Callable[[int], bool], now_ns: int) -> None:
        try:
            if what(now_ns):
                self.request_turn(consumer)
            due_ns = consumer.next_due_ns
        except Exception as error:  # noqa: BLE001 - the error is this consumer's alone
            self.consumers.loader.lose(consumer, error)
            return
        self._timers.set(consumer, due_ns, lambda due_ns: self._tick(consumer, due_ns))

    def forget(self, consumer: Consumer) -> None:
        """Give a consumer no more steps."""
        self._ready.pop(consumer, None)
        self._timers.set(consumer, None, lambda _: None)

    # Input of clients to consumers.

    def take(self, messages: Inbound) -> None:
        """Take acknowledgements, on `$JS.ACK.>`."""
        head = _head(messages.subjects[0])
        size = len(head)
        if head and {subject[:size] for subject in messages.subjects} == {head}:
            self._acks(head, messages)
            return
        rows: dict[bytes, list[int]] = {}
        for row, subject in enumerate(messages.subjects):
            rows.setdefault(_head(subject), []).append(row)
        for head, chosen in rows.items():
            part = Inbound(messages.frames.pick(chosen), [messages.subjects[row] for row in chosen], messages.origin)
            self._acks(head, part)

    def _acks(self, head: bytes, messages: Inbound) -> None:
        consumer = self._named(head)
        if consumer is None or consumer.config.ack_policy is AckPolicy.NONE:
            self._routes.no_responders(messages, list(range(len(messages))))
            return
        consumer.take_acks(messages)

    def _named(self, head: bytes) -> Consumer | None:
        words = head.decode(errors="surrogateescape").split(".")
        return self.consumers.find(words[-3], words[-2]) if head else None


class FlowSink:
    """Takes answers to flow control, on `$JS.FC.>`."""

    def __init__(self, scheduler: ConsumerScheduler) -> None:
        self._scheduler = scheduler

    def take(self, messages: Inbound) -> None:
        """Bring them to their consumers."""
        consumers, headers = self._scheduler.consumers, headers_of(messages.frames) or [b""] * len(messages)
        for subject, block in zip(messages.subjects, headers, strict=True):
            words = subject.decode(errors="surrogateescape").split(".")
            consumer = consumers.find(words[2], words[3]) if len(words) > 4 else None  # noqa: PLR2004
            if consumer is not None:
                try:
                    consumer.take_flow(subject, block)
                except Exception as error:  # noqa: BLE001 - the error is this consumer's alone
                    consumers.loader.lose(consumer, error)


def _head(subject: bytes) -> bytes:
    """Return an ack subject up to its consumer, with the dot; empty if it is none."""
    dots = subject.count(b".")
    words = 4 if dots == _SHORT_DOTS else 6 if dots >= _LONG_DOTS else 0
    return b".".join(subject.split(b".", words)[:words]) + b"." if words else b""
