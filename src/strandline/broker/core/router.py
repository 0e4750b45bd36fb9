"""Where the messages of one account go: from publishers to sinks, subscriptions and queue groups, in runs.

Invariants: a subscription hears the messages of one publisher in their order, each once, and never after it has ended.
Messages that one route takes go together; what differs is cut into runs that keep the order wherever somebody could
see it. Of a queue group one member hears a message, never one that is closing while another is not. A client that
asked for it is told when nobody hears its request.

Everything here is on the server's own thread; whoever is to be called "soon" is handed to `soon`.
"""

import random
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

from strandline.broker.core import message_trace
from strandline.broker.core.interest_watchers import Interest
from strandline.broker.core.message_frames import for_many, from_columns, from_frames, from_one, without_headers
from strandline.broker.core.message_trace import MessageTrace
from strandline.broker.core.outbox import ROOM_BYTES_MAX
from strandline.broker.core.session import Session
from strandline.broker.core.sublist import Sublist
from strandline.broker.core.subscriptions import Entry, Route, SinkEntry, Subscription
from strandline.broker.routes import Cancel, Deliveries, Inbound, Origin, Sink
from strandline.wire import FrameBatch, FrameParser, Side, WireLimits, format_pub

ROUTES_APART_MAX = 16
COMMON_MIN = 4
FAN_OUT_SAMPLE = 4
CROWD_MIN = 32
"""So many subscriptions are served client by client."""
CROWD_BYTES_MAX = 1 << 20
"""About so much is put into an outbox at once: a client that does not read is cut off after little more than it may."""
LINE_BYTES = 128
"""A guess of what a message takes beside its payload."""
_BEGINNING = itemgetter(slice(8))
"""Enough of a subject to tell `$JS.ACK.` from `$JS.API.`."""

_REQUESTS = (b"$JS.API.", b"$SYS.REQ.")
"""Where the server itself answers."""
_REPORTS = WireLimits(payload_bytes_max=1 << 30, line_bytes_max=1 << 20)

Segment = tuple[Route, int, int]
"""A route, and the rows that take it: the first, and the one after the last."""

Soon = Callable[[Callable[[], None]], object]


