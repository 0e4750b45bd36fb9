"""What happens when servers freeze, die, come back or change their leader under readers, writers and watches."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from strandline.errors import Closed, StrandlineError, UnknownOutcome
from strandline.kv import (
    AlreadyExists,
    AnswerLost,
    ConnectionDropped,
    KvStore,
    KvUpdate,
    KvWriter,
    NoAnswer,
    Put,
    RevisionMismatch,
    StoreConfig,
    Watch,
    format_cursor,
    format_revision,
    parse_revision,
)
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings
from tests.kv.nats.opening import bucket, hasty, until
from tests.nats.filling import filled_bucket
from tests.nats.proxy import Proxy, running_proxy
from tests.servers_nats import NatsCluster, NatsServer, running_nats
from tests.waiting import PATIENCE_S

HISTORY = 64


@dataclass
class Load:
    """A writer that goes on through outages, and what became of its writes.

    A bucket of `HISTORY` keeps all of them, however long a watch is away: a key is left before its first value would be
    evicted, or the watch would rightly say that its cursor has expired.
    """

    writer: KvWriter
    acknowledged: list[int] = field(default_factory=list)
    lost: int = 0
    dropped: int = 0
    is_over: bool = False

    async def run(self) -> None:
        number = 0
        while not self.is_over:
            number += 1
            try:
                version = await self.writer.put(f"k.{number // (17 * HISTORY)}.{number % 17}", b"%d" % number)
            except AnswerLost:
                self.lost += 1
            except (ConnectionDropped, NoAnswer):
                self.dropped += 1
                await asyncio.sleep(0.02)
            else:
                self.acknowledged.append(parse_revision(version) or 0)
            await asyncio.sleep(0.001)

    async def wait_for(self, more: int) -> None:
        wanted = len(self.acknowledged) + more

        async def has_more() -> bool:
            return len(self.acknowledged) >= wanted

        await until(has_more)

    async def wait_for_drop(self) -> None:
        before = self.dropped

        async def has_dropped() -> bool:
            return self.dropped > before

        await until(has_dropped)


async def _is_down(connection: NatsConnection) -> bool:
    return not await connection.is_healthy()


async def gather(watch: Watch, told: list[KvUpdate]) -> None:
    while True:
        try:
            told += await watch.batch()
        except Closed:
            return


async def check_told(store: KvStore, load: Load, told: list[KvUpdate], gathering: asyncio.Future[None]) -> None:
    """Every acknowledged write was told, once and in order, and what was told last is what the bucket holds."""

    async def has_come() -> bool:
        if gathering.done():
            gathering.result()  # a watch that has failed says why
        return bool(told) and (parse_revision(told[-1].version) or 0) >= load.acknowledged[-1]

    await until(has_come)
    revisions = [parse_revision(update.version) or 0 for update in told]
    assert revisions == sorted(set(revisions))
    assert set(load.acknowledged) <= set(revisions)
    fold = {update.key: update.value for update in told if isinstance(update, Put)}
    assert fold == {entry.key: entry.value for entry in await store.reader().scan()}


@pytest.mark.parametrize("kill", [False, True], ids=["in good order", "by force"])
def test_a_watch_goes_on_over_restarts_of_the_server_without_loss_or_repeat(kill: bool) -> None:
    async def main(server: NatsServer) -> None:
        async with NatsConnection(NatsSettings(server.url, timeout_s=PATIENCE_S)) as connection:
            store, writer, watcher = await bucket(connection, StoreConfig(history=HISTORY))
            load, told = Load(writer), list[KvUpdate]()
            watch = await watcher.watch_prefixes(["k.", "other."])
            tasks = [asyncio.ensure_future(load.run()), asyncio.ensure_future(gather(watch, told))]
            for _ in range(3):
                await load.wait_for(50)
                await asyncio.to_thread(server.kill if kill else server.stop)
                await load.wait_for_drop()
                server.start()
            await load.wait_for(50)
            assert await connection.is_healthy()
            load.is_over = True
            await tasks[0]
            await check_told(store, load, told, tasks[1])
            assert load.dropped
            await watch.stop()
            await tasks[1]

    with running_nats() as server:
        asyncio.run(main(server))


def test_a_watch_from_a_cursor_goes_on_after_a_restart() -> None:
    async def main(server: NatsServer) -> None:
        async with NatsConnection(NatsSettings(server.url, timeout_s=PATIENCE_S)) as connection:
            _, writer, watcher = await bucket(connection)
            await writer.put("a", b"1")
            async with await watcher.watch_all() as watch:
                last = (await watch.batch()).high
            server.restart(kill=True)
            await until(connection.is_healthy)
            version = await writer.put("b", b"2")
            async with await watcher.watch_all_from(format_cursor(last)) as watch:
                assert (await watch.batch()).to_updates() == [Put("b", b"2", version)]

    with running_nats() as server:
        asyncio.run(main(server))


def test_a_write_that_nobody_answers_in_time_may_have_been_done() -> None:
    async def main(server: NatsServer) -> None:
        async with hasty(server.url) as (_, store, writer, _):
            version = format_revision(1)
            with server.frozen():
                began = time.monotonic()
                failures = await asyncio.gather(
                    writer.put("a", b"2"),
                    writer.create("b", b"1"),
                    writer.update("c", b"1", version),
                    writer.delete("d"),
                    writer.purge("e"),
                    writer.delete_with_version("f", version),
                    return_exceptions=True,
                )
                assert time.monotonic() - began < PATIENCE_S
                for failure in failures:
                    assert isinstance(failure, AnswerLost)
                    assert isinstance(failure, UnknownOutcome)
                    assert failure.hint

            async def was_done() -> bool:
                with suppress(NoAnswer):
                    entry = await store.reader().get("a")
                    return entry is not None and entry.value == b"2"
                return False

            await until(was_done)

    with running_nats() as server:
        asyncio.run(main(server))


def test_a_lost_connection_tells_sent_writes_from_those_that_were_not() -> None:
    async def main(server: NatsServer) -> None:
        async with NatsConnection(NatsSettings(server.url, timeout_s=2 * PATIENCE_S)) as connection:
            store, writer, _ = await bucket(connection)
            version = await writer.put("a", b"1")
            began = time.monotonic()
            with server.frozen():
                writing = asyncio.ensure_future(writer.put("a", b"2"))
                reading = asyncio.ensure_future(store.reader().get("a"))
                for _ in range(100):
                    await asyncio.sleep(0.001)  # nothing tells that a request has left
                assert not writing.done()
                server.kill()
                server.launch()  # for `frozen`, which lets it go on; the old one is gone
                with pytest.raises(AnswerLost):
                    await writing
                with pytest.raises(ConnectionDropped):
                    await reading
            server.wait_until_healthy()
            server.kill()
            await until(lambda: _is_down(connection))
            for call in (writer.put("a", b"3"), store.reader().get("a"), writer.update("a", b"4", version)):
                with pytest.raises(ConnectionDropped) as caught:
                    await call
                assert caught.value.retryable
            assert time.monotonic() - began < PATIENCE_S
            server.start()
            await until(connection.is_healthy)
            await writer.put("a", b"5")

    with running_nats() as server:
        asyncio.run(main(server))


def test_opening_a_bucket_and_watching_it_end_at_the_limit_too() -> None:
    async def main(server: NatsServer) -> None:
        async with hasty(server.url) as (connection, store, _, watcher):
            with server.frozen():
                began = time.monotonic()
                failures = await asyncio.gather(
                    connection.store(store.name),
                    watcher.retention(),
                    watcher.watch_all(),
                    store.reader().keys(),
                    store.reader().scan(),
                    store.reader().history("a"),
                    return_exceptions=True,
                )
                assert time.monotonic() - began < PATIENCE_S
                assert all(isinstance(failure, StrandlineError) for failure in failures), failures

    with running_nats() as server:
        asyncio.run(main(server))


def test_a_shutdown_does_not_wait_for_a_server_that_is_frozen() -> None:
    async def main(server: NatsServer) -> None:
        connection = NatsConnection(NatsSettings(server.url, timeout_s=PATIENCE_S))
        await connection.connect()
        _, _, watcher = await bucket(connection)
        watch = await watcher.watch_all()
        with server.frozen():
            began = time.monotonic()
            await connection.shutdown()
            with pytest.raises(Closed):
                await watch.batch()
            assert time.monotonic() - began < PATIENCE_S

    with running_nats() as server:
        asyncio.run(main(server))


def test_a_state_that_breaks_off_tells_only_the_latest_update_of_each_key(
    nats_server: NatsServer, nats_bucket: str
) -> None:
    async def main(proxy: Proxy) -> list[str]:
        keys: list[str] = []
        async with NatsConnection(NatsSettings(proxy.url, timeout_s=PATIENCE_S)) as connection:
            watcher = (await connection.store(nats_bucket)).watcher()
            assert watcher is not None
            async with asyncio.timeout(PATIENCE_S), await watcher.watch_all() as watch:
                keys += (await watch.batch()).keys
                proxy.cut_all()
                while "late" not in keys or not watch.is_current:
                    keys += (await watch.batch()).keys
        return keys

    large = [f"large{number}" for number in range(300)]
    with (
        filled_bucket(NatsSettings(nats_server.url), nats_bucket, max_msgs_per_subject=3) as filler,
        running_proxy(nats_server.port) as proxy,
    ):
        filler.put(large, b"v" * 100_000)
        filler.put(["late", "late"])
        assert asyncio.run(main(proxy)) == [*large, "late"]


@pytest.mark.parametrize("call", ["watch", "keys", "scan"])
def test_who_gives_up_on_a_server_that_is_frozen_does_not_wait_for_it(call: str) -> None:
    async def main(server: NatsServer) -> None:
        async with NatsConnection(NatsSettings(server.url, timeout_s=2 * PATIENCE_S)) as connection:
            store, _, watcher = await bucket(connection)
            calls: dict[str, Callable[[], Awaitable[object]]]
            calls = {"watch": watcher.watch_all, "keys": store.reader().keys, "scan": store.reader().scan}
            with server.frozen():
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(calls[call](), 0.5)
                assert time.monotonic() - began < PATIENCE_S

    with running_nats() as server:
        asyncio.run(main(server))


@pytest.mark.long
def test_a_cluster_that_loses_its_leader_again_and_again_loses_and_repeats_nothing(nats_cluster: NatsCluster) -> None:
    async def main() -> None:
        async with NatsConnection(NatsSettings(nats_cluster.urls, timeout_s=10)) as connection:
            store, writer, watcher = await bucket(connection, StoreConfig(history=HISTORY, replicas=3, bytes_max=0))
            load, told = Load(writer), list[KvUpdate]()
            watch = await watcher.watch_prefix("k.")
            tasks = [asyncio.ensure_future(load.run()), asyncio.ensure_future(gather(watch, told))]
            for _ in range(3):
                await load.wait_for(100)
                leader = await asyncio.to_thread(nats_cluster.leader_of, f"KV_{store.name}")
                leader.kill()
                await load.wait_for(100)
                leader.launch()
                await asyncio.to_thread(leader.wait_until_healthy)
            load.is_over = True
            await tasks[0]
            await check_told(store, load, told, tasks[1])
            await watch.stop()
            await tasks[1]

    asyncio.run(main())


def test_a_cluster_keeps_versions_apart_and_goes_on_without_a_member(nats_cluster: NatsCluster) -> None:
    async def main() -> None:
        async with NatsConnection(NatsSettings(nats_cluster.urls, timeout_s=PATIENCE_S)) as connection:
            store, writer, watcher = await bucket(connection, StoreConfig(replicas=3, history=5))
            first = await writer.create("a", b"1")
            with pytest.raises(AlreadyExists):
                await writer.create("a", b"2")
            second = await writer.update("a", b"2", first)
            for version in (first, second[:-1] + b"\x63"):
                with pytest.raises(RevisionMismatch):
                    await writer.update("a", b"3", type(first)(version))
            results = await asyncio.gather(
                *(writer.update("a", b"%d" % number, second) for number in range(20)), return_exceptions=True
            )
            refused = [result for result in results if isinstance(result, RevisionMismatch)]
            assert len(results) - len(refused) <= 1
            for number in range(20):
                version = await writer.put("b", b"%d" % number)
                entry = await store.reader().get("b")
                assert entry is not None
                assert (entry.value, entry.version) == (b"%d" % number, version)
            identity = (await watcher.retention()).identity
            nats_cluster.followers_of(f"KV_{store.name}")[0].kill()
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        await writer.put("c", b"1")
                        break
                    except (ConnectionDropped, AnswerLost, NoAnswer):
                        await asyncio.sleep(0.1)
            assert (await watcher.retention()).identity == identity

    asyncio.run(main())


def test_a_question_is_answered_as_soon_as_there_is_a_new_leader(nats_cluster: NatsCluster) -> None:
    async def main() -> None:
        async with NatsConnection(NatsSettings(nats_cluster.urls, timeout_s=2 * PATIENCE_S)) as connection:
            store, writer, watcher = await bucket(connection, StoreConfig(replicas=3))
            await writer.put("a", b"1")
            leader = nats_cluster.leader_of(f"KV_{store.name}")
            url = next(member.url for member in nats_cluster.members if member is not leader)
            async with NatsConnection(NatsSettings(url, timeout_s=2 * PATIENCE_S)) as elsewhere:
                other = await elsewhere.store(store.name)
                leader.kill()
                began = time.monotonic()
                entry = await other.reader().get("a")
                assert entry is not None
                assert time.monotonic() - began < PATIENCE_S
                await until(connection.is_healthy)
                assert (await watcher.retention()).last_revision == 1

    asyncio.run(main())
