"""The side of a consumer that is asked for messages.

Invariants: a pull gets messages, then at most one status that ends it; heartbeats come between. A pull is refused with
the status and the text of nats-server, in the order of its checks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strandline.broker.api.advisories import Advisory, GroupPinned, GroupUnpinned
from strandline.broker.api.consumer_config import ConsumerConfig, PriorityPolicy
from strandline.broker.api.consumer_requests import BadPull, PullRequest, parse_pull
from strandline.broker.consumers import status_headers
from strandline.broker.consumers.feed import Feed, Parcel
from strandline.broker.consumers.flow_control import fitting
from strandline.broker.consumers.pins import Pin
from strandline.broker.consumers.pull_queue import Pull, Pulls, make_pull
from strandline.broker.consumers.status_headers import Status
from strandline.broker.routes import Routes
from strandline.broker.streams.service import has_level

LOOK_NS = 1_000_000_000
"""How often pulls that wait are looked through at most, if nothing asks for it."""
PRIORITY_MAX = 9


@dataclass(slots=True)
class Served:
    """How far serving came."""

    more: bool
    """There is more to do at once."""
    at_end: bool
    """Nothing more can be delivered, and not because too much is outstanding."""


class Pulling:
    """Takes pulls, and serves them."""

    def __init__(self, feed: Feed, routes: Routes, tell: Callable[[Advisory], None], turn: Callable[[], None]) -> None:
        self._feed = feed
        self._routes = routes
        self._tell = tell
        self._turn = turn
        config = feed.config
        by_priority = config.priority_policy is PriorityPolicy.PRIORITIZED
        self.pulls = Pulls(config.max_waiting, by_priority=by_priority)
        self.pin = Pin(config.priority_timeout)
        self.last_ns = 0
        """When somebody asked, or was given, something last."""
        self._looked_ns = 0
        self._has_new = False
        """A pull has come in this turn."""
        self._due_ns: int | None = None

    def configure(self, config: ConsumerConfig) -> None:
        """Take over what may change."""
        self.pulls.waiting_max = config.max_waiting
        self.pin.timeout_ns = config.priority_timeout

    # Asking.

    def ask(self, inbox: bytes, payload: bytes, headers: bytes, now_ns: int) -> None:
        """Take a pull: let it wait, or refuse it."""
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
        is_formal = payload.lstrip().startswith(b"{")
        refusal = self._check_limits(request) or (self._check_priority(request, now_ns) if is_formal else b"")
        if refusal:
            return refusal
        if self.pulls.is_full and now_ns - self._looked_ns > LOOK_NS:
            self.look(now_ns)
        if request.no_wait:
            refusal = self._check_no_wait(request, now_ns)
            if refusal:
                return refusal
        if self.pulls.is_full:
            return b"" if request.idle_heartbeat else status_headers.status(status_headers.MAX_WAITING)
        pull = make_pull(inbox, request, now_ns, is_formal=is_formal)
        self.pulls.add(pull)
        self._has_new = True
        self._note_due(pull)
        return b""

    def _check_limits(self, request: PullRequest) -> bytes:
        config = self._feed.config
        if 0 < config.max_batch < request.batch:
            return status_headers.status((409, b"Exceeded MaxRequestBatch of %d" % config.max_batch))
        if 0 < config.max_expires < request.expires:
            shown = status_headers.format_duration(config.max_expires).encode()
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
            self.look(now_ns)
            if there < self.pulls.wanted:
                return status_headers.status(status_headers.REQUESTS_PENDING)
        return b""

    # Serving.

    def serve(self, now_ns: int, limit: int) -> Served:
        """Deliver about so many messages at most."""
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

    def _is_over(self, pull: Pull, now_ns: int) -> bool:
        """Tell whether the first pull cannot be served, and take it out if so."""
        if pull.expires_ns and now_ns >= pull.expires_ns:
            self._end(pull, status_headers.TIMEOUT)
        elif self._routes.has_interest(pull.inbox):
            return False
        self.pulls.remove_first()
        return True

    def _allowed(self, pull: Pull, now_ns: int) -> int | None:
        """Return how many messages a pull may have now, None if it was refused for good."""
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

    def _allowed_by_pin(self, pull: Pull, wanted: int, now_ns: int) -> int | None:
        pin = self.pin
        if pull.pin and pull.pin != pin.identifier:
            self._end(pull, status_headers.WRONG_PIN)
            self.pulls.remove_first()
            return None
        if not pin.identifier and pull.group:
            pull.pin = pin.give(now_ns)
            self._tell(GroupPinned("", self._feed.stream.config.name, self._feed.name, pull.group, pull.pin))
        return wanted if pull.pin == pin.identifier else 0

    def _room(self, pull: Pull) -> int:
        room = self._routes.room(pull.inbox)
        if room <= 0:
            self._routes.when_room(pull.inbox, self._turn)
        return max(0, room)

    def _serve_one(self, pull: Pull, limit: int, room: int, now_ns: int) -> int | None:
        """Deliver up to so many messages to the first pull; return how many, None if there are none."""
        parcel = self._feed.next(limit, room, now_ns)
        if parcel is None:
            return None
        if self._feed.config.priority_policy is PriorityPolicy.PINNED_CLIENT:
            parcel.pin(self.pin.identifier)
        count = len(parcel)
        if pull.size > 0:
            count = self._fit(pull, parcel)
            if not count:
                return 0
        taken = self._routes.deliver(pull.inbox, parcel.first(count))
        self._feed.delivered(parcel, taken, now_ns)
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

    def _fit(self, pull: Pull, parcel: Parcel) -> int:
        """Return how many messages go into what is left of a pull's bytes; if none does, it ends."""
        sizes = parcel.sizes()
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

    def _end(self, pull: Pull, what: Status) -> None:
        self._routes.send(pull.inbox, b"", headers=status_headers.status_pending(what, pull.wanted, pull.size))

    # Waiting.

    def look(self, now_ns: int, *, at_end: bool = False) -> None:
        """Look through the pulls that wait: end those that are over, send heartbeats."""
        self._looked_ns = now_ns
        self._due_ns = None
        self.pulls.keep(lambda pull: self._still_waits(pull, now_ns, at_end=at_end))

    def look_if_due(self, now_ns: int, *, at_end: bool) -> None:
        """Look through the pulls if one is over, or if one has just come and it has been long.

        An acknowledgement is no reason to: a client that is away for a moment finds its pulls when it comes back.
        """
        has_new, self._has_new = self._has_new, False
        if not len(self.pulls):
            self._due_ns = None
            return
        is_due = self._due_ns is not None and self._due_ns <= now_ns
        if is_due or (has_new and now_ns - self._looked_ns > LOOK_NS) or (at_end and self.pulls.any_no_wait()):
            self.look(now_ns, at_end=at_end)

    def _still_waits(self, pull: Pull, now_ns: int, *, at_end: bool) -> bool:
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

    def _note_due(self, pull: Pull) -> None:
        for time_ns in (pull.expires_ns, pull.beat_ns):
            if time_ns and (self._due_ns is None or time_ns < self._due_ns):
                self._due_ns = time_ns

    def next_due_ns(self) -> int | None:
        """Return when `tick` has something to do."""
        due = [time_ns for time_ns in (self._due_ns, self.pin.until_ns) if time_ns is not None]
        return min(due, default=None)

    def tick(self, now_ns: int) -> None:
        """End pulls that are over, send heartbeats, let a pin go that was not used for long."""
        if self._due_ns is not None and self._due_ns <= now_ns:
            self.look(now_ns, at_end=True)
        if self.pin.until_ns is not None and self.pin.until_ns <= now_ns:
            self.unpin("timeout")

    def unpin(self, reason: str) -> None:
        """Pin to nobody."""
        if not self.pin.identifier:
            return
        self.pin.release()
        group = self._feed.config.priority_groups[0]
        self._tell(GroupUnpinned("", self._feed.stream.config.name, self._feed.name, group, reason))
        self._turn()

    def close(self, what: Status | None) -> None:
        """End every pull, with a status if there is one to tell."""
        for pull in self.pulls.take_all():
            if what == status_headers.SHUTDOWN:
                self._end(pull, what)
            elif what is not None:
                self._routes.send(pull.inbox, b"", headers=status_headers.status(what))
