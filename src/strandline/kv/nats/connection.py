"""A connection to NATS servers, and its buckets.

Invariants: NEW, CONNECTED, SHUTDOWN, and CONNECTED again. A nats-py client of the caller's is only
asked for its servers and credentials. A shutdown ends every watch, and leaves no thread, task or socket behind. Bulk
reads and watches have connections of their own, with the same address and credentials.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from strandline.kv.config import Capabilities, ConnectionState, StoreConfig
from strandline.kv.contracts import KvReader, KvStore, KvWatcher, KvWriter
from strandline.kv.errors import NotConnected
from strandline.kv.keys import validate_bucket
from strandline.kv.nats.bucket_api import BucketApi, open_bucket
from strandline.kv.nats.layout import write_prefix
from strandline.kv.nats.reader import NatsReader
from strandline.kv.nats.watches import NatsWatcher, Watches
from strandline.kv.nats.writer import NatsWriter
from strandline.nats.client import NatsClient
from strandline.nats.nats_py_settings import NatsPySettings
from strandline.nats.read_plan import Overrun
from strandline.nats.requests import RequestTransport
from strandline.nats.settings import DEFAULT_API, NatsSettings
from strandline.nats.streams import StreamState

if TYPE_CHECKING:
    from nats.aio.client import Client

CAPABILITIES = Capabilities(
    watch=True, write=True, compare_and_swap=True, resume=True, multi_prefix=True, ttl=True, purge=True
)


class NatsConnection:
    """A `Connection` to NATS servers, by settings or by URL."""

    def __init__(self, settings: NatsSettings | str) -> None:
        self.settings = NatsSettings(settings) if isinstance(settings, str) else settings
        self._borrowed: Client | None = None
        self._state = ConnectionState.NEW
        self._link: RequestTransport | None = None
        self._watches = Watches()
        self._changing = asyncio.Lock()

    @classmethod
    def from_client(cls, client: "Client", *, timeout_s: float = 30.0, domain: str = "", prefix: str = "") -> Self:
        """Return a connection with the servers and credentials of a nats-py client, which is only read from."""
        settings = NatsPySettings(
            "nats://client",
            client=client,
            timeout_s=timeout_s,
            domain=domain,
            prefix=prefix,
            tls_server_name=client.options.get("tls_hostname") or "",
            tls_first=bool(client.options.get("tls_handshake_first")),
        )
        connection = cls(settings)
        connection._borrowed = client
        return connection

    @property
    def state(self) -> ConnectionState:
        """Return where it stands in its life."""
        return self._state

    @property
    def capabilities(self) -> Capabilities:
        """Return what its buckets can do; a server may refuse a time to live by its version, and says so then."""
        return CAPABILITIES

    async def connect(self) -> None:
        """Connect; does nothing if it is connected.

        `LoginRefused`, `TlsRefused`, `Unreachable`; a client of the caller's must be connected, else `NotConnected`.
        """
        async with self._changing:
            if self._state is ConnectionState.CONNECTED and self._link and not self._link.is_over:
                return
            if self._borrowed is not None and (self._borrowed.is_closed or not self._borrowed.is_connected):
                raise NotConnected("that of a client which is not connected")
            self._link = await NatsClient.connect(self.settings)
            self._state = ConnectionState.CONNECTED

    async def shutdown(self) -> None:
        """End every watch and disconnect; does nothing if it is not connected."""
        async with self._changing:
            if self._state is not ConnectionState.CONNECTED or self._link is None:
                return
            self._state = ConnectionState.SHUTDOWN
            await self._watches.close()
            await self._link.close()
            self._link = None

    async def is_healthy(self) -> bool:
        """Tell whether a request would be answered now; never raises."""
        return self._link is not None and await self._link.answers()

    async def store(self, name: str, config: StoreConfig | None = None) -> KvStore:
        """Return a bucket; it is created if there is none and a config is given, else `BucketNotFound`.

        If there is one, and its settings are not those of the config, `BucketExists` names the differences.
        """
        api = BucketApi(self._linked, validate_bucket(name))
        return NatsStore(api, await open_bucket(api, config), self._bulk_settings, self._watches)

    def _linked(self) -> RequestTransport:
        if self._state is not ConnectionState.CONNECTED or self._link is None:
            raise NotConnected(self._state.value)
        if self._link.is_over:
            raise NotConnected("closed by the server or its owner")
        return self._link

    def _bulk_settings(self) -> NatsSettings:
        return self._linked().settings

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()


class NatsStore:
    """A bucket of NATS servers, with its reader, watcher and writer."""

    def __init__(
        self, api: BucketApi, info: StreamState, settings: Callable[[], NatsSettings], watches: Watches
    ) -> None:
        self._api = api
        self._info = info
        self._settings = settings
        self._watches = watches

    @property
    def name(self) -> str:
        """Return the bucket's name."""
        return self._api.bucket

    def reader(self) -> KvReader:
        """Return the bucket's reader."""
        return NatsReader(self._api, self._info, self._settings)

    def watcher(self, *, overrun: Overrun = Overrun.PROBE) -> KvWatcher | None:
        """Return the bucket's watcher."""
        return NatsWatcher(self._api, self._info, self._settings, self._watches, overrun)

    def writer(self) -> KvWriter | None:
        """Return the bucket's writer; that of a mirror writes to its origin."""
        settings = self._settings()
        is_default = settings.api_prefix == DEFAULT_API
        prefix = write_prefix(self._info) if is_default else f"{settings.api_prefix}.{write_prefix(self._info)}"
        return NatsWriter(self._api, self._info, prefix)
