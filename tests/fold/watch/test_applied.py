"""The behaviour of `watch_applied`, row by row; the names are those of the reference."""

import asyncio
from pathlib import Path

import pytest

from strandline.errors import Closed, CommitFailed
from strandline.fold import AppendLogStore, FoldBatch, MemoryStore, SnapshotStore
from strandline.fold.cursor import FoldCursor, format_fold_cursor, parse_fold_cursor
from strandline.fold.errors import StoreKeptFailing
from strandline.fold.events import (
    BatchStored,
    CaughtUp,
    RepairEnded,
    SourceAway,
    SourceBack,
    StaleKeysPossible,
    StoreFailed,
    StoreReopened,
)
from strandline.fold.repair import RepairMode, RepairPolicy
from strandline.fold.scopes import ALL, Scope
from strandline.fold.watch import Applied, Batching, Exports, Hooks, catch_up, parse_each, watch_applied
from strandline.journal import WRITTEN
from strandline.kv import (
    NO_CURSOR,
    BucketNotFound,
    BucketPurged,
    ConnectionDropped,
    CursorExpired,
    Discard,
    KvUpdate,
    NotSupported,
    Overrun,
    Put,
    Retention,
    StoreConfig,
    UpdateBatch,
    WatchCursor,
    format_cursor,
    format_revision,
)
from strandline.protocol.fold_modes import FoldMode
from tests.fold.buckets import Script, Watching, delete, listening, put, twin, until, watching
from tests.fold.shelves import Fault, Shelf
from tests.waiting import PATIENCE_S

SLOW = Batching(window_s=60.0)
QUICK = Batching(window_s=0.0)


async def quiet() -> None:
    """Let everything happen that is about to."""
    for _ in range(50):
        await asyncio.sleep(0.0005)


async def received(script: Script) -> None:
    """Wait until the watch has taken everything that was said."""
    await until(lambda: not script.left)
    await quiet()


def test_flush_on_channel_close() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        script.say(put("a", "1", 1))
        script.fail(Closed("the watch"))
        mark = await watch_applied(script.store, ALL, shelf.open, batching=SLOW)
        assert shelf.values == {"a": b"1"}
        assert mark == shelf.mark
        assert mark.revision == 1

    asyncio.run(check())


def test_flush_on_window() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        async with watching(script.store, shelf, batching=Batching(window_s=0.5)) as run:
            script.say(put("a", "1", 1))
            await received(script)
            script.say(put("b", "2", 2))
            await run.until_stored({"a": b"1", "b": b"2"})
            assert shelf.writes == 1, "both came within one window"

    asyncio.run(check())


@pytest.mark.parametrize("batching", [Batching(60.0, updates_max=3), Batching(60.0, bytes_max=3 * 3)])
def test_flush_on_max(batching: Batching) -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        async with watching(script.store, shelf, batching=batching) as run:
            script.say(put("a", "11", 1), put("b", "22", 2))
            await received(script)
            assert shelf.writes == 0
            script.say(put("c", "33", 3))
            await run.until(lambda: shelf.mark.revision == 3)
            assert shelf.writes == 1

    asyncio.run(check())


def test_flush_on_shutdown() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        run = Watching(script.store, shelf, batching=SLOW)
        script.say(put("a", "1", 7))
        await received(script)
        assert shelf.writes == 0
        assert (await run.stop()).revision == 7
        assert shelf.values == {"a": b"1"}

    asyncio.run(check())


def test_shutdown_with_no_pending_batch() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        run = Watching(script.store, shelf)
        await quiet()
        assert await run.stop() == FoldCursor()
        assert shelf.rows == 0

    asyncio.run(check())


def test_a_stop_is_not_kept_waiting_by_a_flood() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        run = Watching(script.store, shelf, batching=QUICK)
        flood = iter(range(1, 1_000_000))

        async def pour() -> None:
            while True:
                script.say(put("a", "x", next(flood)))
                await asyncio.sleep(0)

        pouring = asyncio.create_task(pour())
        await run.until(lambda: shelf.writes > 3)
        await asyncio.wait_for(run.stop(), PATIENCE_S)
        pouring.cancel()
        assert shelf.mark.revision

    asyncio.run(check())


