"""Delivery to the deliver subject of a push consumer.

Invariants: nothing is sent while no client is subscribed to exactly the deliver subject (a wildcard does not count),
while the flow control window is full, or faster than the rate limit or the replay allows; a heartbeat is sent after an
idle interval.
"""

from collections.abc import Callable

from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig
from strandline.broker.consumers import status_headers
from strandline.broker.consumers.feed import DeliveryBatch, Feed
from strandline.broker.consumers.flow_control import RateLimit, Window
from strandline.broker.routes import Cancel, Deliveries, Routes

PAYLOAD_MAX = 1 << 20
"""The burst of the rate limit, if the stream has no `max_msg_size`."""


class PushDelivery:
    """The deliveries of one push consumer."""

    def __init__(self, feed: Feed, routes: Routes, turn: Callable[[], None], now_ns: int) -> None:
        self._feed = feed
        self._routes = routes
        self._turn = turn
        self._cancel: Cancel | None = None
        self.is_active = False
        self.inactive_since_ns: int | None = now_ns
        self._beat_ns: int | None = None
        self._ready_ns: int | None = None
        self._window: Window | None = None
        self._rate: RateLimit | None = None
        self._rate_bps = 0
        self._subject, self._queue = b"", b""
        self.configure(feed.config, now_ns)

    def configure(self, config: ConsumerConfig, now_ns: int) -> None:
        """Apply a changed configuration."""
        if config.flow_control and self._window is None:
            self._window = Window(f"$JS.FC.{self._feed.stream.config.name}.{self._feed.name}.".encode())
        if config.rate_limit_bps != self._rate_bps:
            burst = self._feed.stream.config.max_msg_size
            self._rate_bps = config.rate_limit_bps
            self._rate = (
                RateLimit(config.rate_limit_bps / 8, burst if burst > 0 else PAYLOAD_MAX, now_ns)
                if config.rate_limit_bps
                else None
            )
        subject, queue = config.deliver_subject.encode(), config.deliver_group.encode()
        if (subject, queue) != (self._subject, self._queue):
            if self._cancel is not None:
                self._cancel()
            self._subject, self._queue = subject, queue
            self._cancel = self._routes.watch_interest(subject, self._turn)
        self.check_interest(now_ns)
        if self._beat_ns is None and config.idle_heartbeat:
            self._beat_ns = now_ns + config.idle_heartbeat

    def check_interest(self, now_ns: int) -> None:
        """Check whether the deliver subject has a subscriber."""
        is_active = self._routes.has_subscription(self._subject, self._queue)
        if is_active:
            self.inactive_since_ns = None
        elif self.is_active or self.inactive_since_ns is None:
            self.inactive_since_ns = now_ns
        self.is_active = is_active

    def note_ack(self, now_ns: int) -> None:
        """Note an acknowledgement: the consumer is in use even without a subscriber."""
        if self.inactive_since_ns is not None:
            self.inactive_since_ns = now_ns

    # Sending.

    def serve(self, now_ns: int, limit: int) -> bool:
        """Deliver up to about `limit` messages; return whether more work is ready."""
        self._ready_ns = None
        self.check_interest(now_ns)
        feed = self._feed
        while self.is_active and limit > 0 and not (self._window and self._window.is_stalled):
            room = self._routes.room(self._subject)
            if room <= 0:
                self._routes.when_room(self._subject, self._turn)
                return False
            batch = feed.next(limit, room, now_ns)
            if batch is None:
                return False
            count = self._fits(batch, now_ns)
            if not count:
                return False
            taken = self._send(batch, count)
            feed.delivered(batch, taken, now_ns)
            self._note_sent(batch, taken, now_ns)
            limit -= max(1, taken)
            if taken < count:
                self.check_interest(now_ns)
        return self.is_active and limit <= 0 and feed.available() > 0

    def _send(self, batch: DeliveryBatch, count: int) -> int:
        if not self._queue:
            return self._routes.deliver(self._subject, batch.first(count))
        # One by one, so that the group's members share the messages.
        for at in range(count):
            if not self._routes.deliver(self._subject, batch.part(at, at + 1), self._queue):
                return at
        return count

    def _fits(self, batch: DeliveryBatch, now_ns: int) -> int:
        count = len(batch)
        if self._rate is not None:
            fitting = self._rate.fits(batch.sizes(), now_ns)
            count = min(count, fitting)
            if not fitting:
                self._ready_ns = self._rate.ready_ns(batch.sizes()[0])
        if count and self._window is not None:
            count = min(count, self._window.fits(batch.sizes()))
        return count

    def _note_sent(self, batch: DeliveryBatch, count: int, now_ns: int) -> None:
        if not count:
            return
        config = self._feed.config
        if config.idle_heartbeat:
            self._beat_ns = now_ns + config.idle_heartbeat
        if self._rate is not None:
            self._rate.sent(batch.sizes()[:count])
        if self._window is not None:
            must_ask = config.ack_policy is AckPolicy.FLOW_CONTROL and self._feed.is_full
            request = self._window.sent(batch.sizes()[:count], ask=must_ask)
            if request:
                self._ask(request)

    def _ask(self, request: bytes) -> None:
        self._send_status(status_headers.FLOW_REQUEST, request)

    def _send_status(self, headers: bytes, reply: bytes = b"") -> None:
        replies = [reply] if reply else None
        self._routes.deliver(self._subject, Deliveries([self._subject], [b""], replies, [headers]), self._queue)

    def answered(self, subject: bytes) -> bool:
        """Take a reply to a flow control request; return whether it is to the pending one."""
        return self._window is not None and self._window.answered(subject)

    # Timers.

    def next_due_ns(self) -> int | None:
        """Return when `tick` or `serve` is due."""
        due = [time_ns for time_ns in (self._beat_ns, self._ready_ns) if time_ns is not None]
        return min(due, default=None)

    def tick(self, now_ns: int) -> None:
        """Send a heartbeat if one is due."""
        if self._beat_ns is None or self._beat_ns > now_ns:
            return
        self._beat_ns = now_ns + self._feed.config.idle_heartbeat
        if not self.is_active:
            return
        window, state = self._window, self._feed.state
        stalled = window.request if window is not None else b""
        self._send_status(status_headers.heartbeat(state.delivered_consumer, self._feed.cursor.position - 1, stalled))
        is_acked_by_flow = self._feed.config.ack_policy is AckPolicy.FLOW_CONTROL
        if window is not None and is_acked_by_flow and len(state.pending) and not window.request:
            self._ask(window.ask())

    def close(self) -> None:
        """Stop watching the deliver subject."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
