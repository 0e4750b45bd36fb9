"""Buckets on a real nats-server for tests, each fresh."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress

import pytest

from strandline.errors import StrandlineError
from strandline.kv import KvReader, KvStore, KvWatcher, KvWriter, StoreConfig, Watch
from strandline.kv.nats.connection import NatsConnection
from strandline.nats import NatsSettings
from strandline.testing import CheckedKv, ContractBroken, KvStoreCheck, run_kv_store_check
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


TIMED = {
    "values_expire_with_the_bucket_s_age",
    "a_time_to_live_ends_one_value_only",
    "an_expired_value_leaves_a_marker_where_the_bucket_says_so",
}
"""Checks of values that live for a second or two: a machine that stalls as long sees other values expire."""


def run_on_a_server(check: KvStoreCheck, open_kv: Callable[[], AbstractAsyncContextManager[CheckedKv]]) -> None:
    """Run a check patiently; one in real time has three tries, for a promise that is broken is so each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.testing.kv_helpers.PATIENCE_S", PATIENCE_S)
        for _ in range(2 if check.__name__ in TIMED else 0):
            with suppress(ContractBroken):
                return asyncio.run(run_kv_store_check(check, open_kv))
        return asyncio.run(run_kv_store_check(check, open_kv))


async def bucket(
    connection: NatsConnection, config: StoreConfig | None = None, name: str = ""
) -> tuple[KvStore, KvWriter, KvWatcher]:
    """Return a bucket of a connection, with its writer and watcher."""
    store = await connection.store(name or fresh_bucket(), config or StoreConfig())
    writer, watcher = store.writer(), store.watcher()
    assert writer is not None
    assert watcher is not None
    return store, writer, watcher


@asynccontextmanager
async def hasty(url: str) -> AsyncIterator[tuple[NatsConnection, KvStore, KvWriter, KvWatcher]]:
    """Give a bucket with one key over a connection that soon gives a server up, as soon as a busy machine allows."""
    for timeout_s in (2.0, 10.0, 40.0):
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(NatsConnection(NatsSettings(url, timeout_s=timeout_s)))
                store, writer, watcher = await bucket(connection)
                await writer.put("a", b"1")
            except StrandlineError:
                if timeout_s == 40.0:
                    raise
                continue
            yield connection, store, writer, watcher
            return


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