def test_cursor_advances_only_after_apply() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        gate = asyncio.Event()

        async def apply(_: UpdateBatch) -> None:
            await gate.wait()

        async with watching(script.store, shelf, batching=QUICK, hooks=Hooks(apply=apply)) as run:
            script.say(put("a", "1", 1))
            await received(script)
            assert shelf.writes == 0
            assert shelf.mark == FoldCursor()
            gate.set()
            await run.until(lambda: shelf.mark.revision == 1)

    asyncio.run(check())


@pytest.mark.parametrize("error", [ZeroDivisionError(), ConnectionDropped()])
def test_what_apply_raises_ends_the_watch_and_leaves_the_cursor(error: Exception) -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        script.say(put("a", "1", 1))

        def apply(_: UpdateBatch) -> None:
            raise error

        with pytest.raises(type(error)):
            await watch_applied(script.store, ALL, shelf.open, batching=QUICK, hooks=Hooks(apply=apply))
        assert shelf.writes == 0

    asyncio.run(check())


def only_numbers(update: KvUpdate) -> int | None:
    return int(update.value) if isinstance(update, Put) and update.value.isdigit() else None


def test_corrupt_parse_entries_advance_cursor() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        applied: list[list[int]] = []
        hooks = Hooks(parse=parse_each(only_numbers), apply=applied.append)
        async with watching(script.store, shelf, batching=QUICK, hooks=hooks) as run:
            script.say(put("a", "corrupt", 1), put("b", "rubbish", 2))
            await run.until(lambda: shelf.mark.revision == 2)
        assert applied == [[]]

    asyncio.run(check())


def test_mixed_parse_applies_the_good_ones_and_covers_all() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        applied: list[list[int]] = []
        hooks = Hooks(parse=parse_each(only_numbers), apply=applied.append)
        async with watching(script.store, shelf, batching=QUICK, hooks=hooks) as run:
            script.say(put("a", "1", 1), put("b", "rubbish", 2), put("c", "3", 3), delete("d", 4))
            await run.until(lambda: shelf.mark.revision == 4)
        assert applied == [[1, 3]]
        assert shelf.values == {"a": b"1", "b": b"rubbish", "c": b"3"}, "the fold is the bucket's, whatever was parsed"

    asyncio.run(check())


def test_unknown_version_update_does_not_move_or_clobber_cursor() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        async with watching(script.store, shelf, batching=QUICK) as run:
            script.say(put("a", "1", 5), put("b", "2"))
            await run.until_stored({"a": b"1", "b": b"2"})
            assert shelf.mark.revision == 5
            script.say(put("c", "3"))
            await run.until(lambda: "c" in shelf.values)
            assert shelf.mark.revision == 5

    asyncio.run(check())


def test_watch_task_error_propagates() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        script.say(put("a", "1", 1))
        script.fail(BucketNotFound("script"))
        with pytest.raises(BucketNotFound):
            await watch_applied(script.store, ALL, shelf.open, batching=SLOW)
        assert shelf.mark.revision == 1, "what was told before is stored"

    asyncio.run(check())


def test_a_source_that_is_away_is_waited_for_and_nothing_is_lost() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        heard, hooks = listening()
        async with watching(bucket.store, shelf, batching=QUICK, hooks=hooks) as run:
            await run.until_stored({"a": b"1"})
            for call in ("watch", "retention", "watch"):
                bucket.connection.faults.fail(call, ConnectionDropped(), nth=2 if call == "watch" else 1)
            bucket.break_watches()
            await bucket.put("b=2")
            await run.until_stored({"a": b"1", "b": b"2"})
            assert heard.of(SourceAway)
            assert len(heard.of(SourceBack)) == 1

    asyncio.run(check())


