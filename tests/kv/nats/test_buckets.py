"""Buckets that change under their users: removed, made again, emptied, mirrored; and those that other clients made."""

import asyncio
import functools

import nats
import pytest
from nats.js.api import KeyValueConfig, StreamConfig, StreamSource

from strandline.errors import InvalidInput, RecordTooLarge
from strandline.kv import (
    AlreadyExists,
    BucketExists,
    BucketFull,
    BucketNotFound,
    CursorExpired,
    Delete,
    Discard,
    InvalidKey,
    NotSupported,
    Purge,
    Put,
    ServerRefused,
    StoreConfig,
    format_cursor,
)
from strandline.kv.nats import NatsConnection
from strandline.kv.nats import reader as reading
from strandline.kv.nats.bucket_api import BucketApi
from strandline.nats import NatsSettings
from strandline.nats.read_plan import ReadPlan
from strandline.nats.socket import NatsSocket
from strandline.nats.streams import StreamState
from tests.kv.nats.opening import bucket, next_batch, until, value
from tests.servers_nats import NatsServer, fresh_bucket, running_nats
from tests.waiting import PATIENCE_S


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let watches look at their bucket more often than they do elsewhere."""
    monkeypatch.setattr("strandline.kv.nats.watches.ReadPlan", functools.partial(ReadPlan, backstop_s=0.5))


@pytest.mark.usefixtures("looks_often")
def test_a_bucket_that_is_removed_ends_its_watches_and_is_not_found(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(nats_server.url, connect_timeout=PATIENCE_S)
        async with NatsConnection(nats_server.url) as connection:
            store, writer, watcher = await bucket(connection)
            await writer.put("a", b"1")
            watch = await watcher.watch_all()
            await next_batch(watch)
            await client.jetstream(timeout=PATIENCE_S).delete_key_value(store.name)
            reader = store.reader()
            for call in (reader.get("a"), reader.keys(), reader.scan(), writer.put("a", b"2"), watcher.retention()):
                with pytest.raises(BucketNotFound):
                    await call
            with pytest.raises(BucketNotFound):
                await next_batch(watch)
            await watch.stop()
        await client.close()

    asyncio.run(main())


@pytest.mark.usefixtures("looks_often")
def test_a_bucket_made_again_under_its_name_is_another_one(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(nats_server.url, connect_timeout=PATIENCE_S)
        async with NatsConnection(nats_server.url) as connection:
            store, writer, watcher = await bucket(connection)
            await writer.put("a", b"1")
            before = await watcher.retention()
            watch = await watcher.watch_all()
            await next_batch(watch)
            await client.jetstream(timeout=PATIENCE_S).delete_key_value(store.name)
            _, writer, watcher = await bucket(connection, name=store.name)
            for number in range(5):
                await writer.put(f"k{number}", b"new")
            after = await watcher.retention()
            assert after.identity != before.identity
            with pytest.raises(CursorExpired):
                await next_batch(watch)
            await watch.stop()
        await client.close()

    asyncio.run(main())


def test_a_bucket_that_is_emptied_under_a_watch_is_told(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(nats_server.url, connect_timeout=PATIENCE_S)
        async with NatsConnection(nats_server.url) as connection:
            store, writer, watcher = await bucket(connection)
            for number in range(3):
                await writer.put(f"k{number}", b"1")
            await client.jetstream(timeout=PATIENCE_S).purge_stream(f"KV_{store.name}")
            retention = await watcher.retention()
            assert (retention.first_revision, retention.last_revision, retention.updates) == (4, 3, 0)
            with pytest.raises(CursorExpired):
                await watcher.watch_all_from(format_cursor(2))
            async with await watcher.watch_all_from(format_cursor(3)) as watch:
                version = await writer.put("a", b"2")
                assert await next_batch(watch) == [Put("a", b"2", version)]
        await client.close()

    asyncio.run(main())


def test_a_mirror_is_read_as_itself_written_through_its_origin_and_never_vouched_for(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(nats_server.url, connect_timeout=PATIENCE_S)
        async with NatsConnection(nats_server.url) as connection:
            store, writer, watcher = await bucket(connection)
            await writer.put("a.x", b"1")
            name = fresh_bucket()
            mirrored = StreamSource(name=f"KV_{store.name}")
            await client.jetstream(timeout=PATIENCE_S).add_stream(
                StreamConfig(name=f"KV_{name}", mirror=mirrored, max_msgs_per_subject=1)
            )
            mirror = await connection.store(name)
            mirror_writer, mirror_watcher = mirror.writer(), mirror.watcher()
            assert mirror_writer is not None
            assert mirror_watcher is not None
            version = await mirror_writer.create("a.y", b"2")
            assert await value(store.reader(), "a.y") == b"2"

            async def has_come() -> bool:
                return await value(mirror.reader(), "a.y") == b"2"

            await until(has_come)
            assert await mirror.reader().keys() == ["a.x", "a.y"]
            async with await mirror_watcher.watch_prefix("a.") as watch:
                told = await next_batch(watch)
                while len(told) < 2:
                    told += await next_batch(watch)
                assert told[-1] == Put("a.y", b"2", version)
            with pytest.raises(AlreadyExists):
                await mirror_writer.create("a.y", b"3")
            original, copy = await watcher.retention(), await mirror_watcher.retention()
            assert not original.evicts_current_values
            assert copy.evicts_current_values
            assert copy.identity != original.identity
            assert copy.last_revision == original.last_revision
        await client.close()

    asyncio.run(main())


def test_buckets_are_shared_with_other_clients(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(nats_server.url, connect_timeout=PATIENCE_S)
        name = fresh_bucket()
        theirs = await client.jetstream(timeout=PATIENCE_S).create_key_value(
            KeyValueConfig(bucket=name, history=5, ttl=3600)
        )
        async with NatsConnection(nats_server.url) as connection:
            store = await connection.store(name)
            writer, watcher = store.writer(), store.watcher()
            assert writer is not None
            assert watcher is not None
            revision = await theirs.put("a", b"1")
            assert await value(store.reader(), "a") == b"1"
            await writer.put("b", b"2")
            assert (await theirs.get("b")).value == b"2"
            await theirs.delete("a")
            await theirs.purge("b")
            updates = await store.reader().history("a") + await store.reader().history("b")
            assert [type(update) for update in updates] == [Put, Delete, Purge]
            await writer.delete("c")
            with pytest.raises(nats.js.errors.KeyNotFoundError):
                await theirs.get("c")
            await theirs.create("c", b"3")
            with pytest.raises(AlreadyExists):
                await writer.create("c", b"4")
            assert (await watcher.retention()).evicts_current_values
            assert revision == 1
            with pytest.raises(BucketExists, match="age_max_s is 3600"):
                await connection.store(name, StoreConfig(history=5))
        await client.close()

    asyncio.run(main())


def test_empty_values_and_versioned_deletes_are_what_they_are_for_other_clients(nats_server: NatsServer) -> None:
    async def main() -> None:
        client = await nats.connect(nats_server.url, connect_timeout=PATIENCE_S)
        name = fresh_bucket()
        theirs = await client.jetstream(timeout=PATIENCE_S).create_key_value(KeyValueConfig(bucket=name, history=5))
        async with NatsConnection(nats_server.url) as connection:
            store = await connection.store(name)
            reader, writer = store.reader(), store.writer()
            assert writer is not None
            await theirs.put("a", b"")
            assert not (await theirs.get("a")).value, "a key that is there, and not KeyNotFoundError"
            assert await value(reader, "a") == b""
            with pytest.raises(AlreadyExists):
                await writer.create("a", b"1")
            version = await writer.put("b", b"")
            assert not (await theirs.get("b")).value
            assert sorted(await theirs.keys()) == sorted(await reader.keys()) == ["a", "b"]
            await writer.delete_with_version("b", version)
            with pytest.raises(nats.js.errors.KeyNotFoundError):
                await theirs.get("b")
            assert await theirs.keys() == await reader.keys() == ["a"]
        await client.close()

    asyncio.run(main())


def test_creating_the_same_bucket_at_once_makes_one(nats_server: NatsServer) -> None:
    async def main() -> None:
        name = fresh_bucket()
        async with NatsConnection(nats_server.url) as one, NatsConnection(nats_server.url) as two:
            await asyncio.gather(*(each.store(name, StoreConfig(history=3)) for each in (one, two) for _ in range(5)))
            results = await asyncio.gather(
                *(two.store(name, StoreConfig(history=number)) for number in (3, 4)), return_exceptions=True
            )
            assert isinstance(results[1], BucketExists)
            assert results[1].hint

    asyncio.run(main())


@pytest.mark.parametrize(
    "config",
    [
        StoreConfig(),
        StoreConfig(history=7, updates_max=100, bytes_max=0, value_bytes_max=0),
        StoreConfig(age_max_s=1.5, discard=Discard.OLD),
        StoreConfig(ttl=True),
        StoreConfig(marker_ttl_s=30.0),
    ],
)
def test_settings_are_what_the_server_keeps(nats_server: NatsServer, config: StoreConfig) -> None:
    async def main() -> None:
        async with NatsConnection(nats_server.url) as connection:
            store, _, watcher = await bucket(connection, config)
            await connection.store(store.name, config)
            assert (await watcher.retention()).evicts_current_values == (
                config.evicts_current_values or config.marker_ttl_s > 0
            )

    asyncio.run(main())


def test_what_the_server_refuses_has_its_code_and_a_hint(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with NatsConnection(nats_server.url) as connection:
            with pytest.raises(ServerRefused) as caught:
                await connection.store(fresh_bucket(), StoreConfig(replicas=3))
            assert caught.value.code == 10074
            assert caught.value.hint
            assert "cluster" in caught.value.hint
            _, writer, _ = await bucket(connection, StoreConfig(bytes_max=2000))
            writes = [writer.put(f"k{number}", b"x" * 100) for number in range(100)]
            with pytest.raises(BucketFull) as full:
                await asyncio.gather(*writes)
            assert full.value.hint
            _, writer, _ = await bucket(connection, StoreConfig(value_bytes_max=50))
            with pytest.raises(RecordTooLarge):
                await writer.put("a", b"x" * 51)
            with pytest.raises(NotSupported) as mortal:
                await writer.put("a", b"x", ttl_s=5)
            assert mortal.value.hint
            _, writer, _ = await bucket(connection, StoreConfig(ttl=True))
            with pytest.raises(InvalidInput):
                await writer.put("a", b"x", ttl_s=0.5)

    asyncio.run(main())


def test_a_value_that_fits_alone_may_be_too_large_with_its_comparison(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with NatsConnection(nats_server.url) as connection:
            store, writer, _ = await bucket(connection)
            version = await writer.put("a", b"x" * 1_048_576)
            with pytest.raises(RecordTooLarge):
                await writer.update("a", b"y" * 1_048_576, version)
            assert await connection.is_healthy()
            assert await value(store.reader(), "a") == b"x" * 1_048_576
            await writer.update("a", b"y" * 1_000_000, version)

    asyncio.run(main())


def test_a_domain_is_reached_by_its_prefix() -> None:
    async def main(server: NatsServer) -> None:
        for settings in (NatsSettings(server.url, domain="hub"), NatsSettings(server.url, prefix="$JS.hub.API")):
            async with NatsConnection(settings) as connection:
                store, writer, watcher = await bucket(connection)
                version = await writer.create("a", b"1")
                await writer.update("a", b"2", version)
                assert await store.reader().keys() == ["a"]
                async with await watcher.watch_all() as watch:
                    assert len(await next_batch(watch)) == 1

    with running_nats(jetstream="domain: hub") as server:
        asyncio.run(main(server))


def test_keys_that_are_not_utf_8_are_told_with_their_bytes_and_cannot_be_written(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with NatsConnection(nats_server.url) as connection:
            store, writer, watcher = await bucket(connection)
            strange = b"a.\xff\xfe"
            with NatsSocket.connect(NatsSettings(nats_server.url)) as raw:
                raw.send(b"PUB $KV.%s.%s 1\r\n1\r\n" % (store.name.encode(), strange))
                raw.flush()
            async with await watcher.watch_prefix("a.") as watch:
                batch = await asyncio.wait_for(watch.batch(), PATIENCE_S)
            assert batch.key_bytes == [strange]
            key = strange.decode(errors="surrogateescape")
            assert batch.keys == await store.reader().keys() == [key]
            for call in (writer.put(key, b"2"), store.reader().get(key)):
                with pytest.raises(InvalidKey):
                    await call

    asyncio.run(main())


def test_the_history_of_a_key_that_is_written_all_the_time_has_an_end(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with NatsConnection(nats_server.url) as connection:
            store, writer, _ = await bucket(connection, StoreConfig(history=8))
            for each in (b"1", b"2"):
                await writer.put("a", each)
            read = reading._read  # noqa: SLF001 - where each update is asked for

            async def written(calls: BucketApi, info: StreamState, key: str, request: dict[str, object]) -> object:
                if "next_by_subj" in request:
                    await writer.put(key, b"more")
                return await read(calls, info, key, request)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(reading, "_read", written)
                updates = await asyncio.wait_for(store.reader().history("a"), PATIENCE_S)
            assert [update.value for update in updates if isinstance(update, Put)] == [b"1", b"2"]

    asyncio.run(main())


def test_a_server_that_takes_little_is_sent_no_more() -> None:
    async def main(server: NatsServer) -> None:
        async with NatsConnection(server.url) as connection:
            store, writer, _ = await bucket(connection)
            with pytest.raises(RecordTooLarge) as caught:
                await writer.put("a", b"x" * 2001)
            assert caught.value.limit == 2000
            await writer.put("a", b"x" * 2000)
            assert await value(store.reader(), "a") == b"x" * 2000

    with running_nats("max_payload: 2000") as server:
        asyncio.run(main(server))
