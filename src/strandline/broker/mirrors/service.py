"""The mirrors and sources of one account: it runs one feed for each origin of each stream.

Invariants: everything runs on the server's thread. A feed lives until the configuration of its origin changes; it ends
before the next one begins, and its origin keeps the copied messages until they are durable.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.responses import SourceInfo
from strandline.broker.mirrors.copy_plan import CopyPlan, plan_of, plans_of
from strandline.broker.mirrors.feed import RETRY_NS, Feed, LostFeed, Stored
from strandline.broker.mirrors.local_feed import LocalFeed, Released
from strandline.broker.streams import Published, Stream
from strandline.broker.streams.arrays import Words
from strandline.broker.streams.registry import source_info
from strandline.broker.streams.service import StreamService
from strandline.broker.thread_runner import Post
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.nats import NatsSettings

JOIN_S = 1.0
REMOTE_FEEDS_MAX = 128
"""How many origins at other servers an account may have; each takes a thread and a connection."""


def _ignore(stream: Stream, sequences: Words) -> None:
    del stream, sequences


def _load_client() -> None:
    """Import the client, which only mirrors of other servers need: at the start, not on the loop."""
    import strandline.broker.mirrors.nats_origin  # noqa: PLC0415
    import strandline.broker.mirrors.remote_feed  # noqa: F401, PLC0415


class Mirrors:
    """Keeps copies up to date.

    `wake` asks for `flush` soon; `post` calls a function on the server's thread; `stored` receives what a copy stored,
    before it is durable.
    """

    def __init__(
        self,
        service: StreamService,
        *,
        wake: Callable[[], None],
        post: Post,
        stored: Stored,
        remotes: "Mapping[str, NatsSettings] | None" = None,
    ) -> None:
        self._service = service
        self._wake = wake
        self._post = post
        self._told = stored
        self._remotes = remotes or {}
        self.released: Released = _ignore
        """Receives the messages of an origin that its copies hold by now."""
        self._feeds: dict[str, dict[bytes, Feed]] = {}
        self._copies: dict[str, list[LocalFeed]] = {}
        self._leaving: list[LocalFeed] = []
        """Feeds that have ended, while some of their copies are not durable yet."""
        self._busy: dict[Feed, None] = {}
        self._waiting: dict[Feed, None] = {}
        self._remote: set[Feed] = set()
        self._is_closed = False
        service.origins = self.infos
        if remotes:
            _load_client()

    # Changes of streams.

    def changed(self, name: str) -> None:
        """Follow a stream that was created, changed or removed; as a copy, and as an origin."""
        if self._is_closed:
            return
        stream = self._service.streams.get(name)
        plans = {} if stream is None else plans_of(stream.config)
        feeds = self._feeds.pop(name, {})
        for key, feed in list(feeds.items()):
            if feed.stream is not stream or plans.get(key, None) is None or plans[key].source != feed.plan.source:
                self._forget(feeds.pop(key))
        if stream is not None and plans:
            self._feeds[name] = {key: feeds.get(key) or self._begun(stream, plan) for key, plan in plans.items()}
            self._ask(*self._feeds[name].values())
        self._copies = {}
        for feed in self._all():
            if isinstance(feed, LocalFeed):
                self._copies.setdefault(feed.plan.source.name, []).append(feed)
        copies = self._copies.get(name, [])
        for feed in (*copies, *self._leaving):
            feed.attach()  # at once: the origin may be about to remove messages without interest
        self._let_leave()
        self._ask(*copies)

    def _forget(self, feed: Feed) -> None:
        self._busy.pop(feed, None)
        self._waiting.pop(feed, None)
        self._remote.discard(feed)
        if not isinstance(feed, LocalFeed):
            feed.close()
        elif not feed.leave():
            self._leaving.append(feed)

    def _let_leave(self) -> None:
        self._leaving = [feed for feed in self._leaving if not feed.leave()]

    def open(self) -> None:
        """Begin with every stream that there is."""
        for name in list(self._service.streams):
            self.changed(name)

    def note_stored(self, name: str) -> None:
        """Go on with the copies of a stream, in which something new is durable."""
        if not self._feeds and not self._leaving:
            return
        for feed in self._feeds.get(name, {}).values():
            if isinstance(feed, LocalFeed):
                feed.settle()
        self._let_leave()
        self._ask(*self._copies.get(name, ()))

    def close(self) -> None:
        """End every feed."""
        self._is_closed = True
        feeds = [*self._all(), *self._leaving]
        for feed in feeds:
            feed.close()
        for feed in feeds:
            feed.join(JOIN_S)
        self._feeds.clear()
        self._copies.clear()
        self._leaving.clear()
        self._waiting.clear()
        self._busy.clear()
        self._remote.clear()

    def _begun(self, stream: Stream, plan: CopyPlan) -> Feed:
        external = plan.source.external
        if external is None or external.api in ("", self._own_prefix):
            feed = LocalFeed(stream, plan, self._stored, self._service.streams.get, self._release)
            feed.attach()
            return feed
        settings = self._remotes.get(external.api)
        if settings is None:
            problem = f'no remote is configured for "{external.api}"'
            return LostFeed(stream, plan, self._stored, problem)
        if len(self._remote) >= REMOTE_FEEDS_MAX:
            problem = f"an account copies from no more than {REMOTE_FEEDS_MAX} streams of other servers"
            return LostFeed(stream, plan, self._stored, problem)
        from strandline.broker.mirrors.nats_origin import NatsOrigin  # noqa: PLC0415 - `_load_client` was before
        from strandline.broker.mirrors.remote_feed import RemoteFeed  # noqa: PLC0415 - as above

        name = stream.config.name
        remote: RemoteFeed | None = None

        def wake() -> None:
            self._post(lambda: None if remote is None else self._ask(remote))

        remote = RemoteFeed(stream, plan, self._stored, lambda cancel: NatsOrigin(settings, plan, name, cancel), wake)
        self._remote.add(remote)
        return remote

    @property
    def _own_prefix(self) -> str:
        return f"$JS.{self._service.domain}.API" if self._service.domain else ""

    def _stored(self, name: str, published: Published) -> None:
        self._told(name, published)

    def _release(self, stream: Stream, sequences: Words) -> None:
        if not self._is_closed:  # messages that a copy lacks must be there when the server comes back
            self.released(stream, sequences)

    # The commit cycle.

    def _ask(self, *feeds: Feed) -> None:
        if feeds and not self._is_closed:
            self._busy.update(dict.fromkeys(feeds))
            self._wake()

    def flush(self, now_ns: int) -> None:
        """Do a step of each busy feed."""
        if not self._busy:
            return
        busy, self._busy = self._busy, {}
        self._ask(*[feed for feed in busy if self._step(feed, now_ns)])

    def _step(self, feed: Feed, now_ns: int) -> bool:
        try:
            more = feed.step(now_ns)
        except StrandlineError as error:  # a copy whose storage fails affects no other
            feed.fail(str(error))
            feed.next_due_ns, more = now_ns + RETRY_NS, False
        self._waiting.pop(feed, None)
        if feed.next_due_ns is not None:
            self._waiting[feed] = None
        return more

    def tick(self, now_ns: int) -> None:
        """Resume feeds that had to wait."""
        due = [feed for feed in self._waiting if feed.next_due_ns is not None and feed.next_due_ns <= now_ns]
        for feed in due:
            del self._waiting[feed]
        self._ask(*due)

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing waits."""
        if not self._waiting:
            return None
        return min((feed.next_due_ns for feed in self._waiting if feed.next_due_ns is not None), default=None)

    def _all(self) -> list[Feed]:
        return [feed for feeds in self._feeds.values() for feed in feeds.values()]

    # Status.

    def infos(self, config: StreamConfig) -> tuple[SourceInfo | None, tuple[SourceInfo, ...]]:
        """Return the status of a stream's mirror and sources."""
        feeds = self._feeds.get(config.name, {})
        now_ns = self._service.clock.now_ns()

        def shown(plan: CopyPlan) -> SourceInfo:
            feed = feeds.get(plan.name)
            if feed is None:  # nats-server does not show the filter of a mirror that has not begun
                known = source_info(plan.source)
                return replace(known, filter_subject="") if plan.is_mirror else known
            if isinstance(feed, LocalFeed):
                feed.beat(now_ns)
            return feed.info(now_ns)

        mirror = None if config.mirror is None else shown(plan_of(config.mirror, mirror=True))
        return mirror, tuple(shown(plan_of(source, mirror=False)) for source in config.sources)
