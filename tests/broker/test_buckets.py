"""Buckets of a server in the same process keep the contract of all buckets, from its own loop and from another."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from strandline.broker.buckets import EmbeddedConnection
from strandline.broker.embedded_server import serve
from strandline.broker.server import Server
from strandline.broker.settings import GLOBAL_ACCOUNT, ServerSettings
from strandline.broker.streams import Stream
from strandline.broker.streams.storage import JournalLog
from strandline.errors import Closed, StorageRefused
from strandline.journal import WRITTEN
from strandline.kv import (
    BucketNotFound,
    BucketPurged,
    CursorExpired,
    Discard,
    KvStore,
    KvUpdate,
    KvWatcher,
    KvWriter,
    NotConnected,
    Put,
    StoreConfig,
    Watch,
    format_revision,
)
from strandline.kv.nats import NatsConnection
from strandline.testing import KV_STORE_CHECKS, CheckedKv, KvStoreCheck
from tests.kv.nats.opening import run_on_a_server
from tests.waiting import PATIENCE_S

NUMBERS = itertools.count(1)
SETTINGS = ServerSettings(port=0, durability=WRITTEN)


def connected(server: Server) -> EmbeddedConnection:
    return EmbeddedConnection.to(server)


def checked(connection: EmbeddedConnection) -> CheckedKv:
    async def new_store(config: StoreConfig) -> KvStore:
        return await connection.store(f"b{next(NUMBERS)}", config)

    return CheckedKv(connection, new_store, asyncio.sleep)


@asynccontextmanager
async def open_here() -> AsyncIterator[CheckedKv]:
    """Serve on the loop that uses the buckets."""
    async with serve(SETTINGS) as server, connected(server) as connection:
        yield checked(connection)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Server]:
    """Serve on a loop of another thread."""
    started: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        over = asyncio.Event()
        async with serve(SETTINGS) as server:
            started.set_result((server, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    server, loop, over = started.result(PATIENCE_S)
    yield server
    loop.call_soon_threadsafe(over.set)
    thread.join()


SLOW = ("values_expire_with_the_bucket_s_age", "an_expired_value_leaves_a_marker_where_the_bucket_says_so")


def checks() -> Iterator[ParameterSet]:
    """Return every check; those that wait for time to pass are for long runs."""
    for check in KV_STORE_CHECKS:
        marks = [pytest.mark.long] if check.__name__ in SLOW else []
        yield pytest.param(check, marks=marks, id=check.__name__)


@pytest.mark.parametrize("check", list(checks()))
def test_buckets_of_another_thread_keep_the_contract(elsewhere: Server, check: KvStoreCheck) -> None:
    @asynccontextmanager
    async def open_kv() -> AsyncIterator[CheckedKv]:
        async with connected(elsewhere) as connection:
            yield checked(connection)

    run_on_a_server(check, open_kv)


@pytest.mark.parametrize(
    "name",
    [
        "a_watch_tells_the_state_and_then_what_is_written",
        "a_watch_from_a_cursor_tells_only_what_follows",
        "update_wants_the_version_of_the_last_write",
        "a_shutdown_ends_every_watch",
    ],
)
def test_buckets_of_the_same_loop_keep_the_contract(name: str) -> None:
    check = next(check for check in KV_STORE_CHECKS if check.__name__ == name)
    run_on_a_server(check, open_here)


async def bucket(connection: EmbeddedConnection, config: StoreConfig) -> tuple[KvStore, KvWriter, KvWatcher]:
    store = await connection.store("b", config)
    writer, watcher = store.writer(), store.watcher()
    assert writer is not None
    assert watcher is not None
    return store, writer, watcher


async def hear(watch: Watch) -> list[KvUpdate]:
    return (await asyncio.wait_for(watch.batch(), PATIENCE_S)).to_updates()


async def hear_out(watch: Watch) -> None:
    while True:
        await hear(watch)


def test_buckets_are_those_that_clients_see() -> None:
    async def run() -> None:
        async with serve(SETTINGS) as server, connected(server) as ours, NatsConnection(server.url) as theirs:
            _, writer, watcher = await bucket(ours, StoreConfig(history=3))
            store = await theirs.store("b")
            other = store.writer()
            assert other is not None
            async with await watcher.watch_all() as watch:
                first = await writer.put("k", b"ours")
                assert await store.reader().get("k") is not None
                second = await other.update("k", b"theirs", first)
                assert await hear(watch) == [Put("k", b"ours", first)]
                assert await hear(watch) == [Put("k", b"theirs", second)]

    asyncio.run(run())


def test_a_slow_watch_passes_over_what_was_replaced_and_says_when_something_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strandline.broker.buckets.watch.AHEAD_MAX", 1)

    async def run() -> None:
        async with serve(SETTINGS) as server, connected(server) as connection:
            _, writer, watcher = await bucket(connection, StoreConfig(updates_max=4, discard=Discard.OLD))
            async with await watcher.watch_all() as watch:
                for number in range(9):
                    last = await writer.put("k", b"%d" % number)
                told = await hear(watch)
                told += await hear(watch)
                assert (told[0].version, told[-1].version, len(told)) == (format_revision(1), last, 2)
                for number in range(9):
                    await writer.put(f"other.{number}", b"1")
                with pytest.raises(CursorExpired):
                    await hear_out(watch)

    asyncio.run(run())


def test_a_watch_hears_that_its_bucket_was_purged_or_removed() -> None:
    async def run() -> None:
        async with serve(SETTINGS) as server, connected(server) as connection:
            store, writer, watcher = await bucket(connection, StoreConfig())
            await writer.put("k", b"1")
            purged, removed = await watcher.watch_all(), await watcher.watch_prefix("none.")
            streams = server.jetstreams["$G"].streams
            streams.request("$JS.API.STREAM.PURGE.KV_b", b"", b"", 0)
            with pytest.raises(BucketPurged):
                await hear_out(purged)
            with pytest.raises(BucketPurged):
                await hear(removed)
            gone = await watcher.watch_all()
            streams.delete("KV_b")
            with pytest.raises(BucketNotFound):
                await hear(gone)
            with pytest.raises(BucketNotFound):
                await store.reader().get("k")

    asyncio.run(run())


def test_a_connection_to_a_server_that_has_ended_says_so() -> None:
    async def run() -> EmbeddedConnection:
        async with serve(SETTINGS) as server:
            connection = connected(server)
            await connection.connect()
            await bucket(connection, StoreConfig())
            return connection

    connection = asyncio.run(run())

    async def after() -> None:
        assert not await connection.is_healthy()
        with pytest.raises(Closed):
            await connection.store("b")
        await connection.shutdown()
        with pytest.raises(NotConnected):
            await connection.connect()

    asyncio.run(after())


def test_a_watch_tells_only_what_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serve(SETTINGS) as server, connected(server) as connection:
            _, writer, watcher = await bucket(connection, StoreConfig())
            await writer.put("a", b"1")
            monkeypatch.setattr(Stream, "durable_seq", 1)
            async with await watcher.watch_all() as watch:
                await writer.put("b", b"1")
                assert [update.key for update in await hear(watch)] == ["a"]
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(watch.batch(), 0.05)
                assert watch.frontier == 1
                await writer.put("c", b"1")
                monkeypatch.setattr(Stream, "durable_seq", 2)
                await writer.put("d", b"1")
                assert [update.key for update in await hear(watch)] == ["b"]
                assert watch.frontier == 2

    asyncio.run(run())


def test_what_was_never_stored_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageRefused("the disk", "is full", "ENOSPC")

    async def run() -> None:
        async with serve(SETTINGS) as server, connected(server) as connection:
            store, writer, watcher = await bucket(connection, StoreConfig())
            reader = store.reader()
            assert reader is not None
            await writer.put("a", b"1")
            monkeypatch.setattr(JournalLog, "append", fail)
            with pytest.raises(StorageRefused):
                await writer.put("a", b"never")
            streams = server.jetstreams[GLOBAL_ACCOUNT].streams.streams
            async with asyncio.timeout(PATIENCE_S):
                while any(stream.failure is not None for stream in streams.values()):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.001)
            found = await reader.get("a")
            assert found is not None
            assert found.value == b"1"
            assert [update.key for update in await reader.history("a")] == ["a"]
            async with await watcher.watch_all() as watch:
                assert [update.key for update in await hear(watch)] == ["a"]

    asyncio.run(run())


def test_who_stops_waiting_takes_nothing_from_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with serve(store_dir=tmp_path) as server, connected(server) as connection:
            store, writer, _ = await bucket(connection, StoreConfig())
            reader = store.reader()
            assert reader is not None
            await writer.put("a", b"1")
            for number in range(30):
                written = asyncio.ensure_future(writer.put("a", b"%d" % number))
                await asyncio.sleep(0)
                read = asyncio.ensure_future(reader.get("a"))
                for _ in range(number % 6):
                    await asyncio.sleep(0)
                read.cancel()
                await asyncio.wait([read])
                await written
            found = await reader.get("a")
            assert found is not None
            assert found.value == b"29"

    asyncio.run(run())
