"""Memory buckets for tests, with a clock that moves only when told."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from strandline.clock import ManualClock
from strandline.kv import KvStore, KvWatcher, KvWriter, MemoryConnection, MemoryServer, StoreConfig
from strandline.testing import CheckedKv

Connects = Callable[[MemoryServer], MemoryConnection]


def opener(connects: Connects = MemoryConnection) -> Callable[[], AbstractAsyncContextManager[CheckedKv]]:
    """Return what `check_kv_store` takes, over connections of some kind."""

    @asynccontextmanager
    async def open_kv() -> AsyncIterator[CheckedKv]:
        clock = ManualClock()
        connection = connects(MemoryServer(clock))
        await connection.connect()
        numbers = itertools.count()

        async def new_store(config: StoreConfig) -> KvStore:
            return await connection.store(f"bucket-{next(numbers)}", config)

        async def pass_time(seconds: float) -> None:
            clock.advance(seconds)

        yield CheckedKv(connection, new_store, pass_time)

    return open_kv


async def bucket(
    connection: MemoryConnection, config: StoreConfig | None = None, name: str = "b"
) -> tuple[KvStore, KvWriter, KvWatcher]:
    """Return a bucket of a connection, connected if it is not, with its writer and watcher."""
    await connection.connect()
    exists = config is None and name in connection.server.buckets
    store = await connection.store(name, None if exists else config or StoreConfig())
    writer, watcher = store.writer(), store.watcher()
    assert writer is not None
    assert watcher is not None
    return store, writer, watcher
