"""What the memory twin adds to the contract: faults, dropped connections, history, markers, shared servers."""

import asyncio
import pickle
from collections.abc import Awaitable, Callable

import pytest

from strandline.clock import ManualClock
from strandline.errors import Closed, InvalidInput, StrandlineError
from strandline.kv import (
    AnswerLost,
    BucketExists,
    BucketFull,
    BucketNotFound,
    BucketPurged,
    BucketReplaced,
    ConnectionDropped,
    ConnectionState,
    CursorExpired,
    Discard,
    KvUpdate,
    MemoryConnection,
    MemoryServer,
    NotConnected,
    NotSupported,
    Overrun,
    Purge,
    Put,
    RevisionMismatch,
    ServerRefused,
    StoreConfig,
    error_from_code,
    format_cursor,
    format_revision,
    parse_revision,
)
from tests.kv.opening import bucket


def run(test: Callable[[MemoryConnection, ManualClock], Awaitable[None]]) -> None:
    """Run a test's coroutine over a connection and the clock of its server."""
    clock = ManualClock()

    async def main() -> None:
        await test(MemoryConnection(MemoryServer(clock)), clock)

    asyncio.run(main())


def test_a_new_connection_refuses_until_it_is_connected() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        assert connection.state is ConnectionState.NEW
        assert not await connection.is_healthy()
        with pytest.raises(NotConnected):
            await connection.store("b", StoreConfig())
        await connection.shutdown()
        assert connection.state is ConnectionState.NEW

    run(test)


def test_connections_of_one_server_share_its_buckets() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        _, writer, _ = await bucket(connection)
        other = MemoryConnection(connection.server)
        _, _, watcher = await bucket(other)
        async with await watcher.watch_all() as watch:
            version = await writer.put("a", b"1")
            assert list(await watch.batch()) == [Put("a", b"1", version)]

    run(test)


def test_a_connection_without_watch_or_write_says_so() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        await bucket(connection)
        plain = MemoryConnection(connection.server, watch=False, write=False)
        await plain.connect()
        store = await plain.store("b")
        assert store.watcher() is None
        assert store.writer() is None
        assert not plain.capabilities.watch
        assert not plain.capabilities.compare_and_swap
        assert await store.reader().get("a") is None

    run(test)


def test_a_watch_goes_on_after_a_dropped_connection_without_gap_or_repeat() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        _, writer, _ = await bucket(MemoryConnection(connection.server), StoreConfig(history=9))
        store, refused, watcher = await bucket(connection)
        watch = await watcher.watch_all()
        told: list[KvUpdate] = []
        for number in range(9):
            if number == 3:
                connection.drop()
            if number == 6:
                assert not await connection.is_healthy()
                with pytest.raises(ConnectionDropped):
                    await store.reader().get("a")
                with pytest.raises(ConnectionDropped):
                    await refused.put("a", b"lost")
                connection.restore()
            await writer.put("a", b"%d" % number)
        while len(told) < 9:
            told += list(await watch.batch())
        assert [parse_revision(update.version) for update in told] == list(range(1, 10))

    run(test)


def test_a_watch_that_was_away_too_long_tells_what_it_has_and_then_that_it_expired() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        config = StoreConfig(updates_max=2, discard=Discard.OLD)
        _, writer, _ = await bucket(MemoryConnection(connection.server), config)
        _, _, watcher = await bucket(connection)
        watch = await watcher.watch_all()
        await writer.put("a", b"1")
        connection.drop()
        for key in "bcd":
            await writer.put(key, b"1")
        connection.restore()
        assert [update.key for update in await watch.batch()] == ["a"]
        with pytest.raises(CursorExpired) as caught:
            await watch.batch()
        assert (caught.value.revision, caught.value.first_revision, caught.value.last_revision) == (1, 3, 4)

    run(test)


