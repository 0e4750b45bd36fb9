"""The router of one account: messages from publishers to sinks, subscriptions and queue groups, in runs.

Invariants: a subscription receives the messages of one publisher in order, each once, and none after it has ended.
Messages with the same route are delivered together; others are split into runs that keep every observable order. One
member of a queue group receives a message, never one that is closing while another is open. A client with
`no_responders` gets a 503 when its request has no receiver.

Everything here runs on the server's thread; deferred callbacks are handed to `soon`.
"""

import random
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

from strandline.broker.core import message_trace
from strandline.broker.core.interest_watchers import InterestWatchers
from strandline.broker.core.message_frames import for_many, from_columns, from_frames, from_one, without_headers
from strandline.broker.core.message_trace import MessageTrace
from strandline.broker.core.outbox import ROOM_BYTES_MAX
from strandline.broker.core.session import Session
from strandline.broker.core.sublist import Sublist
from strandline.broker.core.subscriptions import Route, SinkSubscription, Subscriber, Subscription
from strandline.broker.routes import Cancel, Deliveries, Inbound, Origin, Sink
from strandline.wire import FrameBatch, FrameParser, Side, WireLimits, format_pub

DISJOINT_ROUTES_MAX = 16
COMMON_MIN = 4
FAN_OUT_SAMPLE = 4
BY_CLIENT_MIN = 32
"""From this many plain subscriptions on, they are served client by client."""
BY_CLIENT_BYTES_MAX = 1 << 20
"""About how much is queued at once: a client that does not read exceeds its limit by no more than this."""
LINE_BYTES = 128
"""An estimate of the size of a control line."""
_BEGINNING = itemgetter(slice(8))
"""A prefix long enough to tell `$JS.ACK.` from `$JS.API.`."""

_REQUESTS = (b"$JS.API.", b"$SYS.REQ.")
"""Subjects that the server answers itself."""
_REPORTS = WireLimits(payload_bytes_max=1 << 30, line_bytes_max=1 << 20)

Segment = tuple[Route, int, int]
"""A route and its rows: the first, and the one after the last."""

Soon = Callable[[Callable[[], None]], object]


