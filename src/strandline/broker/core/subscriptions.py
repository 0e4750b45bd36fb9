"""Subscribers of a pattern (a client's subscription or a sink), and routes: all subscribers of one subject.

Invariants: a route is immutable; when a subscription is added, removed or limited, the routes that contain it are built
anew. An ended subscription receives nothing, even from a route that still contains it.
"""

from typing import TYPE_CHECKING

from strandline.broker.routes import Sink

if TYPE_CHECKING:
    from strandline.broker.core.session import Session


class Subscription:
    """One SUB of one client; `remaining` is how many more messages it takes, -1 for any number."""

    __slots__ = ("delivered", "pattern", "queue", "remaining", "session", "sid")

    def __init__(self, session: "Session", pattern: bytes, queue: bytes, sid: bytes) -> None:
        self.session = session
        self.pattern = pattern
        self.queue = queue
        self.sid = sid
        self.remaining = -1
        self.delivered = 0


class SinkSubscription:
    """A sink, subscribed to a pattern or to several that do not overlap."""

    __slots__ = ("sink",)

    def __init__(self, sink: Sink) -> None:
        self.sink = sink


Subscriber = Subscription | SinkSubscription


class Route:
    """All subscribers of a subject: sinks, plain subscriptions, and queue groups (one member gets each message)."""

    __slots__ = ("_by_client", "only", "plain", "queues", "sinks", "special")

    def __init__(self, subscribers: tuple[Subscriber, ...]) -> None:
        subscriptions = [each for each in subscribers if isinstance(each, Subscription)]
        self.sinks = tuple(each.sink for each in subscribers if isinstance(each, SinkSubscription))
        self.plain = tuple(each for each in subscriptions if not each.queue)
        groups: dict[bytes, list[Subscription]] = {}
        for each in subscriptions:
            if each.queue:
                groups.setdefault(each.queue, []).append(each)
        self.queues = {queue: tuple(members) for queue, members in groups.items()}
        self.special = any(_is_special(each) for each in subscriptions)
        """Some subscription needs a check for each message."""
        self.only = self.plain[0] if len(self.plain) == 1 and not self.queues else None
        """The only subscription, if there is exactly one."""
        self._by_client: list[tuple[Session, tuple[Subscription, ...], tuple[bytes, ...]]] | None = None

    @property
    def by_client(self) -> "list[tuple[Session, tuple[Subscription, ...], tuple[bytes, ...]]]":
        """The plain subscriptions grouped by client, with their sids."""
        if self._by_client is None:
            found: dict[Session, list[Subscription]] = {}
            for each in self.plain:
                found.setdefault(each.session, []).append(each)
            self._by_client = [(session, tuple(own), tuple(each.sid for each in own)) for session, own in found.items()]
        return self._by_client

    @property
    def has_clients(self) -> bool:
        """Tell whether some client is subscribed."""
        return bool(self.plain or self.queues)


def _is_special(subscription: Subscription) -> bool:
    return subscription.remaining >= 0 or not subscription.session.takes_everything