class Router:
    """The subjects of one account; implements `broker.routes.Routes`."""

    def __init__(self, account: str, soon: Soon) -> None:
        self.account = account
        self.sessions: dict[int, Session] = {}
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self._sublist: Sublist[Entry, Route] = Sublist(Route)
        self._interest = Interest(soon)
        self._turn = random.randrange(1 << 20)  # noqa: S311 - which member of a queue group is first is no secret

    # Clients

    def join(self, session: Session) -> None:
        """Take a client into the account."""
        self.sessions[session.client_id] = session

    def leave(self, session: Session) -> None:
        """Let go of a client and of what it subscribed to."""
        self.sessions.pop(session.client_id, None)
        for subscription in list(session.subscriptions.values()):
            self.unsubscribe_client(subscription)
        self._interest.left(session)

    def subscribe_client(self, subscription: Subscription) -> None:
        """Let a client hear the subjects of its subscription's pattern."""
        self._sublist.add(subscription.pattern, subscription)
        self._interest.changed(subscription.pattern)

    def unsubscribe_client(self, subscription: Subscription) -> None:
        """End a subscription; harmless if it has ended."""
        own = subscription.session.subscriptions
        if own.get(subscription.sid) is not subscription:
            return
        del own[subscription.sid]
        subscription.remaining = 0
        if subscription.session.tracer is not None:
            subscription.session.tracer.ended(subscription.sid)
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
        """Look at every session anew: one of them has learned what its client is like."""
        self._sublist.forget_all()

    @property
    def subscription_count(self) -> int:
        """Return how many subscriptions and sinks there are."""
        return len(self._sublist)

    # Publishing

    def publish(self, frames: FrameBatch, session: Session) -> None:
        """Send what a client published; whether it may was looked at before."""
        count, size = len(frames), frames.message_bytes()
        self.in_msgs += count
        self.in_bytes += size
        session.in_msgs += count
        session.in_bytes += size
        subjects = frames.subject_list()
        route = self._sublist.find_common(subjects)
        if route is not None:
            self._follow(route, frames, subjects, session)
            return
        for rows in _runs(self._segments(subjects)):
            # What an earlier run did may have ended a subscription: the route is asked for again.
            own = [subjects[row] for row in rows] if len(rows) < count else subjects
            self._follow(self._sublist.find(own[0]), frames.pick(rows), own, session)

    def publish_traced(self, frames: FrameBatch, session: Session, trace: MessageTrace) -> None:
        """Send one message that is traced; one that is only traced goes nowhere, but streams look at it."""
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
        groups = [_able(members, session) for members in route.queues.values()]
        self._turn += 1
        for subscription in (*route.plain, *(able[self._turn % len(able)] for able in groups)):
            problem = _obstacle(subscription, subject, session)
            if not problem and not trace.only:
                self._hand(subscription, frames, session)
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
        """Send something of the server's own to clients and streams of the account."""
        self.send(subject, payload, headers=headers)
        sinks = [sink for sink in self._sublist.find(subject).sinks if getattr(sink, "is_stream", False)]
        if sinks:
            frames = FrameParser(Side.CLIENT, _REPORTS).feed(format_pub(subject, payload, b"", headers))
            for sink in sinks:
                sink.take(Inbound(frames, [subject], Origin(0, self.account)))

    def fan_out(self, frames: FrameBatch, start: int) -> int:
        """Return how many subscriptions hear a message of a batch at most, by a sample of those from a place on."""
        count, widest = len(frames) - start, 0
        for number in range(start, len(frames), 1 + count // FAN_OUT_SAMPLE):
            subject = frames.subject_at(number)
            if subject:
                widest = max(widest, len(self._sublist.find(subject).plain))
        return widest

    def _segments(self, subjects: list[bytes]) -> list[Segment]:
        """Return neighbours that have one route, with one question for those that begin alike."""
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

    def _follow(self, route: Route, frames: FrameBatch, subjects: list[bytes], session: Session) -> None:
        if route.special and len(subjects) > 1:
            self._follow_singly(frames, subjects, session)
            return
        heard = bool(route.sinks)
        for sink in route.sinks:
            sink.take(Inbound(frames, subjects, session.origin))
        if route.has_clients:
            heard |= self._to_clients(route, frames, session)
        if not heard and session.no_responders and frames.has_replies():
            self.no_responders(Inbound(frames, subjects, session.origin), range(len(subjects)))

    def _follow_singly(self, frames: FrameBatch, subjects: list[bytes], session: Session) -> None:
        """Send each message by itself: some subscription may take one and not the next."""
        for number, subject in enumerate(subjects):
            self._follow(self._sublist.find(subject), frames.part(number, number + 1), [subject], session)

    def _to_clients(self, route: Route, frames: FrameBatch, session: Session) -> bool:
        heard = False
        if len(route.plain) >= CROWD_MIN and not route.special and frames.is_tidy:
            heard = self._to_crowd(route, frames)
        else:
            for subscription in route.plain:
                heard |= self._hand(subscription, frames, session)
        for members in route.queues.values():
            heard |= self._hand_to_group(members, frames, session)
        return heard

    def _to_crowd(self, route: Route, frames: FrameBatch) -> bool:
        """Put messages into the outboxes of many subscriptions that take everything, those of one client together."""
        heard, count, size = False, len(frames), frames.message_bytes()
        together = max(1, CROWD_BYTES_MAX // (size + count * LINE_BYTES))
        for session, subscriptions, sids in route.crowd:
            if not all(each.remaining for each in subscriptions):  # one has ended since the route was asked for
                heard |= True in [self._hand(each, frames, session) for each in subscriptions]
                continue
            for first in range(0, len(sids), together):
                some = sids[first : first + together]
                if not session.write(for_many(frames, some), count * len(some), size * len(some)):
                    break  # it is on its way out
                heard = True
                self.out_msgs += count * len(some)
                self.out_bytes += size * len(some)
                for each in subscriptions[first : first + together]:
                    each.delivered += count
        return heard

    def _hand_to_group(self, members: tuple[Subscription, ...], frames: FrameBatch, session: Session) -> bool:
        self._turn += 1
        able = _able(members, session)
        if len(frames) == 1:
            turn = self._turn
            return any(self._hand(able[(turn + n) % len(able)], frames, session) for n in range(len(able)))
        heard = False
        for number, member in enumerate(able):
            rows = range((number + self._turn) % len(able), len(frames), len(able))
            heard |= bool(rows) and self._hand(member, frames.pick(rows), session)
        self._turn += len(frames)
        return heard

    def _hand(self, subscription: Subscription, frames: FrameBatch, publisher: Session) -> bool:
        """Put messages into a client's outbox; return whether it takes them."""
        session, count = subscription.session, len(frames)
        if subscription.remaining == 0 or (session is publisher and not session.echo):
            return False
        denied = session.gate.denied
        if denied is not None and denied.has(frames[0].subject, subscription.queue):
            return False
        if session.headers:
            data, size = from_frames(frames, subscription.sid), frames.message_bytes()
        else:
            data = without_headers(frames, subscription.sid)
            size = sum(end - start for start, end in frames.spans("payload_start", "payload_end"))
        if not session.write(data, count, size):
            return False
        if session.gate.responses is not None:
            session.gate.responses.expect(frames.replies(), session.clock.now_ns())
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

    def subscribe(self, pattern: bytes, sink: Sink) -> Cancel:
        """Let a sink hear what clients publish on subjects of a pattern."""
        entry = SinkEntry(sink)
        self._sublist.add(pattern, entry)
        return lambda: self._sublist.remove(pattern, entry)

    def has_interest(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether some client listens on a subject; with a queue, whether one does so in that queue group."""
        route = self._sublist.find(subject)
        return queue in route.queues if queue else route.has_clients

    def has_subscription(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether a client has subscribed to a subject itself, by no wildcard, in that queue group or in none."""
        route = self._sublist.find(subject)
        return any(each.pattern == subject for each in (route.queues.get(queue, ()) if queue else route.plain))

    def watch_interest(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        """Call somebody, soon, whenever a client begins or ends to listen on subjects that a subject matches."""
        return self._interest.watch(subject, changed)

    def room(self, subject: bytes) -> int:
        """Return how many bytes may be sent now to the one of those who listen on a subject that has most room.

        One that only looks on, and reads slowly, holds nobody up: he is cut off as for any message.
        """
        route = self._sublist.find(subject)
        if route.only is not None:
            return route.only.session.room
        open_ones = (each.session for each in _all(route) if each.session.closing is None)
        return max((session.room for session in open_ones), default=ROOM_BYTES_MAX)

    def when_room(self, subject: bytes, go_on: Callable[[], None]) -> None:
        """Call somebody once, soon, when there is room for a subject again or nobody listens on it any more."""
        sessions = [each.session for each in _all(self._sublist.find(subject))]
        self._interest.wait_for_room([each for each in sessions if not each.has_room], go_on)

    def send(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> bool:
        """Send one message to whoever listens on its subject; return whether somebody does."""
        messages = Deliveries([subject], [payload], [reply] if reply else None, [headers] if headers else None)
        return bool(self._deliver(self._sublist.find(subject), messages))

    def send_many(self, messages: Deliveries) -> None:
        """Send messages, each to whoever listens on its own subject; such as answers to many requests."""
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
        """Send messages, whatever their subjects, to whoever listens on one subject, as a consumer does."""
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
        """Tell the senders of some messages that nobody is there to answer them."""
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
        """Put messages into the outboxes of a route's clients; with `whole` they all go to one member of a group."""
        only = route.only
        if only is not None and not route.special:
            return self._hand_columns(only, messages)
        if route.special and len(messages) > 1 and not whole:
            find = self._sublist.find
            singles = [_pick(messages, [row]) for row in range(len(messages))]
            return True in [self._deliver(find(each.subjects[0]), each) for each in singles]
        heard = False
        for subscription in route.plain:
            heard |= self._hand_columns(subscription, messages)
        for members in route.queues.values():
            self._turn += 1
            able = _able(members)
            able = [each for each in able if each.session.room] or able
            turn = self._turn
            heard |= any(self._hand_columns(able[(turn + n) % len(able)], messages) for n in range(len(able)))
        return heard

    def _hand_columns(self, subscription: Subscription, messages: Deliveries) -> bool:
        session = subscription.session
        if subscription.remaining == 0:
            return False
        denied = session.gate.denied
        if denied is not None:
            queue = subscription.queue
            kept = [row for row, subject in enumerate(messages.subjects) if not denied.has(subject, queue)]
            if not kept:
                return True  # it is heard, and kept from the client
            messages = messages if len(kept) == len(messages) else _pick(messages, kept)
        if not session.headers and messages.headers is not None:
            messages = Deliveries(messages.subjects, messages.payloads, messages.replies)
        data, size = from_columns(messages, subscription.sid), messages.message_bytes
        if not session.write(data, len(messages), size):
            return False
        if session.gate.responses is not None and messages.replies is not None:
            session.gate.responses.expect(messages.replies, session.clock.now_ns())
        self._count(subscription, len(messages), size)
        return True


def _obstacle(subscription: Subscription, subject: bytes, publisher: Session) -> str:
    """Return why a message on a subject does not go to a subscription, empty if it does."""
    session = subscription.session
    if subscription.remaining == 0:
        return message_trace.SUBSCRIPTION_CLOSED
    if session is publisher and not session.echo:
        return message_trace.NO_ECHO
    denied = session.gate.denied
    if denied is not None and denied.has(subject, subscription.queue):
        return message_trace.SUBSCRIPTION_DENIES
    return message_trace.CLIENT_CLOSED if session.closing is not None else ""


def _all(route: Route) -> list[Subscription]:
    return [*route.plain, *(member for members in route.queues.values() for member in members)]


def _able(members: tuple[Subscription, ...], publisher: Session | None = None) -> Sequence[Subscription]:
    """Return the members that are not closing and that may hear the publisher, or all if there is none."""
    able = [
        each
        for each in members
        if each.session.closing is None and each.remaining and (each.session is not publisher or each.session.echo)
    ]
    return able or members


def _runs(segments: list[Segment]) -> list[Sequence[int]]:
    """Return the rows of each run: by route if the routes have nobody in common, else those of neighbours.

    A sink that says `is_ordered` acts on what others were sent before it, and on nothing that comes after.
    """
    apart = {id(route): route for route, _, _ in segments}
    if len(apart) == len(segments) or len(apart) > ROUTES_APART_MAX or not _are_apart(list(apart.values())):
        return [range(first, end) for _, first, end in segments]
    rows: dict[int, list[int]] = {}
    for route, first, end in segments:
        rows.setdefault(id(route), []).extend(range(first, end))
    return list(rows.values())


def _are_apart(routes: list[Route]) -> bool:
    if any(getattr(sink, "is_ordered", False) for route in routes for sink in route.sinks):
        return False
    hearers = [{id(each.session) for each in _all(route)} | set(map(id, route.sinks)) for route in routes]
    return len(set().union(*hearers)) == sum(map(len, hearers))


def _pick(messages: Deliveries, rows: Sequence[int]) -> Deliveries:
    def chosen(column: list[bytes]) -> list[bytes]:
        return [column[row] for row in rows]

    return Deliveries(
        chosen(messages.subjects),
        chosen(messages.payloads),
        None if messages.replies is None else chosen(messages.replies),
        None if messages.headers is None else chosen(messages.headers),
    )
