"""Buckets of the same process: who gives up leaves nothing behind, who outlives the server waits for nothing."""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.broker.buckets import EmbeddedConnection
from strandline.broker.buckets.server_link import AccountJetStream, ServerLink
from strandline.broker.buckets.watch import StreamTap, WatchStep
from strandline.broker.embedded_server import serve
from strandline.broker.server import Server
from strandline.broker.settings import GLOBAL_ACCOUNT, ServerSettings
from strandline.broker.shutdown_hooks import ShutdownHooks
from strandline.broker.streams.storage import JournalLog
from strandline.errors import Closed, StorageRefused
from strandline.journal import WRITTEN
from strandline.kv import KvStore, KvWatcher, KvWriter, StoreConfig, Watch
from tests.waiting import PATIENCE_S

SETTINGS = ServerSettings(port=0, durability=WRITTEN)


def roles(store: KvStore) -> tuple[KvWriter, KvWatcher]:
    writer, watcher = store.writer(), store.watcher()
    assert writer is not None
    assert watcher is not None
    return writer, watcher


def listening(server: Server) -> int:
    """How many watches the server still tells of something."""
    return len(server.jetstreams[GLOBAL_ACCOUNT].listeners)


@contextmanager
def running_loop() -> Iterator[tuple[asyncio.AbstractEventLoop, list[dict[str, Any]]]]:
    """Run a loop in another thread; what nobody caught in it is listed."""
    loop, uncaught = asyncio.new_event_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, problem: uncaught.append(problem))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop, uncaught
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


def run_elsewhere(loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, object]) -> object:
    return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)


def jetstream_of(shutdown: ShutdownHooks) -> AccountJetStream:
    return cast("AccountJetStream", SimpleNamespace(shutdown=shutdown))


