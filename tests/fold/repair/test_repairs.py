"""A fold that has missed updates is repaired from what may be believed, or refused; whatever happens in between."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import takewhile

import pytest

from strandline.fold import (
    ALL,
    Batching,
    FoldBatch,
    FoldCursor,
    FoldReader,
    Hooks,
    RepairMode,
    RepairPlan,
    RepairPolicy,
    RepairRefused,
    Scope,
    ScopeChanged,
    catch_up,
    format_fold_cursor,
    preview_repair,
    repair_fold,
)
from strandline.fold.errors import BucketOutruns
from strandline.fold.events import CaughtUp, CursorFellOut, EvictingSeen, GapPassed, RepairEnded, WatchBegan
from strandline.kv import (
    NO_CURSOR,
    BucketNotFound,
    NotSupported,
    StoreConfig,
    UpdateBatch,
    UpdateKind,
    Watch,
    WatchCursor,
    format_cursor,
)
from strandline.kv.memory import MemoryReader, MemoryWatcher
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import KeyRepair
from tests.fold.buckets import Twin, Watching, listening, twin, watching
from tests.fold.repair.scenes import OVERFLOWS, TRUTH, Artifact, archive, folded, overflown, relisting, restoring
from tests.fold.shelves import Fault, Killed, Shelf
from tests.waiting import PATIENCE_S

AGES = StoreConfig(age_max_s=100.0)


RELIST = archive(RepairMode.RELIST)


def test_a_bucket_that_evicts_is_not_listed_for_the_truth_and_without_an_artifact_the_repair_is_refused() -> None:
    async def check() -> None:
        bucket, shelf, _ = await overflown()
        before = shelf.values, shelf.mark
        with pytest.raises(RepairRefused) as caught:
            await folded(bucket, shelf)
        assert (shelf.values, shelf.mark) == before
        assert "restorer" in (caught.value.hint or "")
        with pytest.raises(RepairRefused):
            await folded(bucket, shelf, policy=RELIST)
        assert (shelf.values, shelf.mark) == before

    asyncio.run(check())


@pytest.mark.parametrize("mode", [RepairMode.AUTO, RepairMode.RESTORE])
def test_an_artifact_restores_what_the_bucket_has_evicted(mode: RepairMode) -> None:
    async def check() -> None:
        bucket, shelf, artifact = await overflown()
        heard, hooks = listening()
        mark = await catch_up(bucket.store, ALL, shelf.open, policy=artifact.policy(mode), hooks=hooks)
        assert shelf.values == TRUTH
        assert mark.revision == 8
        assert [(ended.plan, ended.put, ended.deleted) for ended in heard.of(RepairEnded)] == [
            (RepairPlan.RESTORE, 4, 1)
        ]
        revisions = [mark.revision for mark in shelf.marks]
        assert revisions == sorted(revisions)

    asyncio.run(check())


def test_a_restore_tells_apply_what_it_changes() -> None:
    async def check() -> None:
        bucket, shelf, artifact = await overflown()
        told: list[tuple[str, int]] = []

        def apply(batch: UpdateBatch) -> None:
            told.extend(zip(batch.keys, batch.kinds.tolist(), strict=True))

        await folded(bucket, shelf, policy=artifact.policy(), hooks=Hooks(apply=apply))
        assert told == [("b", 0), ("c", 0), ("d", 0), ("e", 0), ("a", 1), ("f", 0)]

    asyncio.run(check())


def test_an_artifact_that_is_not_ahead_or_out_of_reach_is_refused() -> None:
    async def check() -> None:
        bucket, shelf, artifact = await overflown()
        old = Artifact(shelf)
        with pytest.raises(RepairRefused, match="already"):
            await folded(bucket, shelf, policy=old.policy())
        await bucket.put("g=9", "h=10", "i=11", "j=12")
        with pytest.raises(RepairRefused, match="the log begins at 10"):
            await folded(bucket, shelf, policy=artifact.policy())
        assert shelf.values == {"a": b"1", "b": b"2"}

    asyncio.run(check())


def test_an_artifact_of_another_bucket_or_scope_is_refused() -> None:
    async def check() -> None:
        bucket, shelf, artifact = await overflown()
        mark = artifact.shelf.mark
        artifact.shelf.kept.apply(FoldBatch(), format_fold_cursor(mark._replace(identity=b"another!")))
        with pytest.raises(RepairRefused, match="another bucket"):
            await folded(bucket, shelf, policy=artifact.policy())
        artifact.shelf.kept.apply(FoldBatch(), format_fold_cursor(mark._replace(scope=Scope.of("x."))))
        with pytest.raises(RepairRefused, match="does not hold"):
            await folded(bucket, shelf, policy=artifact.policy())

    asyncio.run(check())


def test_an_artifact_of_all_keys_restores_a_scope_of_them() -> None:
    async def check() -> None:
        bucket = await twin("a.x=1", "b.x=2", config=OVERFLOWS)
        scope = Scope.of("a.")
        shelf, other = await folded(bucket, scope=scope), await folded(bucket)
        async with watching(bucket.store, other, policy=archive(), batching=Batching(window_s=0.0)) as run:
            for pair in ("-a.x", "a.y=4", "b.y=5", "b.z=6", "b.w=7"):
                await bucket.put(pair)
                await run.until(lambda: other.mark.revision == bucket.log.last_revision)
        await folded(bucket, shelf, scope, policy=Artifact(other).policy())
        assert shelf.values == {"a.y": b"4"}

    asyncio.run(check())


class Nothing:
    """A restorer without an artifact."""

    async def newest(self, _: Scope) -> FoldReader | None:
        return None


def test_no_restorer_has_an_artifact() -> None:
    async def check() -> None:
        bucket, shelf, _ = await overflown()
        with pytest.raises(RepairRefused, match="no artifact"):
            await folded(bucket, shelf, policy=archive(RepairMode.RESTORE, Nothing()))

    asyncio.run(check())


def test_that_a_bucket_evicts_is_remembered_though_its_settings_are_edited_back() -> None:
    async def check() -> None:
        bucket, shelf, _ = await overflown()
        assert shelf.mark.seen_evicting
        bucket.log.config = StoreConfig()
        for _ in range(2):
            with pytest.raises(RepairRefused):
                await folded(bucket, shelf)
            assert shelf.values == {"a": b"1", "b": b"2"}
            assert shelf.mark.seen_evicting

    asyncio.run(check())


def test_that_a_bucket_evicts_is_durable_before_anything_of_its_listing() -> None:
    async def check() -> None:
        bucket = await twin("a=1", config=AGES)
        shelf = await folded(bucket)
        first, *_ = shelf.marks
        mode = FoldMode.ARCHIVE
        assert first == FoldCursor(0, True, shelf.mark.identity, ALL, mode=mode, seen_dropping=True)

    asyncio.run(check())


def test_that_a_watched_bucket_was_set_to_evict_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.01)

    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        heard, hooks = listening()
        async with watching(bucket.store, shelf, hooks=hooks) as run:
            await run.until(lambda: shelf.mark.revision == 1)
            assert not shelf.mark.seen_evicting
            bucket.log.config = AGES
            await run.until(lambda: shelf.mark.seen_evicting)
        assert heard.of(EvictingSeen)

    asyncio.run(check())


def test_a_mute_source_that_was_seen_to_evict_is_not_believed() -> None:
    async def check() -> None:
        bucket, shelf, _ = await overflown()
        bucket.connection.faults.fail("retention", NotSupported("retention"))
        bucket.connection.faults.fail("retention", NotSupported("retention"), nth=2)
        with pytest.raises(RepairRefused):
            await folded(bucket, shelf)
        assert shelf.values == {"a": b"1", "b": b"2"}

    asyncio.run(check())


def test_a_fold_with_data_but_no_cursor_is_repaired_first() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        shelf.kept.apply(FoldBatch([b"a", b"stale"], [b"0", b"x"], [b"", b""]), NO_CURSOR)
        heard, hooks = listening()
        await folded(bucket, shelf, hooks=hooks)
        assert shelf.values == {"a": b"1", "b": b"2"}
        assert [ended.deleted for ended in heard.of(RepairEnded)] == [1]

    asyncio.run(check())


def test_a_bare_revision_is_a_cursor_too() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        shelf.kept.apply(FoldBatch([b"a"], [b"1"], [format_cursor(1)]), format_cursor(1))
        await folded(bucket, shelf)
        assert shelf.values == {"a": b"1", "b": b"2"}
        assert shelf.rows == 1
        assert shelf.mark.identity == bucket.log.identity

    asyncio.run(check())


def test_an_empty_fold_of_a_bucket_that_has_evicted_is_seeded_from_an_artifact() -> None:
    async def check() -> None:
        bucket, _, artifact = await overflown()
        seeded = await folded(bucket, policy=artifact.policy())
        assert seeded.values == TRUTH
        with pytest.raises(RepairRefused, match="empty"):
            await folded(bucket, policy=archive(RepairMode.RESTORE))

    asyncio.run(check())


def test_an_empty_archive_without_an_artifact_begins_with_what_is_there_and_says_from_where_on_it_is_complete() -> None:
    async def check() -> None:
        bucket, _, _ = await overflown()
        for policy in (archive(), archive(RepairMode.AUTO, Nothing()), archive(RepairMode.RELIST)):
            begun = await folded(bucket, policy=policy)
            assert begun.values == await bucket.truth()
            assert begun.mark.floor == bucket.log.first_revision > 1

    asyncio.run(check())


def test_an_empty_fold_of_a_bucket_that_may_evict_but_has_not_begins_anew() -> None:
    async def check() -> None:
        bucket = await twin("a=1", "b=2", config=AGES)
        shelf = await folded(bucket)
        assert shelf.values == {"a": b"1", "b": b"2"}
        assert [mark.revision for mark in shelf.marks] == [0, 0, 2], "the cursor follows when the whole state is there"

    asyncio.run(check())


def test_a_listing_that_counts_leaves_its_cursor_though_more_is_being_stored() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2", config=AGES), Shelf()
        bucket.connection.faults.delay_s = 0.01
        loop = asyncio.get_running_loop()

        def write(batch: FoldBatch, _: WatchCursor) -> None:
            if len(batch) and not shelf.rows:
                asyncio.run_coroutine_threadsafe(bucket.put("c=3"), loop).result()
            time.sleep(0.05)  # the next batch is on its way when the listing is found to count

        shelf.on_write = write
        await folded(bucket, shelf)
        assert shelf.mark.revision == 3
        assert shelf.values == await bucket.truth()

    asyncio.run(check())


def test_a_first_copy_of_what_was_evicted_while_it_was_read_is_complete_from_where_the_log_begins_then() -> None:
    async def check() -> None:
        bucket = await twin("a=1", "b=2", config=AGES)
        shelf = Shelf()

        def evict(*_: object) -> None:
            if shelf.writes == 2:
                bucket.forget(1)

        shelf.on_write = evict
        await folded(bucket, shelf)
        assert (shelf.mark.revision, shelf.mark.floor) == (2, 2)

    asyncio.run(check())


def test_a_bucket_made_anew_is_another_one_whatever_its_name() -> None:
    async def check() -> None:
        bucket = await twin(*(f"k{number}=x" for number in range(20)))
        shelf = await folded(bucket)
        bucket.server.remove_bucket("b")
        await bucket.start()
        await bucket.put("k1=new", "z=1")
        heard, hooks = listening()
        await folded(bucket, shelf, hooks=hooks)
        assert shelf.values == {"k1": b"new", "z": b"1"}
        assert shelf.mark.revision == 2
        assert shelf.mark.identity == bucket.log.identity
        assert "created again" in heard.of(CursorFellOut)[0].reason
        await bucket.put("-z")
        await folded(bucket, shelf)
        assert shelf.values == {"k1": b"new"}

    asyncio.run(check())


def test_a_bucket_made_anew_that_has_grown_past_the_cursor_is_noticed_too() -> None:
    async def check() -> None:
        bucket = await twin("a=1", "b=2")
        shelf = await folded(bucket)
        bucket.server.remove_bucket("b")
        await bucket.start()
        await bucket.put(*(f"c={number}" for number in range(9)))
        await folded(bucket, shelf)
        assert shelf.values == {"c": b"8"}

    asyncio.run(check())


def test_a_bucket_made_anew_while_it_is_watched_ends_the_watch_and_the_next_one_repairs() -> None:
    async def check() -> None:
        bucket = await twin("a=1")
        shelf = Shelf()
        heard, hooks = listening()
        run = Watching(bucket.store, shelf, hooks=hooks, policy=archive())
        await run.until(lambda: bool(heard.of(CaughtUp)))  # before that it looks again, and repairs by itself
        bucket.server.remove_bucket("b")
        await bucket.start()
        await bucket.put("b=2")
        with pytest.raises(BucketNotFound, match="does not exist"):
            await asyncio.wait_for(run.task, PATIENCE_S)
        await folded(bucket, shelf)
        assert shelf.values == {"b": b"2"}

    asyncio.run(check())


def test_a_bucket_made_anew_that_the_watch_did_not_notice_is_noticed_by_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old watch's revisions must never be stored under the new bucket's identity."""
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.01)

    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        async with watching(bucket.store, shelf) as run:
            await run.until_stored({"a": b"1", "b": b"2"})
            old = bucket.server.buckets.pop("b")
            await bucket.start()
            await bucket.put("z=1")
            old.append(UpdateKind.PUT, "c", b"3", bucket.clock.now_ns())
            await run.until_stored({"z": b"1"})
            await run.until(lambda: shelf.mark == shelf.mark._replace(revision=1, identity=bucket.log.identity))

    asyncio.run(check())


