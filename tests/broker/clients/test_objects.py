"""Object stores by nats-py: big and small, replaced, described, watched, deleted, sealed."""

import hashlib
import io
import os
from typing import Any

import nats.js.errors
import pytest
from nats.js import JetStreamContext, api

from tests.broker.clients.servers import WITHIN_S


@pytest.mark.parametrize("size", [0, 1, 131_072, 1_000_000])
async def test_an_object_comes_back_as_it_went(js: JetStreamContext, name: str, size: int) -> None:
    store = await js.create_object_store(name)
    data = os.urandom(size)
    meta = api.ObjectMeta(description="d", headers={"A": "b"})
    info = await store.put("path/to it", data, meta=meta)
    assert (info.size, info.chunks) == (size, -(-size // 131_072))
    got = await store.get("path/to it")
    assert (got.data or b"") == data
    assert (got.info.description, got.info.digest, got.info.bucket) == ("d", info.digest, name)
    target = io.BytesIO()
    await store.get("path/to it", writeinto=target)
    assert hashlib.sha256(target.getvalue()).digest() == hashlib.sha256(data).digest()


async def test_an_object_is_replaced_and_its_old_chunks_go(js: JetStreamContext, name: str) -> None:
    store = await js.create_object_store(name)
    for size in (300_000, 10):
        await store.put("a", os.urandom(size))
    assert len((await store.get("a")).data or b"") == 10
    assert (await js.stream_info(f"OBJ_{name}")).state.messages == 2
    status = await store.status()
    assert status.bucket == name
    assert 0 < status.size < 5_000


async def test_objects_are_listed_and_deleted(js: JetStreamContext, name: str) -> None:
    store = await js.create_object_store(name)
    for each in ("a", "b", "c"):
        await store.put(each, each.encode())
    await store.delete("b")
    assert sorted(info.name for info in await store.list(ignore_deletes=True)) == ["a", "c"]
    assert sorted(info.name for info in await store.list()) == ["a", "b", "c"]
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await store.get("b")
    assert (await store.get_info("b", show_deleted=True)).deleted


async def test_changes_are_watched_and_descriptions_changed(js: JetStreamContext, name: str) -> None:
    store = await js.create_object_store(name)
    await store.put("a", b"1")
    watcher: Any = await store.watch()
    seen: list[Any] = [await watcher.updates(timeout=WITHIN_S) for _ in range(2)]
    assert (seen[0].name, seen[1]) == ("a", None)
    await store.update_meta("a", api.ObjectMeta(name="a", description="new"))
    changed = await watcher.updates(timeout=WITHIN_S)
    assert changed.description == "new"
    assert (await store.get("a")).data == b"1"
    await watcher.stop()


async def test_a_sealed_store_takes_nothing_more(js: JetStreamContext, name: str) -> None:
    store: Any = await js.create_object_store(name)
    await store.put("a", b"1")
    await store.seal()
    assert (await store.status()).sealed
    with pytest.raises(Exception, match=r"sealed|10109"):
        await store.put("b", b"1")
    assert (await store.get("a")).data == b"1"


async def test_a_store_is_found_and_deleted(js: JetStreamContext, name: str) -> None:
    await js.create_object_store(name, config=api.ObjectStoreConfig(description="d", storage=api.StorageType.MEMORY))
    assert (await (await js.object_store(name)).status()).description == "d"
    assert await js.delete_object_store(name)
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.object_store(name)
