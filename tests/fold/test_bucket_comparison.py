"""A fold beside its source: what is wrong is told, what cannot be known is said to be so, and nothing else."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from strandline.fold import (
    ALL,
    AppendLogStore,
    FoldBatch,
    MemoryStore,
    Scope,
    ScopeChanged,
    SqliteStore,
    bucket_comparison,
    catch_up,
)
from strandline.fold.bucket_comparison import Comparison, Keys, history, verify_against
from strandline.fold.cursor import UNKNOWN, FoldCursor, format_fold_cursor
from strandline.fold.errors import AnotherSource, NotYet
from strandline.kv import NO_CURSOR, Delete, Discard, Put, Retention, StoreConfig, format_revision
from strandline.kv.nats import NatsConnection
from strandline.protocol.fold_modes import FoldMode
from strandline.testing.snapshot_stores import changes
from tests.fold.buckets import Script, Twin, put, twin, until
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

NONE = Keys(0, ())


def sync(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs to its end."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


async def folded(bucket: Twin, prefix: str = "") -> MemoryStore:
    """Return the fold of a bucket as it is now."""
    store = MemoryStore()
    async for batch in bucket.store.reader().scan_batches(prefix):
        store.apply(FoldBatch.from_updates(batch), NO_CURSOR)
    watcher = bucket.store.watcher()
    assert watcher is not None
    retention = await watcher.retention()
    scope = Scope.of(prefix).digest if prefix else UNKNOWN
    store.apply(FoldBatch(), format_fold_cursor(FoldCursor(retention.last_revision, False, retention.identity, scope)))
    return store


def keys(*found: bytes) -> Keys:
    return Keys(len(found), found)


def wrong(found: Comparison) -> tuple[Keys, Keys, Keys]:
    return found.missing, found.extra, found.different


@sync
async def test_a_fold_that_is_its_source_has_the_digest_of_its_source() -> None:
    bucket = await twin("a=1", "b.x=2", "c=3", "-c", "d=4", "d=5")
    fold = await folded(bucket)
    found = await verify_against(fold, bucket.store)
    assert found.is_equal
    assert found.is_complete
    assert found.verified == fold.verify()
    assert found.fold_digest == found.source_digest == found.verified.digest
    assert (found.revision, found.source_revision, found.compared) == (6, 6, 3)
    assert wrong(found) == (NONE, NONE, NONE)


@sync
async def test_an_empty_fold_of_an_empty_bucket_is_equal() -> None:
    bucket = await twin()
    found = await verify_against(await folded(bucket), bucket.store)
    assert found.is_equal
    assert found.is_complete
    assert found.compared == 0


@sync
async def test_what_is_wrong_is_told_by_key() -> None:
    bucket = await twin("a=1", "b=2", "c=3", "-c", "d=4", "e=5")
    fold = await folded(bucket)
    fold.apply(*changes(1, (b"a", None), (b"c", b"3"), (b"nobody", b"x")))
    fold.apply(FoldBatch([b"b"], [b"other"], [format_revision(2)]), NO_CURSOR)
    fold.apply(FoldBatch([b"d"], [b"4"], [format_revision(1)]), NO_CURSOR)
    fold.apply(FoldBatch(), format_fold_cursor(FoldCursor(6)))
    found = await verify_against(fold, bucket.store)
    assert wrong(found) == (keys(b"a"), keys(b"c", b"nobody"), keys(b"b", b"d"))
    assert not found.is_equal
    assert found.is_complete
    assert found.fold_digest != found.source_digest
    assert found.compared == 6


@sync
async def test_a_key_whose_version_the_fold_does_not_know_is_compared_by_its_value() -> None:
    bucket = await twin("a=1")
    fold = await folded(bucket)
    fold.apply(FoldBatch([b"a"], [b"1"], [b""]), NO_CURSOR)
    assert (await verify_against(fold, bucket.store)).is_equal


@sync
async def test_what_was_updated_after_the_cursor_is_newer_and_not_judged() -> None:
    bucket = await twin("a=1", "b=2", "c=3", "d=4")
    fold = await folded(bucket)
    await bucket.put("b=new", "-c", "e=added", "f=passing", "-f")
    found = await verify_against(fold, bucket.store)
    assert found.is_equal
    assert not found.is_complete
    assert found.newer == keys(b"b", b"c", b"e", b"f")
    assert (found.compared, found.unaccounted) == (2, NONE)
    assert found.fold_digest == found.source_digest != found.verified.digest


@sync
async def test_a_wrong_key_is_found_also_when_the_source_has_moved_on() -> None:
    bucket = await twin("a=1", "b=2", "c=3", "-c", "d=4")
    fold = await folded(bucket)
    await bucket.put("b=new")
    kept, versions = [b"a", b"c"], [format_revision(1), format_revision(3)]
    fold.apply(FoldBatch(kept, [b"other", b"3"], versions), NO_CURSOR)
    fold.apply(*changes(1, (b"d", None)))
    fold.apply(FoldBatch(), format_fold_cursor(FoldCursor(5)))
    found = await verify_against(fold, bucket.store)
    assert wrong(found) == (keys(b"d"), keys(b"c"), keys(b"a"))
    assert found.newer == keys(b"b")


@sync
async def test_a_key_of_which_the_bucket_holds_nothing_is_extra_only_if_that_is_certain() -> None:
    for config, moves, certain in [
        (StoreConfig(), False, True),
        (StoreConfig(), True, False),
        (StoreConfig(discard=Discard.OLD), False, False),
    ]:
        bucket = await twin("a=1", "b=2", config=config)
        fold = await folded(bucket)
        fold.apply(*changes(1, (b"nobody", b"x")))
        fold.apply(FoldBatch(), format_fold_cursor(FoldCursor(2)))
        if moves:
            await bucket.put("c=3")
        found = await verify_against(fold, bucket.store)
        assert found.extra == (keys(b"nobody") if certain else NONE)
        assert found.unaccounted == (NONE if certain else keys(b"nobody"))


@sync
async def test_samples_are_few_and_counts_are_whole() -> None:
    bucket = await twin(*(f"k{at:03}={at}" for at in range(50)))
    fold = MemoryStore()
    fold.apply(FoldBatch(), format_fold_cursor(FoldCursor(50)))
    found = await verify_against(fold, bucket.store, samples_max=3)
    assert found.missing == Keys(50, (b"k000", b"k001", b"k002"))
    assert found.compared == 50


@sync
async def test_a_fold_of_another_bucket_or_a_longer_log_is_refused() -> None:
    bucket, other = await twin("a=1", "b=2"), await twin("a=1")
    with pytest.raises(AnotherSource, match="created again"):
        await verify_against(await folded(other), bucket.store)
    fold = MemoryStore()
    fold.apply(FoldBatch(), format_fold_cursor(FoldCursor(3)))
    with pytest.raises(AnotherSource, match="ends at revision 2"):
        await verify_against(fold, bucket.store)


@sync
async def test_a_scope_is_compared_with_its_own_keys_and_another_is_refused() -> None:
    bucket = await twin("a.1=1", "b.1=2")
    fold = await folded(bucket, "a.")
    assert (await verify_against(fold, bucket.store, Scope.of("a."))).is_complete
    with pytest.raises(ScopeChanged):
        await verify_against(fold, bucket.store)


@sync
async def test_a_source_that_becomes_current_without_another_update_is_not_waited_for() -> None:
    bucket = Script(retained=Retention(False, 1, 1), is_current=False)
    bucket.say(put("a", "1", 1))
    fold = MemoryStore()
    fold.apply(FoldBatch([b"a"], [b"1"], [format_revision(1)]), format_fold_cursor(FoldCursor(1)))
    comparing = asyncio.create_task(verify_against(fold, bucket.store))
    await until(lambda: not bucket.left)
    await asyncio.sleep(0.1)  # it waits for more by now
    bucket.is_current = True
    found = await asyncio.wait_for(comparing, PATIENCE_S)
    assert (found.is_equal, found.is_complete, found.compared) == (True, True, 1)


@sync
async def test_updates_of_a_slow_source_are_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_comparison, "LOOKS_EVERY_S", 0.001)
    bucket = Script(retained=Retention(False, 1, 50), is_current=False)
    fold = MemoryStore()
    fold.apply(FoldBatch(), format_fold_cursor(FoldCursor(50)))
    comparing = asyncio.create_task(verify_against(fold, bucket.store))
    for revision in range(1, 51):
        bucket.say(put(f"k{revision:02}", "1", revision))
        await asyncio.sleep(0.001)
    await until(lambda: not bucket.left)
    bucket.is_current = True
    assert (await asyncio.wait_for(comparing, PATIENCE_S)).missing.count == 50


@sync
async def test_a_source_that_ends_with_a_timeout_is_not_waited_for() -> None:
    bucket = Script(retained=Retention(False, 1, 1), is_current=False)
    bucket.fail(NotYet("current", 1.0, 0))
    with pytest.raises(NotYet):
        await asyncio.wait_for(verify_against(MemoryStore(), bucket.store), PATIENCE_S)


@sync
async def test_the_copy_of_the_source_may_be_made_on_disk(tmp_path: Path) -> None:
    bucket = await twin("a=1", "b=2")
    with SqliteStore.open(tmp_path / "work.db") as workspace:
        found = await verify_against(await folded(bucket), bucket.store, workspace=workspace)
        assert found.is_equal
        assert len(workspace.range()) == 2


async def moded(bucket: Twin, mode: FoldMode, fold: MemoryStore | None = None) -> MemoryStore:
    """Return a fold, kept in a mode, that stands where the bucket ends."""
    fold = fold or MemoryStore()
    watcher = bucket.store.watcher()
    assert watcher is not None
    retention = await watcher.retention()
    mark = FoldCursor(retention.last_revision, True, retention.identity, mode=mode)
    fold.apply(FoldBatch(), format_fold_cursor(mark))
    return fold


@sync
async def test_a_key_that_left_without_a_word_is_wrong_in_a_mirror_and_unaccounted_for_in_an_archive() -> None:
    bucket = await twin("a=1", "b=2", "c=3", config=StoreConfig(ttl=True))
    fold = await folded(bucket)
    bucket.log._remove(bucket.log._records[2])  # noqa: SLF001 - as a purge of one subject does
    found = await verify_against(await moded(bucket, FoldMode.MIRROR, fold), bucket.store)
    assert (wrong(found), found.unaccounted) == ((NONE, keys(b"b"), NONE), NONE)
    found = await verify_against(await moded(bucket, FoldMode.ARCHIVE, fold), bucket.store)
    assert (wrong(found), found.unaccounted) == ((NONE, NONE, NONE), keys(b"b"))


@sync
async def test_what_a_mirror_is_about_to_remove_is_not_wrong() -> None:
    bucket = await twin("a=1", "b=2", "c=3", config=StoreConfig(ttl=True))
    fold = await folded(bucket)
    bucket.forget(1)
    found = await verify_against(await moded(bucket, FoldMode.MIRROR, fold), bucket.store)
    assert (wrong(found), found.unaccounted) == ((NONE, NONE, NONE), keys(b"a"))


@sync
async def test_a_marker_of_an_expired_value_is_no_delete_to_an_archive_that_is_verified() -> None:
    bucket = await twin("b=1", config=StoreConfig(ttl=True, marker_ttl_s=60.0))
    await bucket.writer.put("a", b"1", ttl_s=1.0)
    archive, mirror = await folded(bucket), await folded(bucket)
    bucket.clock.advance(2.0)
    await bucket.truth()
    found = await verify_against(await moded(bucket, FoldMode.ARCHIVE, archive), bucket.store)
    assert (wrong(found), found.unaccounted) == ((NONE, NONE, NONE), keys(b"a"))
    found = await verify_against(await moded(bucket, FoldMode.MIRROR, mirror), bucket.store)
    assert wrong(found) == (NONE, keys(b"a"), NONE)


@sync
async def test_the_value_before_an_expired_one_says_nothing_of_an_archive() -> None:
    bucket = await twin("a=1", config=StoreConfig(ttl=True, history=5))
    await bucket.writer.put("a", b"2", ttl_s=1.0)
    fold = await folded(bucket)
    bucket.clock.advance(2.0)
    assert await bucket.truth() == {"a": b"1"}
    found = await verify_against(await moded(bucket, FoldMode.ARCHIVE, fold), bucket.store)
    assert (wrong(found), found.unaccounted) == ((NONE, NONE, NONE), keys(b"a"))
    found = await verify_against(await moded(bucket, FoldMode.MIRROR, fold), bucket.store)
    assert wrong(found) == (NONE, NONE, keys(b"a"))


@sync
async def test_history_is_what_the_bucket_still_holds_of_a_key() -> None:
    bucket = await twin("a=1", "b=x", "a=2", "-a", "a=3", config=StoreConfig(history=3))
    told = await history(bucket.store, "a")
    assert told == [
        Put("a", b"2", format_revision(3)),
        Delete("a", format_revision(4)),
        Put("a", b"3", format_revision(5)),
    ]
    assert await history(bucket.store, "never") == []


@sync
async def test_a_fold_of_a_real_bucket_is_compared_with_it(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    async with NatsConnection(nats_server.url) as connection:
        store = await connection.store(nats_bucket, StoreConfig(history=3))
        writer = store.writer()
        assert writer is not None
        for key, value in [("a", b"1"), ("b", b"2"), ("c", b"3"), ("a", b"4"), ("d", b"5")]:
            await writer.put(key, value)
        await writer.delete("c")
        await catch_up(store, ALL, lambda: AppendLogStore.open(tmp_path / "fold.log"))
        with AppendLogStore.open(tmp_path / "fold.log") as fold:
            found = await verify_against(fold, store)
            assert (found.is_equal, found.is_complete, found.compared) == (True, True, 3)
            assert found.fold_digest == found.source_digest == fold.verify().digest
            await writer.put("b", b"newer")
            fold.apply(FoldBatch([b"c"], [b"3"], [format_revision(3)]), NO_CURSOR)
            found = await verify_against(fold, store)
        assert wrong(found) == (NONE, keys(b"c"), NONE)
        assert found.newer == keys(b"b")
        told = await history(store, "a")
        assert told == [Put("a", b"1", format_revision(1)), Put("a", b"4", format_revision(4))]
        assert isinstance((await history(store, "c"))[-1], Delete)