def test_a_log_that_lost_its_end_is_another_log() -> None:
    async def check() -> None:
        bucket = await twin("a=1", "b=2", "c=3")
        shelf = await folded(bucket)
        bucket.lose_end()
        await folded(bucket, shelf)
        assert shelf.values == {"a": b"1", "b": b"2"}
        assert shelf.mark.revision == 2
        await bucket.put("d=4")
        await folded(bucket, shelf)
        assert shelf.values == await bucket.truth()

    asyncio.run(check())


def test_that_a_bucket_evicts_is_remembered_though_its_log_lost_its_end() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2", "c=3", config=OVERFLOWS), Shelf()
        async with watching(bucket.store, shelf, policy=archive(), batching=Batching(window_s=0.0)) as run:
            await run.until(lambda: shelf.mark.revision == 3)
            await bucket.put("d=4", "e=5")
            await run.until(lambda: shelf.mark.revision == 5)
        bucket.log.config = StoreConfig()
        bucket.lose_end()
        with pytest.raises(RepairRefused):
            await folded(bucket, shelf)
        assert shelf.mark.seen_evicting
        assert shelf.values["a"] == b"1", "it was evicted, not deleted"

    asyncio.run(check())


def test_a_bucket_made_anew_during_a_restore_is_noticed_though_it_reaches_to_the_artifact() -> None:
    async def check() -> None:
        bucket, shelf, artifact = await overflown()
        made_anew = False

        async def apply(_: UpdateBatch) -> None:
            nonlocal made_anew
            if not made_anew:
                made_anew = True
                bucket.server.remove_bucket("b")
                bucket.store = await bucket.connection.store("b", OVERFLOWS)
                await bucket.put(*(f"new.{number % 3}={number}" for number in range(9)))

        with pytest.raises(RepairRefused, match="another bucket"):
            await folded(bucket, shelf, policy=artifact.policy(), hooks=Hooks(apply=apply))
        assert shelf.mark.revision == 0, "no revision of the new log is claimed"

    asyncio.run(check())


