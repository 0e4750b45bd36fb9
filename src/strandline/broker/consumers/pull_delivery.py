"""Delivery to pull requests.

Invariants: a pull gets messages, then at most one status that ends it, with heartbeats between. A pull is refused with
nats-server's status and text, in the order of its checks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strandline.broker.api.advisories import Advisory, GroupPinned, GroupUnpinned
from strandline.broker.api.consumer_config import ConsumerConfig, PriorityPolicy
from strandline.broker.api.consumer_requests import BadPull, PullRequest, parse_pull
from strandline.broker.api.times import format_duration
from strandline.broker.consumers import status_headers
from strandline.broker.consumers.feed import DeliveryBatch, Feed
from strandline.broker.consumers.flow_control import fitting
from strandline.broker.consumers.pull_queue import Pin, PullQueue, WaitingPull, make_waiting_pull
from strandline.broker.consumers.status_headers import Status
from strandline.broker.routes import Routes
from strandline.broker.streams.service import has_level

CHECK_NS = 1_000_000_000
"""The shortest interval between checks of the waiting pulls, unless one is due."""
PRIORITY_MAX = 9


@dataclass(slots=True)
class Served:
    """The result of serving."""

    more: bool
    """More work is ready."""
    at_end: bool
    """No message is left, and not because `max_ack_pending` is reached."""


class PullDelivery:
    """The pulls of one consumer."""

    def __init__(self, feed: Feed, routes: Routes, tell: Callable[[Advisory], None], turn: Callable[[], None]) -> None:
        self._feed = feed
        self._routes = routes
        self._tell = tell
        self._turn = turn
        config = feed.config
        by_priority = config.priority_policy is PriorityPolicy.PRIORITIZED
        self.pulls = PullQueue(config.max_waiting, by_priority=by_priority)
        self.pin = Pin(config.priority_timeout)
        self.last_ns = 0
        """Time of the last pull request or delivery."""
        self._checked_ns = 0
        self._has_new = False
        """A pull has arrived in this turn."""
        self._due_ns: int | None = None

    def configure(self, config: ConsumerConfig) -> None:
        """Apply a changed configuration."""
        self.pulls.waiting_max = config.max_waiting
        self.pin.timeout_ns = config.priority_timeout

    # Requests.

    def request(self, inbox: bytes, payload: bytes, headers: bytes, now_ns: int) -> None:
        """Take a pull request: queue it, or refuse it."""
        refusal = self._take(inbox, payload, headers, now_ns)
        if refusal:
            self._routes.send(inbox, b"", headers=refusal)

    def _take(self, inbox: bytes, payload: bytes, headers: bytes, now_ns: int) -> bytes:
        self.last_ns = now_ns
        if headers and not has_level(headers):
            return status_headers.status(status_headers.API_LEVEL)
        try:
            request = parse_pull(payload)
        except BadPull as bad:
            return status_headers.bad_request(str(bad))
        is_json = payload.lstrip().startswith(b"{")
        refusal = self._check_limits(request) or (self._check_priority(request, now_ns) if is_json else b"")
        if refusal:
            return refusal
        if self.pulls.is_full and now_ns - self._checked_ns > CHECK_NS:
            self.check(now_ns)
        if request.no_wait:
            refusal = self._check_no_wait(request, now_ns)
            if refusal:
                return refusal
        if self.pulls.is_full:
            return b"" if request.idle_heartbeat else status_headers.status(status_headers.MAX_WAITING)
        pull = make_waiting_pull(inbox, request, now_ns, is_json=is_json)
        self.pulls.add(pull)
        self._has_new = True
        self._note_due(pull)
        return b""

    def _check_limits(self, request: PullRequest) -> bytes:
        config = self._feed.config
        if 0 < config.max_batch < request.batch:
            return status_headers.status((409, b"Exceeded MaxRequestBatch of %d" % config.max_batch))
        if 0 < config.max_expires < request.expires:
            shown = format_duration(config.max_expires).encode()
            return status_headers.status((409, b"Exceeded MaxRequestExpires of " + shown))
        if 0 < config.max_bytes < request.max_bytes:
            return status_headers.status((409, b"Exceeded MaxRequestMaxBytes of %d" % config.max_bytes))
        return b""

    def _check_priority(self, request: PullRequest, now_ns: int) -> bytes:
        policy = self._feed.config.priority_policy
        problem = ""
        if (request.min_pending or request.min_ack_pending) and policy is not PriorityPolicy.OVERFLOW:
            problem = "Not a Overflow Priority consumer"
        elif request.id and policy is not PriorityPolicy.PINNED_CLIENT:
            problem = "Not a Pinned Client Priority consumer"
        elif not 0 <= request.priority <= PRIORITY_MAX:
            problem = "Priority must be between 0 and 9"
        elif policy is not PriorityPolicy.NONE:
            if not request.group:
                problem = "Priority Group missing"
            elif request.group not in self._feed.config.priority_groups:
                problem = "Invalid Priority Group"
        if problem:
            return status_headers.bad_request(problem)
        if not self.pin.identifier or not request.id:
            return b""
        if request.id != self.pin.identifier:
            return status_headers.status(status_headers.PIN_MISMATCH)
        self.pin.prolong(now_ns)
        return b""

    def _check_no_wait(self, request: PullRequest, now_ns: int) -> bytes:
        there = self._feed.cursor.left + self._feed.state.pending.queued_count
        if not there and not request.expires:
            return status_headers.status(status_headers.NO_MESSAGES)
        if there and len(self.pulls):
            self.check(now_ns)
            if there < self.pulls.wanted:
                return status_headers.status(status_headers.REQUESTS_PENDING)
        return b""

    # Delivery.

    def serve(self, now_ns: int, limit: int) -> Served:
        """Deliver up to about `limit` messages."""
        feed, pulls = self._feed, self.pulls
        passed_over = in_round = 0
        no_room = False
        while limit > 0 and (pull := pulls.first()) is not None:
            available = feed.available()
            if not available:
                return Served(more=False, at_end=not feed.is_full)
            if self._is_over(pull, now_ns):
                continue
            allowed = self._allowed(pull, now_ns)
            room = self._room(pull)
            if allowed and room:
                in_round = in_round or pulls.rivals()
                share = -(-available // in_round)
                in_round -= 1
                done = self._serve_one(pull, min(allowed, share, limit), room, now_ns)
                if done is None:
                    return Served(more=False, at_end=feed.ready_ns is None and not feed.is_full)
                limit -= max(done, 1)
                passed_over = 0
            elif allowed is not None:
                passed_over += 1
                no_room = no_room or (bool(allowed) and not room)
                if passed_over >= len(pulls):
                    return Served(more=False, at_end=not no_room)
                pulls.rotate()
        return Served(more=len(pulls) > 0 and feed.available() > 0, at_end=False)

    def _is_over(self, pull: WaitingPull, now_ns: int) -> bool:
        """Tell whether the first pull has expired or lost its subscriber, and remove it if so."""
        if pull.expires_ns and now_ns >= pull.expires_ns:
            self._end(pull, status_headers.TIMEOUT)
        elif self._routes.has_interest(pull.inbox):
            return False
        self.pulls.remove_first()
        return True

    def _allowed(self, pull: WaitingPull, now_ns: int) -> int | None:
        """Return how many messages a pull may get now, None if it was ended."""
        policy = self._feed.config.priority_policy
        wanted = max(1, pull.wanted)
        if policy is PriorityPolicy.PINNED_CLIENT:
            return self._allowed_by_pin(pull, wanted, now_ns)
        if policy is PriorityPolicy.OVERFLOW and (pull.min_pending > 0 or pull.min_ack_pending > 0):
            if 0 < pull.min_ack_pending <= len(self._feed.state.pending):
                return wanted
            if pull.min_pending <= 0:
                return 0
            return max(0, min(wanted, self._feed.cursor.left - pull.min_pending + 1))
        return wanted

    def _allowed_by_pin(self, pull: WaitingPull, wanted: int, now_ns: int) -> int | None:
        pin = self.pin
        if pull.pin and pull.pin != pin.identifier:
            self._end(pull, status_headers.WRONG_PIN)
            self.pulls.remove_first()
            return None
        if not pin.identifier and pull.group:
            pull.pin = pin.give(now_ns)
            self._tell(GroupPinned("", self._feed.stream.config.name, self._feed.name, pull.group, pull.pin))
        return wanted if pull.pin == pin.identifier else 0

    def _room(self, pull: WaitingPull) -> int:
        room = self._routes.room(pull.inbox)
        if room <= 0:
            self._routes.when_room(pull.inbox, self._turn)
        return max(0, room)

    def _serve_one(self, pull: WaitingPull, limit: int, room: int, now_ns: int) -> int | None:
        """Deliver up to `limit` messages to the first pull; return how many, None if there are none."""
        batch = self._feed.next(limit, room, now_ns)
        if batch is None:
            return None
        if self._feed.config.priority_policy is PriorityPolicy.PINNED_CLIENT:
            batch.pin(self.pin.identifier)
        count = len(batch)
        if pull.size > 0:
            count = self._fit(pull, batch)
            if not count:
                return 0
        taken = self._routes.deliver(pull.inbox, batch.first(count))
        self._feed.delivered(batch, taken, now_ns)
        self.last_ns = now_ns
        pull.wanted -= taken
        pull.delivered += taken
        if pull.wanted <= 0:
            self.pulls.remove_first()
            if pull.size > 0:
                self._end(pull, status_headers.COMPLETED)
        else:
            pull.beat_ns = now_ns + pull.every_ns if pull.every_ns else 0
            self.pulls.rotate()
        return taken

    def _fit(self, pull: WaitingPull, batch: DeliveryBatch) -> int:
        """Return how many messages fit into the remaining bytes of a pull; if none does, end the pull."""
        sizes = batch.sizes()
        count = fitting(sizes, pull.size)
        if not count:
            self._end(pull, status_headers.TOO_LARGE)
            self.pulls.remove_first()
            if pull.pin and not pull.delivered:
                self.pin.release()
            return 0
        pull.size -= sum(sizes[:count])
        if not pull.size:
            pull.wanted = count
        return count

    def _end(self, pull: WaitingPull, what: Status) -> None:
        self._routes.send(pull.inbox, b"", headers=status_headers.status_pending(what, pull.wanted, pull.size))

    # Waiting pulls.

    def check(self, now_ns: int, *, at_end: bool = False) -> None:
        """Check the waiting pulls: end the expired ones, send heartbeats."""
        self._checked_ns = now_ns
        self._due_ns = None
        self.pulls.keep(lambda pull: self._still_waits(pull, now_ns, at_end=at_end))

    def check_if_due(self, now_ns: int, *, at_end: bool) -> None:
        """Check the waiting pulls if one is due, or if a new one arrived and the last check is long ago.

        An acknowledgement is no reason: a client that reconnects finds its pulls.
        """
        has_new, self._has_new = self._has_new, False
        if not len(self.pulls):
            self._due_ns = None
            return
        is_due = self._due_ns is not None and self._due_ns <= now_ns
        if is_due or (has_new and now_ns - self._checked_ns > CHECK_NS) or (at_end and self.pulls.any_no_wait()):
            self.check(now_ns, at_end=at_end)

    def _still_waits(self, pull: WaitingPull, now_ns: int, *, at_end: bool) -> bool:
        if pull.expires_ns and now_ns >= pull.expires_ns:
            self._end(pull, status_headers.TIMEOUT)
            return False
        if at_end and pull.no_wait and (not pull.expires_ns or pull.delivered):
            self._routes.send(pull.inbox, b"", headers=status_headers.status(status_headers.NO_MESSAGES))
            return False
        if not self._routes.has_interest(pull.inbox):
            return False
        if pull.beat_ns and now_ns >= pull.beat_ns:
            state = self._feed.state
            block = status_headers.heartbeat(state.delivered_consumer, self._feed.cursor.position - 1)
            self._routes.send(pull.inbox, b"", headers=block)
            pull.beat_ns = now_ns + pull.every_ns
        self._note_due(pull)
        return True

    def _note_due(self, pull: WaitingPull) -> None:
        for time_ns in (pull.expires_ns, pull.beat_ns):
            if time_ns and (self._due_ns is None or time_ns < self._due_ns):
                self._due_ns = time_ns

    def next_due_ns(self) -> int | None:
        """Return when `tick` is due."""
        due = [time_ns for time_ns in (self._due_ns, self.pin.until_ns) if time_ns is not None]
        return min(due, default=None)

    def tick(self, now_ns: int) -> None:
        """End expired pulls, send heartbeats, release a pin that timed out."""
        if self._due_ns is not None and self._due_ns <= now_ns:
            self.check(now_ns, at_end=True)
        if self.pin.until_ns is not None and self.pin.until_ns <= now_ns:
            self.unpin("timeout")

    def unpin(self, reason: str) -> None:
        """Release the pin."""
        if not self.pin.identifier:
            return
        self.pin.release()
        group = self._feed.config.priority_groups[0]
        self._tell(GroupUnpinned("", self._feed.stream.config.name, self._feed.name, group, reason))
        self._turn()

    def close(self, what: Status | None) -> None:
        """End every pull, with a status if one is given."""
        for pull in self.pulls.take_all():
            if what == status_headers.SHUTDOWN:
                self._end(pull, what)
            elif what is not None:
                self._routes.send(pull.inbox, b"", headers=status_headers.status(what))