@pytest.mark.parametrize("is_attached", [False, True], ids=["at once", "when it is attached"])
def test_a_watch_that_is_given_up_while_it_begins_leaves_nothing_behind(
    is_attached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached, begin = threading.Event(), StreamTap.begin

    def noted(tap: StreamTap, after: int | None) -> WatchStep:
        told = begin(tap, after)
        attached.set()
        return told

    monkeypatch.setattr(StreamTap, "begin", noted)

    async def give_up(server: Server) -> None:
        async with EmbeddedConnection.to(server) as connection:
            _, watcher = roles(await connection.store("b", StoreConfig()))
            for _ in range(20):
                beginning = asyncio.ensure_future(watcher.watch_all())
                await asyncio.sleep(0)  # it has asked the server
                assert not is_attached or attached.wait(PATIENCE_S)  # without this loop, which must not hear of it
                beginning.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await beginning
                await watcher.retention()  # answered after everything that was asked before
                assert (listening(server), connection.watches) == (0, [])
                attached.clear()

    async def started() -> tuple[Server, Any]:
        running = serve(SETTINGS)
        return await running.__aenter__(), running

    with running_loop() as (loop, uncaught):
        server, running = cast("tuple[Server, Any]", run_elsewhere(loop, started()))
        try:
            asyncio.run(give_up(server))
        finally:
            run_elsewhere(loop, running.__aexit__(None, None, None))
    assert not uncaught


def test_a_shutdown_ends_a_watch_that_begins() -> None:
    async def elsewhere(server: Server) -> None:
        connection = EmbeddedConnection.to(server)
        await connection.connect()
        _, watcher = roles(await connection.store("b", StoreConfig()))
        beginning = asyncio.ensure_future(watcher.watch_all())
        await asyncio.sleep(0)
        await connection.shutdown()
        with pytest.raises(Closed, match="the connection"):
            await asyncio.wait_for((await beginning).batch(), PATIENCE_S)
        assert not connection.watches
        await connection.connect()
        await watcher.retention()  # answered after everything that was asked before
        assert not listening(server)

    async def run() -> None:
        async with serve(SETTINGS) as server:
            await asyncio.to_thread(asyncio.run, elsewhere(server))

    asyncio.run(run())


def test_a_watch_that_cannot_begin_leaves_nothing_behind() -> None:
    async def run() -> None:
        async with serve(SETTINGS) as server, EmbeddedConnection.to(server) as connection:
            _, watcher = roles(await connection.store("b", StoreConfig()))
            server.jetstreams[GLOBAL_ACCOUNT].streams.delete("KV_b")
            with pytest.raises(LookupError):
                await watcher.watch_all()
            assert (listening(server), connection.watches) == (0, [])

    asyncio.run(run())


def test_a_watch_whose_loop_is_gone_is_not_told_of_anything() -> None:
    async def run() -> None:
        async with serve(SETTINGS) as server, EmbeddedConnection.to(server) as connection:
            writer, _ = roles(await connection.store("b", StoreConfig()))

            async def forgetful() -> None:
                other = EmbeddedConnection.to(server)
                await other.connect()
                _, watcher = roles(await other.store("b"))
                await watcher.watch_all()

            await asyncio.to_thread(asyncio.run, forgetful())
            assert listening(server) == 1
            await writer.put("a", b"1")
            await until(lambda: not listening(server))

    asyncio.run(run())


async def is_closed(work: Awaitable[object]) -> None:
    with pytest.raises(Closed, match="the server"):
        await asyncio.wait_for(work, PATIENCE_S)


async def is_over(connection: EmbeddedConnection, store: KvStore, watch: Watch) -> None:
    """Whatever is asked of a server that has closed is refused as such."""
    writer, watcher = roles(store)
    assert not await connection.is_healthy()
    reader = store.reader()
    for refused in (
        watch.batch(),
        reader.get("a"),
        reader.get("none"),
        reader.keys(),
        reader.history("a"),
        writer.put("a", b"2"),
        writer.delete("a"),
        watcher.watch_all(),
        watcher.retention(),
        connection.store("b"),
        connection.store("new", StoreConfig()),
    ):
        await is_closed(cast("Awaitable[object]", refused))
    await watch.stop()
    await connection.shutdown()


def test_after_the_server_has_closed_everybody_hears_so_though_the_loop_goes_on() -> None:
    async def run() -> None:
        async with serve(SETTINGS) as server:
            connection = EmbeddedConnection.to(server)
            await connection.connect()
            store = await connection.store("b", StoreConfig())
            writer, watcher = roles(store)
            await writer.put("a", b"1")
            watch, late = await watcher.watch_all(), await watcher.watch_all()
            assert (await watch.batch()).keys == ["a"]
            waiting = asyncio.ensure_future(watch.batch())
            await asyncio.sleep(0)
        await is_closed(waiting)
        assert (await late.batch()).keys == ["a"]  # what was told before the end
        await is_closed(late.batch())
        assert not listening(server)
        await is_over(connection, store, watch)

    asyncio.run(run())


@pytest.mark.parametrize("is_loop_closed", [False, True], ids=["stopped", "closed"])
def test_after_the_server_has_closed_other_threads_hear_so_though_its_loop_does_not_go_on(is_loop_closed: bool) -> None:
    loop = asyncio.new_event_loop()
    started: Future[tuple[Server, asyncio.Event]] = Future()
    ended = threading.Event()

    async def served() -> None:
        async with serve(SETTINGS) as server:
            over = asyncio.Event()
            started.set_result((server, over))
            await over.wait()

    def run() -> None:
        loop.run_until_complete(served())
        if is_loop_closed:
            loop.close()
        ended.set()

    async def elsewhere() -> None:
        server, over = await asyncio.wrap_future(started)
        connection = EmbeddedConnection.to(server)
        await connection.connect()
        store = await connection.store("b", StoreConfig())
        writer, watcher = roles(store)
        await writer.put("a", b"1")
        watch = await watcher.watch_all()
        await watch.batch()
        waiting = asyncio.ensure_future(watch.batch())
        await asyncio.sleep(0)
        loop.call_soon_threadsafe(over.set)
        await is_closed(waiting)
        assert await asyncio.to_thread(ended.wait, PATIENCE_S)
        await is_over(connection, store, watch)

    thread = threading.Thread(target=run)
    thread.start()
    asyncio.run(elsewhere())
    thread.join()
    loop.close()


def test_who_asks_all_the_time_while_the_server_closes_hears_so() -> None:
    """Reads, writes and watches that are under way end, each of them."""

    async def elsewhere(server: Server, is_busy: threading.Event) -> None:
        connection = EmbeddedConnection.to(server)
        await connection.connect()
        store = await connection.store("b", StoreConfig())
        writer, watcher = roles(store)

        async def again(ask: Callable[[int], Awaitable[object]]) -> None:
            for number in itertools.count():
                if number == 20:
                    is_busy.set()
                await ask(number)

        async def watch(_: int) -> None:
            async with await watcher.watch_all():
                pass

        asks: list[Callable[[int], Awaitable[object]]] = [
            lambda number: writer.put(f"k.{number}", b"1"),
            lambda _: store.reader().get("none"),
            lambda _: connection.store("b"),
            watch,
        ]
        async with asyncio.timeout(PATIENCE_S):
            for ended in await asyncio.gather(*(again(ask) for ask in asks * 3), return_exceptions=True):
                assert isinstance(ended, Closed)

    async def run() -> None:
        is_busy = threading.Event()
        async with serve(SETTINGS) as server:
            asking = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere(server, is_busy)))
            assert await asyncio.to_thread(is_busy.wait, PATIENCE_S)
        assert not listening(server)
        await asking

    asyncio.run(run())