def test_another_scope_is_refused_and_taken_over_by_a_repair_that_is_asked_for() -> None:
    async def check() -> None:
        bucket = await twin("a.x=1", "b.x=2")
        shelf = await folded(bucket, scope=Scope.of("a."))
        with pytest.raises(ScopeChanged) as caught:
            await folded(bucket, shelf, scope=Scope.of("b."))
        assert "repair" in (caught.value.hint or "")
        await repair_fold(bucket.store, Scope.of("b."), shelf.open, policy=archive())
        assert shelf.values == {"b.x": b"2"}
        await folded(bucket, shelf, scope=Scope.of("b."))
        await repair_fold(bucket.store, ALL, shelf.open, policy=archive())
        assert shelf.values == {"a.x": b"1", "b.x": b"2"}

    asyncio.run(check())


def test_a_scope_that_is_taken_over_halfway_is_never_taken_for_the_old_one() -> None:
    async def check(nth: int) -> None:
        bucket = await twin("a.x=1", "a.y=2", "b.x=3")
        shelf = await folded(bucket, scope=Scope.of("a."))
        shelf.faults = {shelf.writes + nth: Fault.KILLED_AFTER}
        with pytest.raises(Killed):
            await repair_fold(bucket.store, Scope.of("b."), shelf.open, policy=archive())
        with pytest.raises(ScopeChanged):
            await folded(bucket, shelf, scope=Scope.of("a."))
        await folded(bucket, shelf, scope=Scope.of("b."))
        assert shelf.values == {"b.x": b"3"}

    for nth in (1, 2, 3):
        asyncio.run(check(nth))