def test_a_source_may_be_away_only_for_so_long_as_its_owner_says() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        run = Watching(bucket.store, shelf, policy=RepairPolicy(outage_s_max=0.3))
        await run.until_stored({"a": b"1"})
        bucket.break_watches()
        bucket.connection.drop()
        with pytest.raises(ConnectionDropped):
            await asyncio.wait_for(run.task, PATIENCE_S)

    asyncio.run(check())


def test_a_stop_ends_the_waiting_for_a_source_that_is_away() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        heard, hooks = listening()
        run = Watching(bucket.store, shelf, hooks=hooks)
        await run.until_stored({"a": b"1"})
        bucket.break_watches()
        bucket.connection.drop()
        await run.until(lambda: len(heard.of(SourceAway)) > 1)
        assert (await run.stop()).revision == 1

    asyncio.run(check())


def test_a_first_failure_of_the_source_is_told_at_once() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        bucket.connection.drop()
        with pytest.raises(ConnectionDropped):
            await watch_applied(bucket.store, ALL, shelf.open)

    asyncio.run(check())


def test_a_bucket_that_is_removed_under_the_watch_is_an_error() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        run = Watching(bucket.store, shelf)
        await run.until_stored({"a": b"1"})
        bucket.server.remove_bucket("b")
        with pytest.raises(BucketNotFound):
            await run.task
        assert shelf.values == {"a": b"1"}

    asyncio.run(check())


def test_snapshot_checkpoint_matches_applied_cursor() -> None:
    async def check() -> None:
        bucket, shelf = await twin("k0=first"), Shelf()
        told: list[Applied] = []
        async with watching(bucket.store, shelf, batching=QUICK, hooks=Hooks(on_applied=told.append)) as run:
            await run.until(lambda: shelf.mark.revision == 1)
            for number in range(1, 20):
                await bucket.put(f"k{number % 3}={number}")
                await asyncio.sleep(0)
            await run.until(lambda: shelf.mark.revision == 20)
        assert all(applied.durable for applied in told)
        assert [applied.cursor for applied in told] == [mark for mark in shelf.marks if mark.revision]
        assert sum(len(applied.updates) for applied in told) == 20

    asyncio.run(check())


def test_resume_from_cursor_delivers_only_delta() -> None:
    async def check() -> None:
        bucket, shelf = await twin(*(f"k{number}=x" for number in range(100))), Shelf()
        await catch_up(bucket.store, ALL, shelf.open)
        assert shelf.rows == 100
        await bucket.put("k1=y", "-k2", "new=z")
        told: list[Applied] = []
        await catch_up(bucket.store, ALL, shelf.open, hooks=Hooks(on_applied=told.append))
        assert sum(len(applied.updates) for applied in told) == 3
        assert shelf.values == await bucket.truth()

    asyncio.run(check())


def test_a_fold_of_nothing_new_is_current_at_once() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        first = await catch_up(bucket.store, ALL, shelf.open)
        assert await catch_up(bucket.store, ALL, shelf.open) == first
        assert await catch_up((await twin()).store, ALL, Shelf().open) == FoldCursor()

    asyncio.run(check())


def test_prefix_scope_holds_only_its_keys() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a.x=1", "b.x=2", "ab.x=3"), Shelf()
        async with watching(bucket.store, shelf, Scope.of("a."), batching=QUICK) as run:
            await run.until_stored({"a.x": b"1"})
            await bucket.put("b.y=9", "a.y=4")
            await run.until_stored({"a.x": b"1", "a.y": b"4"})

    asyncio.run(check())


def test_prefixes_scope_is_one_watch_in_one_order() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a.x=1", "b.x=2", "c.x=3"), Shelf()
        told: list[Applied] = []
        hooks = Hooks(on_applied=told.append)
        async with watching(bucket.store, shelf, Scope.of("c.", "a."), batching=QUICK, hooks=hooks) as run:
            await run.until_stored({"a.x": b"1", "c.x": b"3"})
            await bucket.put("c.x=4", "a.x=5", "b.x=6")
            await run.until_stored({"a.x": b"5", "c.x": b"4"})
        versions = [int(version) for applied in told for version in applied.updates.versions]
        assert versions == sorted(versions)
        assert bucket.connection.faults.calls["watch"] == 1

    asyncio.run(check())


