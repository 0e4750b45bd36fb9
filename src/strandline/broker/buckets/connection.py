"""A connection to the buckets of a server in this process.

Invariants: NEW, CONNECTED, SHUTDOWN, and CONNECTED again. It owns nothing of the server, and a shutdown ends its
watches. It may be used from the server's own loop, or from that of another thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from strandline.broker.buckets.reader import EmbeddedReader
from strandline.broker.buckets.server_link import AccountJetStream, ServerLink
from strandline.broker.buckets.transport import EmbeddedTransport
from strandline.broker.buckets.watch import EmbeddedWatch
from strandline.broker.settings import GLOBAL_ACCOUNT
from strandline.errors import Closed
from strandline.kv.config import Capabilities, ConnectionState, Retention, StoreConfig
from strandline.kv.contracts import KvReader, KvStore, KvWatcher, KvWriter, Watch
from strandline.kv.entries import WatchCursor, parse_cursor
from strandline.kv.errors import NotConnected
from strandline.kv.keys import key_filter, validate_bucket
from strandline.kv.nats.bucket_api import BucketApi, open_bucket
from strandline.kv.nats.layout import retention_of, write_prefix
from strandline.kv.nats.writer import NatsWriter
from strandline.kv.watch_forms import WatchForms
from strandline.nats.errors import JetStreamDisabled
from strandline.nats.read_plan import Overrun
from strandline.nats.streams import StreamState

if TYPE_CHECKING:
    from strandline.broker.server import Server

CAPABILITIES = Capabilities(
    watch=True, write=True, compare_and_swap=True, resume=True, multi_prefix=True, ttl=True, purge=True
)


class EmbeddedConnection:
    """A `Connection` to one account's JetStream, which runs on `loop`."""

    def __init__(self, jetstream: AccountJetStream, loop: asyncio.AbstractEventLoop) -> None:
        self._server = ServerLink(jetstream, loop)
        self._state = ConnectionState.NEW
        self._transport = EmbeddedTransport(self._server)
        self.watches: list[EmbeddedWatch] = []

    @classmethod
    def to(cls, server: "Server", account: str = GLOBAL_ACCOUNT) -> Self:
        """Return a connection to an account of a server in this process; `JetStreamDisabled` if it has no JetStream."""
        if account not in server.jetstreams:
            raise JetStreamDisabled
        return cls(server.jetstreams[account], server.loop)

    @property
    def state(self) -> ConnectionState:
        """Return the state of the connection."""
        return self._state

    @property
    def capabilities(self) -> Capabilities:
        """Return what its buckets can do."""
        return CAPABILITIES

    async def connect(self) -> None:
        """Connect; idempotent."""
        if not self._server.is_running:
            raise NotConnected("the server is not running")
        self._state = ConnectionState.CONNECTED

    async def shutdown(self) -> None:
        """Stop every watch and disconnect; idempotent."""
        if self._state is not ConnectionState.CONNECTED:
            return
        self._state = ConnectionState.SHUTDOWN
        for watch in list(self.watches):
            await watch.close(Closed("the connection"))

    async def is_healthy(self) -> bool:
        """Tell whether a request would be answered now; never raises."""
        return self._state is ConnectionState.CONNECTED and self._server.is_running

    async def store(self, name: str, config: StoreConfig | None = None) -> KvStore:
        """Return a bucket, created from `config` if it is missing; `BucketNotFound` without a config.

        If the bucket exists with other settings, `BucketExists` names the differences.
        """
        api = BucketApi(self._linked, validate_bucket(name))
        return EmbeddedStore(self, api, await open_bucket(api, config))

    def server(self) -> ServerLink:
        """Return the link to the server; `NotConnected` unless it is connected."""
        self._linked()
        return self._server

    def _linked(self) -> EmbeddedTransport:
        if self._state is not ConnectionState.CONNECTED:
            raise NotConnected(self._state.value)
        return self._transport

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()


class EmbeddedStore:
    """A bucket of a server in this process, with its reader, watcher and writer."""

    def __init__(self, connection: EmbeddedConnection, api: BucketApi, info: StreamState) -> None:
        self._connection = connection
        self._api = api
        self._info = info

    @property
    def name(self) -> str:
        """Return the bucket's name."""
        return self._api.bucket

    def reader(self) -> KvReader:
        """Return the bucket's reader."""
        return EmbeddedReader(self._connection.server, self._info)

    def watcher(self, *, overrun: Overrun = Overrun.PROBE) -> KvWatcher | None:
        """Return the bucket's watcher; its watches notice undelivered removals at once, whatever `overrun` says."""
        del overrun
        return EmbeddedWatcher(self._connection, self._api, self._info)

    def writer(self) -> KvWriter | None:
        """Return the bucket's writer; that of a mirror writes to its origin, which must be on this server."""
        return NatsWriter(self._api, self._info, write_prefix(self._info))


class EmbeddedWatcher(WatchForms):
    """The watcher of a bucket."""

    def __init__(self, connection: EmbeddedConnection, api: BucketApi, info: StreamState) -> None:
        self._connection = connection
        self._api = api
        self._info = info

    async def retention(self) -> Retention:
        """Return the bucket's current retention."""
        return retention_of(await self._api.info())

    async def _watch(self, prefixes: Sequence[str], cursor: WatchCursor | None) -> Watch:
        key_filter(prefixes)
        after = None if cursor is None else parse_cursor(cursor)
        watches = self._connection.watches
        watch = EmbeddedWatch(self._connection.server(), self._info, prefixes, _without(watches))
        watches.append(watch)
        return await watch.begin(after)


def _without(watches: list[EmbeddedWatch]) -> Callable[[EmbeddedWatch], None]:
    def forget(watch: EmbeddedWatch) -> None:
        if watch in watches:
            watches.remove(watch)

    return forget