def test_a_bucket_that_is_purged_empties_its_fold() -> None:
    async def check() -> None:
        bucket = await twin("a=1", "b=2")
        shelf = await folded(bucket)
        bucket.forget(2)
        await bucket.put("c=3")
        bucket.forget(3)
        await folded(bucket, shelf)
        assert shelf.values == {}

    asyncio.run(check())


def test_a_bucket_that_is_purged_after_its_fold_has_read_it_empties_it_too() -> None:
    """Its log begins right after the cursor, and only that it holds nothing tells."""

    async def check() -> None:
        bucket = await twin("a=1", "b=2")
        shelf = await folded(bucket)
        bucket.forget(2)
        await folded(bucket, shelf)
        assert shelf.values == {}
        assert shelf.mark.revision == 2
        before = shelf.writes
        await folded(bucket, shelf)
        assert shelf.writes == before

    asyncio.run(check())


def test_a_bucket_that_is_purged_and_written_again_while_its_fold_is_away_is_noticed() -> None:
    """Its log begins right after the cursor, with nothing of what the fold has read."""

    async def check() -> None:
        bucket = await twin("a=1", "b=2")
        shelf = await folded(bucket)
        bucket.forget(2)
        await bucket.put("c=3")
        await folded(bucket, shelf)
        assert shelf.values == await bucket.truth() == {"c": b"3"}

    asyncio.run(check())


