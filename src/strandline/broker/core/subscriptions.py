"""What a pattern leads to: a client's subscription or a sink; and a route, all that one subject leads to.

Invariants: a route never changes; when a subscription comes, goes or learns its limit, routes that have it are
forgotten and made anew. A subscription that has ended is not delivered to, even by a route that still names it.
"""

from typing import TYPE_CHECKING

from strandline.broker.routes import Sink

if TYPE_CHECKING:
    from strandline.broker.core.session import Session


class Subscription:
    """What one client asked for with one SUB; `remaining` is how many more messages it takes, -1 for any number."""

    __slots__ = ("delivered", "pattern", "queue", "remaining", "session", "sid")

    def __init__(self, session: "Session", pattern: bytes, queue: bytes, sid: bytes) -> None:
        self.session = session
        self.pattern = pattern
        self.queue = queue
        self.sid = sid
        self.remaining = -1
        self.delivered = 0


class SinkEntry:
    """A sink under one of its patterns."""

    __slots__ = ("sink",)

    def __init__(self, sink: Sink) -> None:
        self.sink = sink


Entry = Subscription | SinkEntry


class Route:
    """Everybody who hears a subject: sinks, subscriptions, and queue groups, of which one member hears each message."""

    __slots__ = ("_crowd", "only", "plain", "queues", "sinks", "special")

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        subscriptions = [entry for entry in entries if isinstance(entry, Subscription)]
        self.sinks = tuple(entry.sink for entry in entries if isinstance(entry, SinkEntry))
        self.plain = tuple(entry for entry in subscriptions if not entry.queue)
        groups: dict[bytes, list[Subscription]] = {}
        for entry in subscriptions:
            if entry.queue:
                groups.setdefault(entry.queue, []).append(entry)
        self.queues = {queue: tuple(members) for queue, members in groups.items()}
        self.special = any(_is_special(entry) for entry in subscriptions)
        """Some subscription does not simply take every message."""
        self.only = self.plain[0] if len(self.plain) == 1 and not self.queues else None
        """The one client that hears it, if it is one."""
        self._crowd: list[tuple[Session, tuple[Subscription, ...], tuple[bytes, ...]]] | None = None

    @property
    def crowd(self) -> "list[tuple[Session, tuple[Subscription, ...], tuple[bytes, ...]]]":
        """The subscriptions of each client that hears it, and their numbers."""
        if self._crowd is None:
            found: dict[Session, list[Subscription]] = {}
            for each in self.plain:
                found.setdefault(each.session, []).append(each)
            self._crowd = [(session, tuple(own), tuple(each.sid for each in own)) for session, own in found.items()]
        return self._crowd

    @property
    def has_clients(self) -> bool:
        """Tell whether some client hears it."""
        return bool(self.plain or self.queues)


def _is_special(entry: Subscription) -> bool:
    return entry.remaining >= 0 or not entry.session.takes_everything