class Router:
    """The subjects of one account; implements `broker.routes.Routes`."""

    def __init__(self, account: str, soon: Soon) -> None:
        self.account = account
        self.sessions: dict[int, Session] = {}
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self._sublist: Sublist[Subscriber, Route] = Sublist(Route)
        self._interest = InterestWatchers(soon)
        self._turn = random.randrange(1 << 20)  # noqa: S311 - which member of a queue group is first is no secret

    # Clients

    def join(self, session: Session) -> None:
        """Add a client to the account."""
        self.sessions[session.client_id] = session

    def leave(self, session: Session) -> None:
        """Remove a client and its subscriptions."""
        self.sessions.pop(session.client_id, None)
        for subscription in list(session.subscriptions.values()):
            self.unsubscribe_client(subscription)
        self._interest.disconnected(session)

    def subscribe_client(self, subscription: Subscription) -> None:
        """Add a client's subscription."""
        self._sublist.add(subscription.pattern, subscription)
        self._interest.changed(subscription.pattern)

    def unsubscribe_client(self, subscription: Subscription) -> None:
        """End a subscription; idempotent."""
        own = subscription.session.subscriptions
        if own.get(subscription.sid) is not subscription:
            return
        del own[subscription.sid]
        subscription.remaining = 0
        if subscription.session.tracer is not None:
            subscription.session.tracer.unsubscribed(subscription.sid)
        self._sublist.remove(subscription.pattern, subscription)
        self._interest.changed(subscription.pattern)

    def limit_client(self, subscription: Subscription, remaining: int) -> None:
        """End a subscription after some more messages."""
        if remaining <= 0:
            self.unsubscribe_client(subscription)
            return
        subscription.remaining = remaining
        self._sublist.renew(subscription.pattern)

    def renew(self) -> None:
        """Rebuild every route: the options of some session have changed."""
        self._sublist.forget_all()

    @property
    def subscription_count(self) -> int:
        """Return the number of subscriptions and sinks."""
        return len(self._sublist)

    # Publishing

    def publish(self, frames: FrameBatch, session: Session) -> None:
        """Route messages of a client; permissions were checked before."""
        count, size = len(frames), frames.message_bytes()
        self.in_msgs += count
        self.in_bytes += size
        session.in_msgs += count
        session.in_bytes += size
        subjects = frames.subject_list()
        route = self._sublist.find_common(subjects)
        if route is not None:
            self._route_run(route, frames, subjects, session)
            return
        for rows in _runs(self._segments(subjects)):
            # An earlier run may have ended a subscription: look the route up again.
            own = [subjects[row] for row in rows] if len(rows) < count else subjects
            self._route_run(self._sublist.find(own[0]), frames.pick(rows), own, session)

    def publish_traced(self, frames: FrameBatch, session: Session, trace: MessageTrace) -> None:
        """Route one traced message; with `only` it is not delivered, and streams only check it."""
        subject, size = frames[0].subject, frames.message_bytes()
        self.in_msgs += 1
        self.in_bytes += size
        session.in_msgs += 1
        session.in_bytes += size
        route = self._sublist.find(subject)
        messages = Inbound(frames, [subject], session.origin, trace)
        heard = False
        for sink in route.sinks:
            heard |= self._trace_to_sink(sink, messages, trace)
        groups = [_eligible(members, session) for members in route.queues.values()]
        self._turn += 1
        for subscription in (*route.plain, *(eligible[self._turn % len(eligible)] for eligible in groups)):
            problem = _obstacle(subscription, subject, session)
            if not problem and not trace.only:
                self._deliver_frames(subscription, frames, session)
            trace.note_egress(subscription, problem)
            heard |= not problem
        if not heard and session.no_responders and frames.has_replies():
            self.no_responders(messages, [0])
        trace.end()

    def _trace_to_sink(self, sink: Sink, messages: Inbound, trace: MessageTrace) -> bool:
        if getattr(sink, "is_stream", False):
            trace.wait_for_stream()
        else:
            if messages.subjects[0].startswith(_REQUESTS):
                trace.note_request()
            if trace.only:
                return False
        sink.take(messages)
        return True

    def publish_report(self, subject: bytes, payload: bytes, headers: bytes) -> None:
        """Publish a message of the server to clients and streams of the account."""
        self.send(subject, payload, headers=headers)
        sinks = [sink for sink in self._sublist.find(subject).sinks if getattr(sink, "is_stream", False)]
        if sinks:
            frames = FrameParser(Side.CLIENT, _REPORTS).feed(format_pub(subject, payload, b"", headers))
            for sink in sinks:
                sink.take(Inbound(frames, [subject], Origin(0, self.account)))

    def fan_out(self, frames: FrameBatch, start: int) -> int:
        """Return the largest number of plain subscriptions of a message, over a sample of a batch from `start` on."""
        count, widest = len(frames) - start, 0
        for number in range(start, len(frames), 1 + count // FAN_OUT_SAMPLE):
            subject = frames.subject_at(number)
            if subject:
                widest = max(widest, len(self._sublist.find(subject).plain))
        return widest

    def _segments(self, subjects: list[bytes]) -> list[Segment]:
        """Return the segments of neighbours with one route, with one lookup for subjects with a common prefix."""
        find, segments, at = self._sublist.find, list[Segment](), 0
        for _, alike in groupby(subjects, key=_BEGINNING):
            run = list(alike)
            common = self._sublist.find_common(run) if len(run) >= COMMON_MIN else None
            pieces = [(common, len(run))] if common is not None else [(find(subject), 1) for subject in run]
            for route, count in pieces:
                if segments and segments[-1][0] is route:
                    segments[-1] = (route, segments[-1][1], at + count)
                else:
                    segments.append((route, at, at + count))
                at += count
        return segments

    def _route_run(self, route: Route, frames: FrameBatch, subjects: list[bytes], session: Session) -> None:
        if route.special and len(subjects) > 1:
            self._route_singly(frames, subjects, session)
            return
        heard = bool(route.sinks)
        for sink in route.sinks:
            sink.take(Inbound(frames, subjects, session.origin))
        if route.has_clients:
            heard |= self._deliver_to_clients(route, frames, session)
        if not heard and session.no_responders and frames.has_replies():
            self.no_responders(Inbound(frames, subjects, session.origin), range(len(subjects)))

    def _route_singly(self, frames: FrameBatch, subjects: list[bytes], session: Session) -> None:
        """Route messages one by one: some subscription may take one and not the next."""
        for number, subject in enumerate(subjects):
            self._route_run(self._sublist.find(subject), frames.part(number, number + 1), [subject], session)

    def _deliver_to_clients(self, route: Route, frames: FrameBatch, session: Session) -> bool:
        heard = False
        if len(route.plain) >= BY_CLIENT_MIN and not route.special and frames.is_tidy:
            heard = self._deliver_by_client(route, frames)
        else:
            for subscription in route.plain:
                heard |= self._deliver_frames(subscription, frames, session)
        for members in route.queues.values():
            heard |= self._deliver_to_group(members, frames, session)
        return heard

    def _deliver_by_client(self, route: Route, frames: FrameBatch) -> bool:
        """Queue messages for many subscriptions that need no checks, those of one client together."""
        heard, count, size = False, len(frames), frames.message_bytes()
        together = max(1, BY_CLIENT_BYTES_MAX // (size + count * LINE_BYTES))
        for session, subscriptions, sids in route.by_client:
            if not all(each.remaining for each in subscriptions):  # one has ended since the lookup
                heard |= True in [self._deliver_frames(each, frames, session) for each in subscriptions]
                continue
            for first in range(0, len(sids), together):
                some = sids[first : first + together]
                if not session.write(for_many(frames, some), count * len(some), size * len(some)):
                    break  # the connection is closing
                heard = True
                self.out_msgs += count * len(some)
                self.out_bytes += size * len(some)
                for each in subscriptions[first : first + together]:
                    each.delivered += count
        return heard

    def _deliver_to_group(self, members: tuple[Subscription, ...], frames: FrameBatch, session: Session) -> bool:
        self._turn += 1
        eligible = _eligible(members, session)
        if len(frames) == 1:
            turn = self._turn
            return any(
                self._deliver_frames(eligible[(turn + n) % len(eligible)], frames, session)
                for n in range(len(eligible))
            )
        heard = False
        for number, member in enumerate(eligible):
            rows = range((number + self._turn) % len(eligible), len(frames), len(eligible))
            heard |= bool(rows) and self._deliver_frames(member, frames.pick(rows), session)
        self._turn += len(frames)
        return heard

    def _deliver_frames(self, subscription: Subscription, frames: FrameBatch, publisher: Session) -> bool:
        """Queue messages for a subscription; return whether it takes them."""
        session, count = subscription.session, len(frames)
        if subscription.remaining == 0 or (session is publisher and not session.echo):
            return False
        denied = session.permissions.denied
        if denied is not None and denied.has(frames[0].subject, subscription.queue):
            return False
        if session.headers:
            data, size = from_frames(frames, subscription.sid), frames.message_bytes()
        else:
            data = without_headers(frames, subscription.sid)
            size = sum(end - start for start, end in frames.spans("payload_start", "payload_end"))
        if not session.write(data, count, size):
            return False
        if session.permissions.responses is not None:
            session.permissions.responses.expect(frames.replies(), session.clock.now_ns())
        self._count(subscription, count, size)
        return True

    def _count(self, subscription: Subscription, count: int, size: int) -> None:
        subscription.delivered += count
        self.out_msgs += count
        self.out_bytes += size
        if subscription.remaining > 0:
            subscription.remaining -= count
            if subscription.remaining <= 0:
                self.unsubscribe_client(subscription)

    # `Routes`

    def subscribe(self, pattern: bytes | Sequence[bytes], sink: Sink) -> Cancel:
        """Subscribe a sink to a pattern, or to several that do not overlap; return what cancels it."""
        subscription, sublist = SinkSubscription(sink), self._sublist
        patterns = (pattern,) if isinstance(pattern, bytes) else pattern
        for each in patterns:
            sublist.add(each, subscription)

        def cancel() -> None:
            for each in patterns:
                sublist.remove(each, subscription)

        return cancel

    def has_interest(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether some client is subscribed to a subject; with a queue, whether one is in that queue group."""
        route = self._sublist.find(subject)
        return queue in route.queues if queue else route.has_clients

    def has_subscription(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether a client has subscribed to exactly this subject, in that queue group or in none."""
        route = self._sublist.find(subject)
        return any(each.pattern == subject for each in (route.queues.get(queue, ()) if queue else route.plain))

    def watch_interest(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        """Call `changed`, soon, whenever a subscription that matches a subject is added or removed."""
        return self._interest.watch(subject, changed)

    def room(self, subject: bytes) -> int:
        """Return how many bytes fit into the emptiest output queue among the subscribers of a subject.

        Slow observers never throttle a consumer: they are disconnected as for any message.
        """
        route = self._sublist.find(subject)
        if route.only is not None:
            return route.only.session.room
        open_ones = (each.session for each in _all(route) if each.session.closing is None)
        return max((session.room for session in open_ones), default=ROOM_BYTES_MAX)

    def when_room(self, subject: bytes, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, soon, when there is room for a subject again or it has no subscriber left."""
        sessions = [each.session for each in _all(self._sublist.find(subject))]
        self._interest.wait_for_room([each for each in sessions if not each.has_room], go_on)

    def send(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> bool:
        """Send one message to the subscribers of its subject; return whether there is one."""
        messages = Deliveries([subject], [payload], [reply] if reply else None, [headers] if headers else None)
        return bool(self._deliver(self._sublist.find(subject), messages))

    def send_many(self, messages: Deliveries) -> None:
        """Send messages, each to the subscribers of its own subject, such as replies to many requests."""
        subjects = messages.subjects
        if not subjects:
            return
        route = self._sublist.find_common(subjects)
        if route is not None:
            self._deliver(route, messages)
            return
        for rows in _runs(self._segments(subjects)):
            part = _pick(messages, rows)
            self._deliver(self._sublist.find(part.subjects[0]), part)

    def deliver(self, to: bytes, messages: Deliveries, queue: bytes = b"") -> int:
        """Send messages, whatever their subjects, to the subscribers of one subject, as a consumer does."""
        taken, count = 0, len(messages)
        while taken < count:
            route = self._sublist.find(to)
            if queue and queue not in route.queues:
                break
            limit = min([each.remaining for each in _all(route) if each.remaining >= 0], default=count)
            part = (
                messages if not taken and limit >= count else _pick(messages, range(taken, min(taken + limit, count)))
            )
            if not self._deliver(route, part, whole=True):
                break
            taken += len(part)
        return taken

    def no_responders(self, messages: Inbound, rows: Sequence[int]) -> None:
        """Send a 503 to the senders of some requests that have no responders."""
        session = self.sessions.get(messages.origin.client_id)
        if session is None or not session.no_responders:
            return
        replies = messages.frames.replies()
        for row in rows:
            own = self._own_subscription(session, replies[row]) if replies[row] else None
            if own is not None:
                headers = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % messages.subjects[row]
                session.write(from_one(replies[row], b"", b"", headers, own.sid))

    def _own_subscription(self, session: Session, reply: bytes) -> Subscription | None:
        return next((each for each in self._sublist.find(reply).plain if each.session is session), None)

    def _deliver(self, route: Route, messages: Deliveries, *, whole: bool = False) -> bool:
        """Queue messages for the clients of a route; with `whole` one member of a group gets all of them."""
        only = route.only
        if only is not None and not route.special:
            return self._deliver_columns(only, messages)
        if route.special and len(messages) > 1 and not whole:
            find = self._sublist.find
            singles = [_pick(messages, [row]) for row in range(len(messages))]
            return True in [self._deliver(find(each.subjects[0]), each) for each in singles]
        heard = False
        for subscription in route.plain:
            heard |= self._deliver_columns(subscription, messages)
        for members in route.queues.values():
            self._turn += 1
            eligible = _eligible(members)
            eligible = [each for each in eligible if each.session.room] or eligible
            turn = self._turn
            heard |= any(
                self._deliver_columns(eligible[(turn + n) % len(eligible)], messages) for n in range(len(eligible))
            )
        return heard

    def _deliver_columns(self, subscription: Subscription, messages: Deliveries) -> bool:
        session = subscription.session
        if subscription.remaining == 0:
            return False
        denied = session.permissions.denied
        if denied is not None:
            queue = subscription.queue
            kept = [row for row, subject in enumerate(messages.subjects) if not denied.has(subject, queue)]
            if not kept:
                return True  # delivered, as far as the sender knows
            messages = messages if len(kept) == len(messages) else _pick(messages, kept)
        if not session.headers and messages.headers is not None:
            messages = Deliveries(messages.subjects, messages.payloads, messages.replies)
        data, size = from_columns(messages, subscription.sid), messages.message_bytes
        if not session.write(data, len(messages), size):
            return False
        if session.permissions.responses is not None and messages.replies is not None:
            session.permissions.responses.expect(messages.replies, session.clock.now_ns())
        self._count(subscription, len(messages), size)
        return True


def _obstacle(subscription: Subscription, subject: bytes, publisher: Session) -> str:
    """Return why a message is not delivered to a subscription, empty if it is."""
    session = subscription.session
    if subscription.remaining == 0:
        return message_trace.SUBSCRIPTION_CLOSED
    if session is publisher and not session.echo:
        return message_trace.NO_ECHO
    denied = session.permissions.denied
    if denied is not None and denied.has(subject, subscription.queue):
        return message_trace.SUBSCRIPTION_DENIES
    return message_trace.CLIENT_CLOSED if session.closing is not None else ""


def _all(route: Route) -> list[Subscription]:
    return [*route.plain, *(member for members in route.queues.values() for member in members)]


def _eligible(members: tuple[Subscription, ...], publisher: Session | None = None) -> Sequence[Subscription]:
    """Return the members that are open and take messages of the publisher, or all if there is none."""
    eligible = [
        each
        for each in members
        if each.session.closing is None and each.remaining and (each.session is not publisher or each.session.echo)
    ]
    return eligible or members


def _runs(segments: list[Segment]) -> list[Sequence[int]]:
    """Return the rows of each run: by route if no two routes share a subscriber, else those of neighbours.

    A sink with `is_ordered` depends on the order of its messages relative to those of other sinks.
    """
    apart = {id(route): route for route, _, _ in segments}
    if len(apart) == len(segments) or len(apart) > DISJOINT_ROUTES_MAX or not _are_disjoint(list(apart.values())):
        return [range(first, end) for _, first, end in segments]
    rows: dict[int, list[int]] = {}
    for route, first, end in segments:
        rows.setdefault(id(route), []).extend(range(first, end))
    return list(rows.values())


def _are_disjoint(routes: list[Route]) -> bool:
    if any(getattr(sink, "is_ordered", False) for route in routes for sink in route.sinks):
        return False
    receivers = [{id(each.session) for each in _all(route)} | set(map(id, route.sinks)) for route in routes]
    return len(set().union(*receivers)) == sum(map(len, receivers))


def _pick(messages: Deliveries, rows: Sequence[int]) -> Deliveries:
    def chosen(column: list[bytes]) -> list[bytes]:
        return [column[row] for row in rows]

    return Deliveries(
        chosen(messages.subjects),
        chosen(messages.payloads),
        None if messages.replies is None else chosen(messages.replies),
        None if messages.headers is None else chosen(messages.headers),
    )