def test_a_purge_under_the_watch_empties_the_fold() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        async with watching(bucket.store, shelf) as run:
            await run.until_stored({"a": b"1", "b": b"2"})
            bucket.forget(2)
            await run.until_stored({})
            await bucket.put("c=3")
            await run.until_stored({"c": b"3"})

    asyncio.run(check())


def test_a_purge_of_all_while_the_fold_is_cut_off_is_repaired_in_the_same_watch() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        heard, hooks = listening()
        async with watching(bucket.store, shelf, hooks=hooks) as run:
            await run.until_stored({"a": b"1", "b": b"2"})
            bucket.connection.drop()
            for _ in range(3):
                await _put_behind(bucket, "b")
            bucket.forget(5)
            bucket.connection.restore()
            await run.until_stored({})
            await bucket.put("c=9")
            await run.until_stored({"c": b"9"})
        assert len(heard.of(RepairEnded)) == 1
        assert len(heard.of(WatchBegan)) == 2

    asyncio.run(check())


async def _put_behind(bucket: Twin, key: str) -> None:
    """Write while the fold's connection is lost."""
    bucket.log.append(UpdateKind.PUT, key, b"x", bucket.clock.now_ns())


def test_a_young_cursor_passes_a_gap_of_a_bucket_that_only_ages() -> None:
    async def check(pause_s: float) -> tuple[Shelf, Twin, list[GapPassed]]:
        bucket = await twin("a=1", "b=2", config=AGES)
        policy = archive(clock=bucket.clock)
        shelf = await folded(bucket, policy=policy)
        assert shelf.mark.since_ns == bucket.clock.now_ns()
        bucket.clock.advance(pause_s)
        await bucket.put("a=3", "a=4", "b=5")
        heard, hooks = listening()
        await folded(bucket, shelf, hooks=hooks, policy=policy)
        return shelf, bucket, heard.of(GapPassed)

    shelf, _, passed = asyncio.run(check(40.0))
    assert shelf.values == {"a": b"4", "b": b"5"}
    assert len(passed) == 1
    with pytest.raises(RepairRefused):
        asyncio.run(check(60.0))


