"""Buckets on a real nats-server for tests, each fresh."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from strandline.kv import KvReader, KvStore, KvWatcher, KvWriter, StoreConfig, Watch
from strandline.kv.nats.connection import NatsConnection
from strandline.testing import CheckedKv
from tests.servers_nats import fresh_bucket
from tests.waiting import PATIENCE_S

Connects = Callable[[], NatsConnection]


def opener(connects: Connects) -> Callable[[], AbstractAsyncContextManager[CheckedKv]]:
    """Return what `check_kv_store` takes, over connections to a server."""

    @asynccontextmanager
    async def open_kv() -> AsyncIterator[CheckedKv]:
        async with connects() as connection:

            async def new_store(config: StoreConfig) -> KvStore:
                return await connection.store(fresh_bucket(), config)

            yield CheckedKv(connection, new_store, asyncio.sleep)

    return open_kv


async def bucket(
    connection: NatsConnection, config: StoreConfig | None = None, name: str = ""
) -> tuple[KvStore, KvWriter, KvWatcher]:
    """Return a bucket of a connection, with its writer and watcher."""
    store = await connection.store(name or fresh_bucket(), config or StoreConfig())
    writer, watcher = store.writer(), store.watcher()
    assert writer is not None
    assert watcher is not None
    return store, writer, watcher


async def until(condition: Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds, patiently, not for ever."""
    async with asyncio.timeout(patience_s):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


async def value(reader: KvReader, key: str) -> bytes | None:
    """Return the value of a key, None if it has none."""
    entry = await reader.get(key)
    return entry.value if entry else None


async def next_batch(watch: Watch) -> list[object]:
    """Return the next updates of a watch, patiently, not for ever."""
    return list((await asyncio.wait_for(watch.batch(), PATIENCE_S)).to_updates())