@pytest.mark.parametrize("overrun", Overrun)
def test_a_quiet_watch_of_a_prefix_knows_what_its_overrun_lets_it_know(overrun: Overrun) -> None:
    """Others' updates turn the bucket over while it is away: with a sentinel it knew of those before, else not."""

    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        config = StoreConfig(updates_max=4, discard=Discard.OLD)
        _, writer, _ = await bucket(MemoryConnection(connection.server), config)
        store, _, _ = await bucket(connection)
        watcher = store.watcher(overrun=overrun)
        assert watcher is not None
        watch = await watcher.watch_prefix("own.")
        await writer.put("own.a", b"1")
        assert len(await watch.batch()) == 1
        for number in range(6):
            await writer.put(f"other.{number}", b"1")
        connection.drop()
        connection.restore()
        version = await writer.put("own.b", b"1")
        if overrun is Overrun.SENTINEL:
            assert watch.frontier == 7
            assert (await watch.batch()).to_updates() == [Put("own.b", b"1", version)]
        else:
            with pytest.raises(CursorExpired):
                await watch.batch()

    run(test)


def test_a_probe_knows_what_was_there_when_it_waited() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        config = StoreConfig(updates_max=4, discard=Discard.OLD)
        _, writer, _ = await bucket(MemoryConnection(connection.server), config)
        _, _, watcher = await bucket(connection)
        watch = await watcher.watch_prefix("own.")
        for number in range(6):
            await writer.put(f"other.{number}", b"1")
        waiting = asyncio.create_task(watch.batch())
        await asyncio.sleep(0)
        connection.drop()
        connection.restore()
        version = await writer.put("own.b", b"1")
        assert (await waiting).to_updates() == [Put("own.b", b"1", version)]

    run(test)


@pytest.mark.parametrize("fate", ["removed", "made again", "emptied"])
@pytest.mark.parametrize("is_away", [False, True], ids=["connected", "away"])
def test_a_watch_is_told_what_became_of_its_bucket(fate: str, is_away: bool) -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        other = MemoryConnection(connection.server)
        _, writer, _ = await bucket(other)
        _, _, watcher = await bucket(connection)
        await writer.put("a", b"1")
        watch = await watcher.watch_all()
        await watch.batch()
        if is_away:
            connection.drop()
        if fate == "emptied":
            connection.server.bucket("b").remove_through(1)
        else:
            connection.server.remove_bucket("b")
        if fate == "made again":
            _, writer, _ = await bucket(other)
            await writer.put("a", b"2")
        if is_away:
            connection.restore()
        wanted = BucketPurged if fate == "emptied" else BucketNotFound
        with pytest.raises(BucketReplaced if fate == "made again" and is_away else wanted):
            await watch.batch()

    run(test)


def test_the_nth_call_fails_before_or_after_it_was_done() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        store, writer, watcher = await bucket(connection)
        connection.faults.fail("put", ConnectionDropped(), nth=2)
        connection.faults.fail("put", AnswerLost("c"), nth=3, after=True)
        connection.faults.fail("watch", ConnectionDropped())
        await writer.put("a", b"1")
        with pytest.raises(ConnectionDropped):
            await writer.put("b", b"1")
        with pytest.raises(AnswerLost):
            await writer.put("c", b"1")
        await writer.put("d", b"1")
        assert await store.reader().keys() == ["a", "c", "d"]
        with pytest.raises(ConnectionDropped):
            await watcher.watch_all()
        await (await watcher.watch_all()).stop()
        assert connection.faults.calls["put"] == 4

    run(test)


def test_a_delay_holds_every_call_up() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        store, writer, _ = await bucket(connection)
        connection.faults.delay_s = 0.02
        write = asyncio.create_task(writer.put("a", b"1"))
        await asyncio.sleep(0)
        assert not write.done()
        assert await write == format_revision(1)
        assert await store.reader().get("a")

    run(test)


def test_shutting_down_ends_watches() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        _, writer, watcher = await bucket(connection)
        watch = await watcher.watch_all()
        waiting = asyncio.create_task(watch.batch())
        await asyncio.sleep(0)
        await connection.shutdown()
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(NotConnected):
            await writer.put("a", b"1")

    run(test)


def test_a_bucket_removed_under_a_watch_is_told_and_its_cursor_does_not_fit_the_next_one() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        store, writer, watcher = await bucket(connection)
        for number in range(5):
            await writer.put("a", b"%d" % number)
        watch = await watcher.watch_all()
        await watch.batch()
        connection.server.remove_bucket("b")
        with pytest.raises(BucketNotFound):
            await watch.batch()
        with pytest.raises(BucketNotFound):
            await store.reader().get("a")
        _, writer, watcher = await bucket(connection)
        await writer.put("a", b"another")
        with pytest.raises(CursorExpired):
            await watcher.watch_all_from(format_cursor(5))

    run(test)