def test_the_time_of_a_quiet_fold_is_renewed_where_age_evicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.005)

    async def check() -> None:
        bucket, shelf = await twin("a=1", config=AGES), Shelf()
        async with watching(bucket.store, shelf, policy=archive(clock=bucket.clock)) as run:
            await run.until(lambda: shelf.mark.revision == 1)
            before = shelf.writes
            await asyncio.sleep(0.05)
            assert shelf.writes == before, "not at every look"
            bucket.clock.advance(20.0)
            await run.until(lambda: shelf.mark.since_ns == bucket.clock.now_ns())
            assert shelf.mark.revision == 1

    asyncio.run(check())


def test_a_fold_that_lags_does_not_count_as_young() -> None:
    """The time in a mark is one at which the log did not reach beyond it; a commit alone says nothing of that."""

    async def check() -> None:
        bucket, shelf = await twin("a=1", config=AGES), Shelf()
        await folded(bucket, shelf)
        since = shelf.mark.since_ns
        async with watching(bucket.store, shelf) as run:
            await bucket.put("a=2", "a=3")
            await run.until(lambda: shelf.mark.revision == 3)
        assert shelf.mark.since_ns <= since + 10**9

    asyncio.run(check())


def test_a_bucket_that_begins_to_evict_while_it_is_listed_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        bucket = await twin("a=1", "b=2")
        shelf = await folded(bucket)
        await bucket.put("a=3", "a=4", "b=5")
        keys = MemoryReader.keys

        async def keys_of_less(self: MemoryReader, prefix: str = "") -> list[str]:
            bucket.log.config = AGES
            bucket.forget(4)
            return await keys(self, prefix)

        monkeypatch.setattr(MemoryReader, "keys", keys_of_less)
        with pytest.raises(RepairRefused):
            await folded(bucket, shelf)
        assert shelf.values == {"a": b"1", "b": b"2"}
        assert shelf.mark.seen_evicting

    asyncio.run(check())


def test_a_bucket_that_forgets_faster_than_it_can_be_listed_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.start.PAUSE_S_MAX", 0.0)

    async def check() -> None:
        bucket = await twin("a=1")
        shelf = await folded(bucket)
        await bucket.put("a=2", "a=3")
        start = MemoryWatcher.watch_all

        async def watch_late(self: MemoryWatcher) -> Watch:
            await bucket.put("a=x", "a=y")
            return await start(self)

        monkeypatch.setattr(MemoryWatcher, "watch_all", watch_late)
        with pytest.raises(BucketOutruns):
            await folded(bucket, shelf)
        monkeypatch.setattr(MemoryWatcher, "watch_all", start)
        await folded(bucket, shelf)
        assert shelf.values == {"a": b"y"}

    asyncio.run(check())


