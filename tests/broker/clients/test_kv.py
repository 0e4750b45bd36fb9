"""Buckets by nats-py: values, revisions, history, watches, lifetimes, and two who want the same key."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import nats.js.errors
import pytest
from nats.js import JetStreamContext, api
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NoKeysError
from nats.js.kv import KeyValue

from tests.broker.clients.servers import WITHIN_S, StartServer, connected, eventually


async def _seen(watcher: Any, count: int = 0) -> list[tuple[str, bytes | None, str | None]]:  # noqa: ANN401 - untyped
    """Return what a watch shows of what is there, at least so many.

    nats-py may say that this was all before it has shown any, if they were sent and not yet read when it asked.
    """
    seen: list[tuple[str, bytes | None, str | None]] = []
    is_told = False
    while not is_told or len(seen) < count:
        entry = await watcher.updates(timeout=WITHIN_S)
        if entry is None:
            is_told = True
        else:
            seen.append((entry.key, entry.value, entry.operation))
    return seen


async def _found(read: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - untyped
    """Return what is there by nats-py, which may find nothing if that was sent and not yet read when it asked."""

    async def attempt() -> Any:  # noqa: ANN401
        try:
            return await read()
        except NoKeysError:
            return None

    return await eventually(attempt)


async def _bucket(js: JetStreamContext, name: str, **config: Any) -> KeyValue:  # noqa: ANN401
    return await js.create_key_value(bucket=name, **{"direct": True, **config})


@pytest.mark.parametrize("direct", [False, True])
async def test_a_bucket_holds_values(js: JetStreamContext, name: str, direct: bool) -> None:
    bucket = await _bucket(js, name, history=5, description="d", direct=direct)
    assert [await bucket.put("a", b"1"), await bucket.put("b.c", b"2"), await bucket.put("a", b"3")] == [1, 2, 3]
    entry = await bucket.get("a")
    assert (entry.key, entry.value, entry.revision, entry.bucket) == ("a", b"3", 3, name)
    assert (await bucket.get("a", revision=1)).value == b"1"
    with pytest.raises(KeyNotFoundError):
        await bucket.get("none")
    assert sorted(await _found(bucket.keys)) == ["a", "b.c"]
    status = await bucket.status()
    assert (status.values, status.history, status.bucket) == (3, 5, name)


async def test_create_and_update_happen_once(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name)
    revision = await bucket.create("a", b"1")
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.create("a", b"2")
    assert await bucket.update("a", b"3", last=revision) == revision + 1
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.update("a", b"4", last=revision)
    await bucket.delete("a")
    assert await bucket.create("a", b"5") > revision


async def test_of_many_who_update_at_once_one_wins(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name)
    revision = await bucket.put("a", b"0")
    results = await asyncio.gather(
        *[bucket.update("a", b"x", last=revision) for _ in range(20)], return_exceptions=True
    )
    assert sum(isinstance(each, int) for each in results) == 1
    assert all(isinstance(each, int | KeyWrongLastSequenceError) for each in results)


async def test_deleted_and_purged_keys_are_gone(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name, history=5)
    for key in ("a", "b", "c"):
        await bucket.put(key, b"1")
    await bucket.delete("a")
    await bucket.put("b", b"2")
    await bucket.purge("b")
    for key in ("a", "b"):
        with pytest.raises(KeyNotFoundError):
            await bucket.get(key)
    assert [(entry.revision, entry.operation) for entry in await _found(partial(bucket.history, "a"))] == [
        (1, None),
        (4, "DEL"),
    ]
    assert [(entry.revision, entry.operation) for entry in await _found(partial(bucket.history, "b"))] == [(6, "PURGE")]
    assert await _found(bucket.keys) == ["c"]
    assert await bucket.purge_deletes(olderthan=-1)
    assert (await bucket.status()).values == 1


async def test_history_is_kept_as_long_as_was_asked(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name, history=3)
    for number in range(10):
        await bucket.put("a", b"%d" % number)
    assert [entry.value for entry in await _found(partial(bucket.history, "a"))] == [b"7", b"8", b"9"]


async def test_an_empty_bucket_has_no_keys(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name)
    with pytest.raises(NoKeysError):
        await bucket.keys()
    assert await _seen(await bucket.watchall()) == []


async def test_a_watch_shows_what_is_there_and_then_what_changes(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name)
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c.d", b"4")):
        await bucket.put(key, value)
    await bucket.delete("b")
    watcher: Any = await bucket.watchall()
    assert sorted(await _seen(watcher, 3)) == [("a", b"3", None), ("b", b"", "DEL"), ("c.d", b"4", None)]
    await bucket.put("new", b"5")
    await bucket.purge("a")
    changes = [await watcher.updates(timeout=WITHIN_S) for _ in range(2)]
    assert [(each.key, each.operation) for each in changes if each] == [("new", None), ("a", "PURGE")]
    await watcher.stop()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"keys": "a.*"}, ["a.1=3", "a.2=2"]),
        ({"keys": "a.*", "include_history": True}, ["a.1=1", "a.1=3", "a.2=2"]),
        ({"keys": ">", "ignore_deletes": True}, ["a.1=3", "a.2=2"]),
        ({"keys": ">", "meta_only": True}, ["a.1=", "a.2=", "b="]),
        ({"keys": "none"}, []),
    ],
)
async def test_watches_of_all_kinds(
    js: JetStreamContext, name: str, options: dict[str, Any], expected: list[str]
) -> None:
    bucket = await _bucket(js, name, history=5)
    for key, value in (("a.1", b"1"), ("a.2", b"2"), ("a.1", b"3"), ("b", b"4")):
        await bucket.put(key, value)
    await bucket.delete("b")
    watcher: Any = await bucket.watch(**options)
    seen = await _seen(watcher, len(expected))
    assert sorted(f"{key}={(value or b'').decode()}" for key, value, _ in seen) == expected
    await watcher.stop()


async def test_a_watch_of_many_keys_shows_each_once(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name)
    for number in range(2_000):
        await js.publish_async(f"$KV.{name}.k{number % 1_000}", b"%d" % number)
    await js.publish_async_completed()
    watcher: Any = await bucket.watchall()
    seen = await _seen(watcher, 1_000)
    assert sorted(int(value or b"0") for _, value, _ in seen) == list(range(1_000, 2_000))
    await watcher.stop()


async def test_values_live_as_long_as_the_bucket_says(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name, ttl=0.5)
    await bucket.put("a", b"1")
    assert (await bucket.status()).ttl == 0.5
    await eventually(lambda: _is_missing(bucket, "a"))


async def _is_missing(bucket: KeyValue, key: str) -> bool:
    try:
        await bucket.get(key)
    except KeyNotFoundError:
        return True
    return False


async def test_a_key_lives_as_long_as_it_says(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name, limit_marker_ttl=600)
    watcher: Any = await bucket.watchall()
    assert await _seen(watcher) == []
    for ttl_s in (1, 10, 60):  # one that is over before a busy machine has looked shows nothing
        key = f"a{ttl_s}"
        await bucket.create(key, b"1", msg_ttl=ttl_s)
        shown = await watcher.updates(timeout=WITHIN_S)
        if shown.operation is None:
            break
    assert (shown.key, shown.value) == (key, b"1")
    gone = await watcher.updates(timeout=WITHIN_S)
    assert (gone.key, gone.operation, gone.value) == (key, "PURGE", b"")
    await watcher.stop()


async def test_limits_of_a_bucket(js: JetStreamContext, name: str) -> None:
    bucket = await _bucket(js, name, max_value_size=10, max_bytes=10_000, storage=api.StorageType.MEMORY)
    await bucket.put("a", bytes(10))
    with pytest.raises(nats.js.errors.BadRequestError, match="message size exceeds maximum allowed"):
        await bucket.put("a", bytes(11))


async def test_buckets_are_found_and_deleted(js: JetStreamContext, name: str) -> None:
    with pytest.raises(nats.js.errors.BucketNotFoundError):
        await js.key_value(name)
    await _bucket(js, name)
    await (await js.key_value(name)).put("a", b"1")
    assert await js.delete_key_value(name)
    with pytest.raises(nats.js.errors.BucketNotFoundError):
        await js.key_value(name)


@pytest.mark.long
async def test_a_bucket_survives_a_restart(launch: StartServer, name: str) -> None:
    server = launch()
    async with connected(server.url) as client:
        bucket = await _bucket(client.jetstream(timeout=WITHIN_S), name, history=2)
        for number in range(5):
            await bucket.put("a", b"%d" % number)
    server.restart(kill=True)
    async with connected(server.url) as client:
        bucket = await client.jetstream(timeout=WITHIN_S).key_value(name)
        assert [entry.value for entry in await _found(partial(bucket.history, "a"))] == [b"3", b"4"]
        assert await bucket.update("a", b"5", last=5) == 6