def test_history_keeps_the_last_updates_of_each_key_and_purge_removes_them() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        _, writer, watcher = await bucket(connection, StoreConfig(history=3))
        for number in range(5):
            await writer.put("a", b"%d" % number)
        log = connection.server.bucket("b")
        assert [record.value for record in log.history_of("a")] == [b"2", b"3", b"4"]
        version = await writer.purge("a")
        assert len(log.history_of("a")) == 1
        async with await watcher.watch_all() as watch:
            assert list(await watch.batch()) == [Purge("a", version)]

    run(test)


def test_a_marker_takes_the_place_of_a_value_that_expires() -> None:
    async def test(connection: MemoryConnection, clock: ManualClock) -> None:
        store, writer, watcher = await bucket(connection, StoreConfig(ttl=True, marker_ttl_s=10.0))
        await writer.put("a", b"1", ttl_s=2.0)
        async with await watcher.watch_all() as watch:
            await watch.batch()
            clock.advance(2.0)
            assert await store.reader().get("a") is None
            assert list(await watch.batch()) == [Purge("a", format_revision(2))]
            clock.advance(10.0)
            assert (await watcher.retention()).first_revision == 3

    run(test)


def test_without_markers_a_value_expires_in_silence() -> None:
    async def test(connection: MemoryConnection, clock: ManualClock) -> None:
        _, writer, watcher = await bucket(connection, StoreConfig(age_max_s=5.0))
        await writer.put("a", b"1")
        clock.advance(5.0)
        retention = await watcher.retention()
        assert (retention.first_revision, retention.last_revision) == (2, 1)
        assert (await watcher.watch_all()).is_current
        with pytest.raises(CursorExpired):
            await watcher.watch_all_from(format_cursor(0))
        await (await watcher.watch_all_from(format_cursor(1))).stop()

    run(test)


def test_bytes_are_a_limit_too() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        _, writer, _ = await bucket(connection, StoreConfig(bytes_max=20))
        await writer.put("a", b"x" * 9)
        with pytest.raises(BucketFull):
            await writer.put("b", b"x" * 10)
        await writer.put("a", b"x" * 19)
        _, writer, _ = await bucket(connection, StoreConfig(bytes_max=20, discard=Discard.OLD), "old")
        await writer.put("a", b"x" * 9)
        await writer.put("b", b"x" * 10)
        assert (await connection.store("old")).name == "old"
        assert connection.server.bucket("old").first_revision == 2

    run(test)


def test_purged_streams_keep_their_last_revision() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        _, writer, watcher = await bucket(connection)
        for key in "abc":
            await writer.put(key, b"1")
        connection.server.bucket("b").remove_through(3)
        assert (await watcher.retention()).first_revision == 4
        assert await writer.put("d", b"1") == format_revision(4)
        with pytest.raises(CursorExpired):
            await watcher.watch_all_from(format_cursor(2))

    run(test)


def test_a_ttl_below_a_second_is_refused() -> None:
    async def test(connection: MemoryConnection, _clock: ManualClock) -> None:
        _, writer, _ = await bucket(connection, StoreConfig(ttl=True))
        with pytest.raises(InvalidInput):
            await writer.put("a", b"1", ttl_s=0.5)

    run(test)


@pytest.mark.parametrize("wrong", [{"history": 0}, {"history": 65}, {"bytes_max": -1}, {"age_max_s": -1.0}])
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        StoreConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (10071, RevisionMismatch),
        (10164, RevisionMismatch),
        (10077, BucketFull),
        (10059, BucketNotFound),
        (10058, BucketExists),
        (10166, NotSupported),
        (10008, ServerRefused),
    ],
)
def test_codes_decide_which_error_it_is(code: int, kind: type[StrandlineError]) -> None:
    for text in ("wrong last sequence: 5", "stream not found", ""):
        error = error_from_code(code, text, bucket="b", key="k")
        assert type(error) is kind
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


def test_what_may_be_tried_again_says_so() -> None:
    assert ConnectionDropped.retryable
    assert not AnswerLost.retryable
    assert not CursorExpired.retryable