def test_prefixes_scope_resumes_with_only_the_delta() -> None:
    async def check() -> None:
        bucket, shelf, scope = await twin("a.x=1", "b.x=2", "c.x=3"), Shelf(), Scope.of("a.", "c.")
        await catch_up(bucket.store, scope, shelf.open)
        await bucket.put("b.x=4", "c.x=5")
        before = shelf.rows
        await catch_up(bucket.store, scope, shelf.open)
        assert shelf.rows == before + 1
        assert shelf.values == await bucket.truth(scope)

    asyncio.run(check())


def test_prefix_scope_that_is_quiet_follows_the_others_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its cursor does not fall out of the log while nothing happens to its own keys."""
    monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.01)

    async def check() -> None:
        bucket, shelf, scope = await twin("a.x=1", "b.x=2"), Shelf(), Scope.of("a.")
        policy = RepairPolicy(overrun=Overrun.SENTINEL)
        async with watching(bucket.store, shelf, scope, batching=QUICK, policy=policy) as run:
            await run.until_stored({"a.x": b"1"})
            for number in range(50):
                await bucket.put(f"b.x={number}")
            await run.until(lambda: shelf.mark.revision == 52)
            assert shelf.values == {"a.x": b"1"}

    asyncio.run(check())


def test_cursor_expired_falls_back_to_full_watch() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        await catch_up(bucket.store, ALL, shelf.open)
        await bucket.put("a=3", "a=4", "c=5", "-b")
        heard, hooks = listening()
        mark = await catch_up(bucket.store, ALL, shelf.open, hooks=hooks)
        assert shelf.values == await bucket.truth() == {"a": b"4", "c": b"5"}
        assert mark.revision == 6
        assert len(heard.of(RepairEnded)) == 1

    asyncio.run(check())


def test_cursor_expired_resync_deletes_stale_keys() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2", "c=3"), Shelf()
        await catch_up(bucket.store, ALL, shelf.open)
        await bucket.put("-a", "b=4", "c=5", "d=6")
        bucket.forget_markers()
        heard, hooks = listening()
        await catch_up(bucket.store, ALL, shelf.open, hooks=hooks)
        assert shelf.values == await bucket.truth() == {"b": b"4", "c": b"5", "d": b"6"}
        assert [ended.deleted for ended in heard.of(RepairEnded)] == [1]

    asyncio.run(check())


def test_cursor_expired_resync_tells_the_deletes_to_apply() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        view: dict[str, bytes] = {}

        def apply(batch: UpdateBatch) -> None:
            for update in batch:
                if isinstance(update, Put):
                    view[update.key] = update.value
                else:
                    view.pop(update.key, None)

        hooks = Hooks(apply=apply)
        await catch_up(bucket.store, ALL, shelf.open, hooks=hooks)
        await bucket.put("-a", "b=3")
        bucket.forget_markers()
        await catch_up(bucket.store, ALL, shelf.open, hooks=hooks)
        assert view == shelf.values == {"b": b"3"}

    asyncio.run(check())


def test_cursor_expired_resync_respects_scope() -> None:
    async def check() -> None:
        bucket, shelf, scope = await twin("a.x=1", "a.y=2", "b.x=3"), Shelf(), Scope.of("a.")
        await catch_up(bucket.store, scope, shelf.open)
        shelf.kept.apply(FoldBatch([b"z.mine"], [b"kept"], [b""]), NO_CURSOR)
        await bucket.put("-a.x", "a.y=4", "b.x=5")
        bucket.forget_markers()
        await catch_up(bucket.store, scope, shelf.open)
        assert shelf.values == {"a.y": b"4", "z.mine": b"kept"}

    asyncio.run(check())


def test_a_key_deleted_and_made_again_in_the_gap_is_there() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        await catch_up(bucket.store, ALL, shelf.open)
        await bucket.put("-a", "b=3", "a=4")
        bucket.forget(3)
        await catch_up(bucket.store, ALL, shelf.open)
        assert shelf.values == {"a": b"4"} | {key: value for key, value in (await bucket.truth()).items() if key != "a"}

    asyncio.run(check())


def test_resync_listing_failure_is_fatal_not_degraded() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        await catch_up(bucket.store, ALL, shelf.open)
        await bucket.put("-a", "b=3")
        bucket.forget_markers()
        before = shelf.mark, shelf.values
        bucket.connection.faults.fail("keys", ConnectionDropped())
        with pytest.raises(ConnectionDropped):
            await catch_up(bucket.store, ALL, shelf.open)
        assert (shelf.mark, shelf.values) == before
        await catch_up(bucket.store, ALL, shelf.open)
        assert shelf.values == {"b": b"3"}

    asyncio.run(check())


def test_without_repair_the_state_is_told_again_and_stale_keys_are_said_to_be_possible() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2", config=StoreConfig(updates_max=9, discard=Discard.OLD)), Shelf()
        policy = RepairPolicy(RepairMode.NONE, fold_mode=FoldMode.ARCHIVE)
        await catch_up(bucket.store, ALL, shelf.open, policy=policy)
        await bucket.put("-a", "b=3")
        bucket.forget_markers()
        heard, hooks = listening()
        await catch_up(bucket.store, ALL, shelf.open, hooks=hooks, policy=policy)
        assert shelf.values == {"a": b"1", "b": b"3"}
        assert heard.of(StaleKeysPossible)

    asyncio.run(check())


def test_export_request_flushes_pending_batch_first() -> None:
    async def check() -> None:
        script, shelf, exports = Script(), Shelf(), Exports()
        async with watching(script.store, shelf, batching=SLOW, exports=exports):
            script.say(put("a", "1", 3))
            await received(script)
            assert shelf.writes == 0
            held, mark = await exports.request(lambda store, mark: (store.range(), mark))
            assert [entry.key for entry in held] == [b"a"]
            assert mark.revision == 3

    asyncio.run(check())


def test_export_with_empty_pending_batch_succeeds() -> None:
    async def check() -> None:
        script, shelf, exports = Script(), Shelf(), Exports()
        async with watching(script.store, shelf, exports=exports):
            assert await exports.request(lambda store, _: store.range()) == []

    asyncio.run(check())


def test_export_without_store_replies_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.flusher.RETRY_S_MAX", 0.001)

    async def check() -> None:
        script, shelf, exports = Script(), Shelf(faults=dict.fromkeys(range(1, 40), Fault.REFUSED)), Exports()
        run = Watching(script.store, shelf, batching=SLOW, exports=exports)
        script.say(put("a", "1", 3))
        await received(script)
        with pytest.raises(StoreKeptFailing):
            await exports.request(lambda store, _: store.range())
        with pytest.raises(StoreKeptFailing):
            await run.task
        with pytest.raises(Closed):
            await exports.request(lambda store, _: store.range())

    asyncio.run(check())


def test_export_error_does_not_kill_watch() -> None:
    async def check() -> None:
        script, shelf, exports = Script(), Shelf(), Exports()

        def explode(_: SnapshotStore, __: FoldCursor) -> None:
            raise ZeroDivisionError

        async with watching(script.store, shelf, batching=QUICK, exports=exports) as run:
            with pytest.raises(ZeroDivisionError):
                await exports.request(explode)
            script.say(put("a", "1", 1))
            await run.until_stored({"a": b"1"})

    asyncio.run(check())


def test_export_sender_dropped_disarms_channel() -> None:
    async def check() -> None:
        script, shelf, exports = Script(), Shelf(), Exports()
        async with watching(script.store, shelf, batching=QUICK, exports=exports) as run:
            waiting = asyncio.create_task(exports.request(lambda store, _: store.range()))
            await asyncio.sleep(0)
            waiting.cancel()
            exports.close()
            with pytest.raises(Closed):
                await exports.request(lambda store, _: store.range())
            script.say(put("a", "1", 1))
            await run.until_stored({"a": b"1"})

    asyncio.run(check())


def test_snapshot_compaction_fires_and_stays_consistent(tmp_path: Path) -> None:
    async def check() -> None:
        bucket = await twin()
        path = tmp_path / "fold.log"
        applied: list[Applied] = []
        task = asyncio.create_task(
            watch_applied(
                bucket.store,
                ALL,
                lambda: AppendLogStore.open(path, sync=WRITTEN, compact_bytes=2000),
                batching=Batching(window_s=0.0, updates_max=10),
                hooks=Hooks(on_applied=applied.append),
            )
        )
        for number in range(500):
            await bucket.put(f"k{number % 7}={number}")
            if number % 10 == 0:
                await asyncio.sleep(0)
        await until(lambda: bool(applied) and applied[-1].cursor.revision == 500, task)
        await bucket.connection.shutdown()
        mark = await task
        assert mark.revision == 500
        assert path.stat().st_size < 500 * 30
        with AppendLogStore.open(path) as store:
            assert parse_fold_cursor(store.cursor()) == mark
            assert {entry.key.decode(): entry.value for entry in store.range()} == {
                f"k{number % 7}": str(number).encode() for number in range(493, 500)
            }

    asyncio.run(check())


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.TORN])
def test_transient_store_failure_never_leaves_a_cursor_gap(fault: Fault) -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf(faults={1: fault, 3: fault})
        told: list[Applied] = []
        heard, hooks = listening(on_applied=told.append)
        async with watching(script.store, shelf, batching=QUICK, hooks=hooks) as run:
            script.say(put("a", "1", 1), put("b", "1", 2))
            await received(script)
            script.say(put("a", "2", 3))
            await run.until(lambda: shelf.mark.revision == 3)
            script.say(put("c", "3", 4))
            await run.until(lambda: shelf.mark.revision == 4)
        assert shelf.values == {"a": b"2", "b": b"1", "c": b"3"}
        assert shelf.opens == 3
        assert len(heard.of(StoreFailed)) == len(heard.of(StoreReopened)) == 2
        assert [mark.revision for mark in shelf.marks] == sorted(mark.revision for mark in shelf.marks)
        assert [key for applied in told for key in applied.updates.keys] == ["a", "b", "a", "c"], "each is told once"

    asyncio.run(check())


def test_a_batch_that_is_there_although_the_store_said_no_is_not_stored_again() -> None:
    """Stored again, it would begin with older values under a cursor that is past them."""

    async def check() -> None:
        script, shelf = Script(), Shelf(faults={1: Fault.LOST})
        told: list[Applied] = []
        async with watching(script.store, shelf, batching=QUICK, hooks=Hooks(on_applied=told.append)) as run:
            script.say(put("a", "1", 1))
            await run.until(lambda: bool(told))
            assert told[0].durable
            script.say(put("a", "2", 2))
            await run.until(lambda: shelf.mark.revision == 2)
        assert shelf.writes == 2

    asyncio.run(check())


def test_what_came_since_a_batch_that_is_there_after_all_is_stored_too() -> None:
    """The store loses its answer, cannot be opened at once, and then has the batch; more has come meanwhile."""

    async def check() -> None:
        script, shelf = Script(), Shelf(faults={1: Fault.LOST})
        batches: list[list[bytes]] = []

        def write(batch: FoldBatch, _: WatchCursor) -> None:
            batches.append(list(batch.keys))
            shelf.refused_opens = 1 if shelf.writes == 1 else 0

        shelf.on_write = write
        heard, hooks = listening()
        async with watching(script.store, shelf, batching=QUICK, hooks=hooks) as run:
            script.say(put("a", "1", 1))
            await run.until(lambda: len(heard.of(StoreFailed)) == 1)
            script.say(put("b", "2", 2))
            await run.until(lambda: shelf.mark.revision == 2)
            script.say(put("c", "3", 3))
            await run.until(lambda: shelf.mark.revision == 3)
        assert shelf.values == {"a": b"1", "b": b"2", "c": b"3"}
        assert batches == [[b"a"], [b"b"], [b"c"]], "what is there is not stored again"

    asyncio.run(check())


def test_what_could_not_be_stored_comes_before_what_came_since() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf(faults=dict.fromkeys(range(1, 5), Fault.REFUSED))
        heard, hooks = listening()
        async with watching(script.store, shelf, batching=QUICK, hooks=hooks) as run:
            script.say(put("a", "old", 1))
            await run.until(lambda: bool(heard.of(StoreFailed)))
            script.say(put("a", "new", 2))
            await run.until(lambda: shelf.mark.revision == 2)
            assert shelf.values == {"a": b"new"}
            assert shelf.writes == 5, "they were stored together"

    asyncio.run(check())


def test_on_applied_says_whether_the_store_has_it() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf(faults={1: Fault.REFUSED})
        told: list[Applied] = []
        async with watching(script.store, shelf, batching=QUICK, hooks=Hooks(on_applied=told.append)) as run:
            script.say(put("a", "1", 1))
            await run.until(lambda: shelf.mark.revision == 1)
            script.say(put("a", "2", 2))
            await run.until(lambda: shelf.mark.revision == 2)
        found = [(applied.cursor.revision, len(applied.updates), applied.durable) for applied in told]
        assert found == [(1, 1, False), (1, 0, True), (2, 1, True)]

    asyncio.run(check())


def test_a_batch_that_waits_is_stored_though_nothing_new_comes() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf(faults={1: Fault.REFUSED, 2: Fault.REFUSED}, refused_opens=0)
        async with watching(script.store, shelf, batching=QUICK) as run:
            script.say(put("a", "1", 1))
            await run.until(lambda: shelf.mark.revision == 1)

    asyncio.run(check())


def test_sixteen_failures_in_a_row_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.flusher.RETRY_S_MAX", 0.001)

    async def check() -> None:
        script, shelf = Script(), Shelf(faults=dict.fromkeys(range(1, 100), Fault.REFUSED))
        script.say(put("a", "1", 1))
        with pytest.raises(StoreKeptFailing) as caught:
            await watch_applied(script.store, ALL, shelf.open, batching=QUICK)
        assert shelf.writes == caught.value.failures == 16
        assert isinstance(caught.value.__cause__, CommitFailed)
        assert caught.value.hint
        assert shelf.mark == FoldCursor()

    asyncio.run(check())


def test_fifteen_failures_in_a_row_do_not_and_the_count_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.flusher.RETRY_S_MAX", 0.001)
    faults = dict.fromkeys([*range(1, 16), *range(17, 32)], Fault.REFUSED)

    async def check() -> None:
        script, shelf = Script(), Shelf(faults=faults)
        async with watching(script.store, shelf, batching=QUICK) as run:
            script.say(put("a", "1", 1))
            await run.until(lambda: shelf.mark.revision == 1)
            script.say(put("a", "2", 2))
            await run.until(lambda: shelf.mark.revision == 2)

    asyncio.run(check())


def test_a_store_that_cannot_be_opened_again_counts_as_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.fold.watch.flusher.RETRY_S_MAX", 0.001)

    async def check() -> None:
        script, shelf = Script(), Shelf(faults={1: Fault.REFUSED})
        run = Watching(script.store, shelf, batching=QUICK)
        await run.until(lambda: shelf.opens == 1)
        shelf.refused_opens = 5
        script.say(put("a", "1", 1))
        await run.until(lambda: shelf.mark.revision == 1)
        assert shelf.opens == 1 + 5 + 1
        await run.stop()

    asyncio.run(check())


def test_a_store_that_moved_back_is_told_again_from_its_cursor() -> None:
    """A store without syncs that lost its tail: what it lacks is in the log, so that is where it comes from."""

    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=2"), Shelf()
        async with watching(bucket.store, shelf, batching=QUICK) as run:
            await run.until(lambda: shelf.mark.revision == 2)
            mark, shelf.kept = shelf.mark, MemoryStore()
            older = FoldBatch([b"a"], [b"1"], [format_revision(1)])
            shelf.kept.apply(older, format_fold_cursor(mark._replace(revision=1)))
            shelf.faults[shelf.writes + 1] = Fault.REFUSED
            await bucket.put("c=3")
            await run.until_stored({"a": b"1", "b": b"2", "c": b"3"})

    asyncio.run(check())


def test_while_a_batch_is_stored_the_next_is_received_but_not_without_end() -> None:
    async def check() -> None:
        script, shelf = Script(), Shelf()
        gate = asyncio.Event()

        async def apply(_: UpdateBatch) -> None:
            await gate.wait()

        batching = Batching(window_s=0.0, updates_max=10)
        async with watching(script.store, shelf, batching=batching, hooks=Hooks(apply=apply)) as run:
            for revision in range(1, 101):
                script.say(put("a", "x", revision))
            await run.until(lambda: script.left < 100 - 10)
            await quiet()
            assert script.left >= 100 - 2 * 10 - 2, "one batch waits for apply, and one gathers"
            gate.set()
            await run.until(lambda: shelf.mark.revision == 100)

    asyncio.run(check())


def test_progress_is_told() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1", "b=22"), Shelf()
        heard, hooks = listening()
        await catch_up(bucket.store, ALL, shelf.open, hooks=hooks)
        (stored,) = heard.of(BatchStored)
        assert (stored.updates, stored.bytes, stored.revision) == (2, 5, 2)
        assert heard.of(CaughtUp) == [CaughtUp(2)]

    asyncio.run(check())


def test_a_cancelled_watch_closes_its_store_behind_what_is_being_done() -> None:
    async def check() -> None:
        bucket, shelf = await twin("a=1"), Shelf()
        opened: list[SnapshotStore] = []

        def open_store() -> SnapshotStore:
            opened.append(shelf.open())
            return opened[-1]

        task = asyncio.create_task(watch_applied(bucket.store, ALL, open_store))
        await until(lambda: shelf.mark.revision == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Closed):
            opened[0].cursor()

    asyncio.run(check())


def test_a_mute_source_is_believed_when_its_watch_says_that_the_cursor_expired() -> None:
    async def check() -> None:
        script, shelf = Script(listed=["b"]), Shelf()
        script.say(put("a", "1", 1), put("b", "2", 2))
        script.fail(Closed("the watch"))
        await watch_applied(script.store, ALL, shelf.open)
        script.retained = NotSupported("retention")
        script.refusals = [CursorExpired("script", 2, 9, 9)]
        script.say(put("b", "3", 9))
        script.fail(Closed("the watch"))
        await watch_applied(script.store, ALL, shelf.open, policy=RepairPolicy(RepairMode.RELIST))
        assert shelf.values == {"b": b"3"}
        assert script.starts == [b"", b""]

    asyncio.run(check())


def test_a_purge_that_the_watch_tells_is_believed_though_the_log_reaches_back_again() -> None:
    async def check() -> None:
        script, shelf = Script(Retention(False, 4, 4, updates=1), ["d"]), Shelf()
        script.say(put("a", "1", 1), put("b", "2", 2), put("c", "3", 3))
        script.fail(BucketPurged("script", 3, 4, 4))
        script.say(put("d", "4", 4))
        async with watching(script.store, shelf) as run:
            await run.until_stored({"d": b"4"})
        assert shelf.mark.revision == 4

    asyncio.run(check())


def test_the_cursor_given_to_the_source_is_a_bare_revision() -> None:
    async def check() -> None:
        script, shelf = Script(Retention(False, 1, 5)), Shelf()
        script.say(put("a", "1", 5))
        script.fail(Closed("the watch"))
        await watch_applied(script.store, ALL, shelf.open)
        script.fail(Closed("the watch"))
        await watch_applied(script.store, ALL, shelf.open)
        assert script.starts == [b"", format_cursor(5)]

    asyncio.run(check())