def test_who_waits_for_the_server_s_thread_hears_of_the_end() -> None:
    """The loop does not go on, so nothing else would ever wake him."""

    async def run() -> None:
        shutdown, loop, done = ShutdownHooks(), asyncio.new_event_loop(), list[int]()
        server_link = ServerLink(jetstream_of(shutdown), loop)
        waiting = [asyncio.ensure_future(server_link.call(lambda: done.append(1))) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        shutdown.end()
        for each in waiting[1:]:
            await is_closed(each)
        await is_closed(server_link.call(lambda: done.append(1)))
        await asyncio.to_thread(loop.run_until_complete, asyncio.sleep(0))  # what was posted finds nothing to do
        assert not done
        loop.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_under_way", [False, True], ids=["before", "while"])
def test_who_stops_to_wait_for_the_server_s_thread_does_not_disturb_it(is_under_way: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    async def run(loop: asyncio.AbstractEventLoop) -> None:
        server_link = ServerLink(jetstream_of(ShutdownHooks()), loop)

        def work() -> None:
            begun.set()
            go_on.wait(PATIENCE_S)
            done.append(1)

        first, second = (asyncio.ensure_future(server_link.call(work)) for _ in range(2))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        given_up, stays = (first, second) if is_under_way else (second, first)
        given_up.cancel()
        await asyncio.wait([given_up])
        go_on.set()
        await asyncio.wait_for(stays, PATIENCE_S)
        assert given_up.cancelled()
        await server_link.call(lambda: None)

    with running_loop() as (loop, uncaught):
        asyncio.run(run(loop))
    assert not uncaught
    assert len(done) == (2 if is_under_way else 1)


def test_a_watch_goes_on_when_its_bucket_was_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageRefused("the disk", "is full", "ENOSPC")

    async def run() -> None:
        async with serve(SETTINGS) as server, EmbeddedConnection.to(server) as connection:
            writer, watcher = roles(await connection.store("b", StoreConfig()))
            streams = server.jetstreams[GLOBAL_ACCOUNT].streams.streams
            await writer.put("a", b"1")
            watch = await watcher.watch_all()
            assert (await watch.batch()).keys == ["a"]
            before = streams["KV_b"]
            with monkeypatch.context() as patch:
                patch.setattr(JournalLog, "append", fail)
                with pytest.raises(StorageRefused):
                    await writer.put("never", b"1")
            await until(lambda: streams["KV_b"] is not before and streams["KV_b"].refusal is None)
            await writer.put("b", b"2")
            assert (await asyncio.wait_for(watch.batch(), PATIENCE_S)).keys == ["b"]

    asyncio.run(run())