# A crash at every write


async def relisting_a_bucket_made_anew() -> tuple[Twin, Shelf, RepairPolicy, dict[str, bytes]]:
    bucket = await twin(*(f"k{number}={number}" for number in range(9)))
    shelf = await folded(bucket)
    bucket.server.remove_bucket("b")
    await bucket.start()
    await bucket.put(*(f"k{number}=new" for number in range(3, 12)), "-k5")
    return bucket, shelf, archive(), await bucket.truth()


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("scene", [relisting, relisting_a_bucket_made_anew, restoring])
def test_a_repair_that_is_struck_at_any_write_ends_equal_to_the_truth(
    scene: Callable[[], Awaitable[tuple[Twin, Shelf, RepairPolicy, dict[str, bytes]]]],
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strandline.fold.repair.from_listing.KEYS_PER_CHUNK", 1)
    monkeypatch.setattr("strandline.fold.repair.from_artifact.ROWS_PER_CHUNK", 2)
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.05)  # the last mark, refused, is stored at a look

    async def strike(nth: int) -> bool:
        bucket, shelf, policy, truth = await scene()
        shelf.faults = {shelf.writes + nth: fault}
        marks = len(shelf.marks)
        try:
            await folded(bucket, shelf, policy=policy)
        except Killed:
            await folded(bucket, shelf, policy=policy)
        assert shelf.values == truth, f"after {fault} at write {nth}"
        revisions = [mark.revision for mark in shelf.marks[marks:] if mark.revision]
        assert revisions == sorted(revisions)
        return not shelf.faults

    writes = list(takewhile(lambda nth: asyncio.run(strike(nth)), range(1, 20)))
    assert 3 <= len(writes) < 19, "every write was struck, and there were some"


# What would change


def test_a_preview_of_a_listing_says_which_keys_would_change_and_why() -> None:
    async def check() -> None:
        bucket = await twin("a=1", "b=2", "c=3")
        shelf = await folded(bucket)
        await bucket.put("-a", "b=4", "c=5", "d=6", "c=7")
        bucket.forget_markers()
        before = shelf.mark, shelf.values, shelf.writes
        with_preview = await preview_repair(bucket.store, ALL, shelf.open())
        assert with_preview.plan is RepairPlan.RELIST
        assert with_preview.is_needed
        assert with_preview.refusal is None
        assert {(change.key, change.action) for change in with_preview.changes} == {
            (b"a", KeyRepair.DELETE),
            (b"b", KeyRepair.TAKE),
            (b"c", KeyRepair.TAKE),
            (b"d", KeyRepair.TAKE),
        }
        assert all(change.why for change in with_preview.changes)
        assert (shelf.mark, shelf.values, shelf.writes) == before
        await folded(bucket, shelf)
        after = await preview_repair(bucket.store, ALL, shelf.open())
        assert (after.is_needed, after.changes) == (False, [])

    asyncio.run(check())


def test_a_preview_of_a_restore_says_so_too_and_one_of_a_refusal_why() -> None:
    async def check() -> None:
        bucket, shelf, artifact = await overflown()
        found = await preview_repair(bucket.store, ALL, shelf.open(), artifact.policy())
        assert found.plan is RepairPlan.RESTORE
        assert {(change.key, change.action) for change in found.changes} == {
            (b"a", KeyRepair.DELETE),
            *((key, KeyRepair.TAKE) for key in (b"b", b"c", b"d", b"e")),
        }
        refused = await preview_repair(bucket.store, ALL, shelf.open())
        assert refused.refusal == "there is no artifact"
        assert refused.changes == []
        relist = await preview_repair(bucket.store, ALL, shelf.open(), RELIST)
        assert relist.refusal is not None
        assert replace(relist, changes=[]) == relist

    asyncio.run(check())
