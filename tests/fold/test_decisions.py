"""Folds do what `strandline.protocol` decides: with another decision in its place, what a fold ends with is wrong.

Each scene runs the production code and says what must be so. Each mutation is one that the models of `strandline.sim`
find a counterexample for; here it makes a scene fail, so the scene's code asks the function that the models explore.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from strandline.errors import Closed, StrandlineError
from strandline.fold import FoldBatch
from strandline.fold.events import StoreFailed
from strandline.fold.watch import Batching
from strandline.kv import NO_CURSOR, Retention, WatchCursor
from strandline.protocol import flushes
from strandline.protocol.flushes import Reopened
from strandline.protocol.repairs import Held, KeyRepair
from tests.fold.buckets import Script, listening, put, twin, until, watching
from tests.fold.repair.scenes import folded, relisting, restoring
from tests.fold.shelves import Fault, Killed, Shelf
from tests.sim.broken_repairs import always, cursor_first, delete_nothing, no_ack_barrier, no_drain, no_flush

SLOW = Batching(window_s=60.0)
QUICK = Batching(window_s=0.0)
Scene = Callable[[pytest.MonkeyPatch], Coroutine[Any, Any, None]]


# Repairs


async def relisted(_: pytest.MonkeyPatch) -> None:
    """What the bucket no longer lists is gone when the watch has begun again."""
    bucket, shelf, policy, truth = await relisting()
    await folded(bucket, shelf, policy=policy)
    assert shelf.values == truth


async def restored(patch: pytest.MonkeyPatch) -> None:
    """A restore that is killed at any write ends equal to the truth, and never takes its cursor first."""
    patch.setattr("strandline.fold.repair.from_artifact.ROWS_PER_CHUNK", 2)
    patch.setattr("strandline.fold.watch.start.PAUSE_S_MAX", 0.001)
    for nth in range(1, 6):
        bucket, shelf, policy, truth = await restoring()
        shelf.faults = {shelf.writes + nth: Fault.KILLED_AFTER}
        for _ in range(2):
            try:
                await folded(bucket, shelf, policy=policy)
            except Killed:
                continue
        assert shelf.values == truth, f"killed after write {nth}"


async def stored_at_the_end(_: pytest.MonkeyPatch) -> None:
    """What was received is stored before the end of the watch is acted on."""
    script, shelf = Script(), Shelf()
    async with watching(script.store, shelf, batching=SLOW) as run:
        script.say(put("a", "1", 1))
        await until(lambda: not script.left)
        script.fail(Closed("the watch"))
        await run.task
    assert shelf.values == {"a": b"1"}


async def stored_with_what_comes_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """So is what is received while that is being stored."""
    patch.setattr("strandline.fold.watch.observation.LOOK_S", 0.01)
    script, shelf = Script(Retention(False, 1, 1, identity=b"before..")), Shelf()
    loop, keys = asyncio.get_running_loop(), []

    def write(batch: FoldBatch, _: WatchCursor) -> None:
        keys.append(list(batch.keys))
        if keys == [[b"a"]]:
            loop.call_soon_threadsafe(script.say, put("c", "2", 2))
            asyncio.run_coroutine_threadsafe(taken(), loop).result()

    async def taken() -> None:
        await until(lambda: not script.left)
        await asyncio.sleep(0)  # the task that took it ends

    shelf.on_write = write
    async with watching(script.store, shelf, batching=SLOW) as run:
        script.say(put("a", "1", 1))
        await until(lambda: not script.left)
        script.retained = Retention(False, 1, 9, identity=b"made-anew"[:8])
        await run.until(lambda: len(keys) > 1)
    assert keys[:2] == [[b"a"], [b"c"]]


async def begun_anew(_: pytest.MonkeyPatch) -> None:
    """A bucket that was made anew, and has grown past the cursor, is another one."""
    bucket = await twin("a=1", "b=2")
    shelf = await folded(bucket)
    bucket.server.remove_bucket("b")
    await bucket.start()
    await bucket.put(*(f"c{number}=new" for number in range(9)))
    await folded(bucket, shelf)
    assert shelf.values == {f"c{number}": b"new" for number in range(9)}


async def begun_without_a_cursor(_: pytest.MonkeyPatch) -> None:
    """Data without a cursor is compared with the bucket before the fold is watched."""
    bucket, shelf = await twin("a=1", "b=2"), Shelf()
    shelf.kept.apply(FoldBatch([b"a", b"stale"], [b"0", b"x"], [b"", b""]), NO_CURSOR)
    await folded(bucket, shelf)
    assert shelf.values == {"a": b"1", "b": b"2"}


# Batches


async def stored_after_a_failure(_: pytest.MonkeyPatch) -> None:
    """A batch that could not be stored is stored before what came since."""
    script, shelf = Script(), Shelf(faults=dict.fromkeys(range(1, 5), Fault.REFUSED))
    heard, hooks = listening()
    async with watching(script.store, shelf, batching=QUICK, hooks=hooks) as run:
        script.say(put("a", "old", 1), put("b", "only", 2))
        await run.until(lambda: bool(heard.of(StoreFailed)))
        script.say(put("a", "new", 3))
        await run.until(lambda: shelf.mark.revision == 3)
    assert shelf.values == {"a": b"new", "b": b"only"}


async def stored_once(_: pytest.MonkeyPatch) -> None:
    """A batch that is there although the store said no is not stored again."""
    script, shelf = Script(), Shelf(faults={1: Fault.LOST})
    async with watching(script.store, shelf, batching=QUICK) as run:
        script.say(put("a", "1", 1))
        await run.until(lambda: shelf.opens == 2)
        script.say(put("a", "2", 2))
        await run.until(lambda: shelf.mark.revision == 2)
    assert shelf.rows == 2


async def stored_without_a_revision(_: pytest.MonkeyPatch) -> None:
    """An update of unknown revision moves no cursor."""
    script, shelf = Script(), Shelf()
    async with watching(script.store, shelf, batching=QUICK) as run:
        script.say(put("a", "1", 5))
        await run.until(lambda: shelf.mark.revision == 5)
        script.say(put("b", "2"))
        await run.until_stored({"a": b"1", "b": b"2"})
        script.say(put("c", "3", 6))
        await run.until_stored({"a": b"1", "b": b"2", "c": b"3"})
    assert [mark.revision for mark in shelf.marks] == [5, 5, 6]


async def stored_in_the_end(patch: pytest.MonkeyPatch) -> None:
    """Fifteen failures in a row are outlasted."""
    patch.setattr("strandline.fold.watch.flusher.RETRY_S_MAX", 0.001)
    script, shelf = Script(), Shelf(faults=dict.fromkeys(range(1, 16), Fault.REFUSED))
    async with watching(script.store, shelf, batching=QUICK) as run:
        script.say(put("a", "1", 1))
        await run.until(lambda: shelf.mark.revision == 1)


def drop_failed_batch(_: Sequence[Any], pending: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(pending)


def requeue_behind(failed: Sequence[Any], pending: Sequence[Any]) -> tuple[Any, ...]:
    return (*pending, *failed)


def unknown_revision_is_next(high: int, revision: int | None) -> int:
    return high + 1 if revision is None else revision


def stores_again_whatever_is_there(*_: int) -> Reopened:
    return Reopened.AGAIN


def never(*_: object, **__: object) -> bool:
    return False


def keep_all(local: Held | None, artifact: Held | None, **_: object) -> KeyRepair:
    return KeyRepair.KEEP if local or artifact is None else KeyRepair.TAKE


MUTATIONS: list[tuple[str, Callable[..., object], Scene]] = [
    ("repairs.next_repair_step", no_drain, stored_with_what_comes_meanwhile),
    ("repairs.next_repair_step", no_flush, stored_at_the_end),
    ("repairs.next_repair_step", no_ack_barrier, relisted),
    ("repairs.next_repair_step", no_ack_barrier, restored),
    ("repairs.next_repair_step", cursor_first, restored),
    ("repairs.restore_key", delete_nothing, restored),
    ("repairs.restore_key", keep_all, restored),
    ("repairs.cursorless_start_needs_repair", never, begun_without_a_cursor),
    ("windows.is_other_log", never, begun_anew),
    ("flushes.requeue", drop_failed_batch, stored_after_a_failure),
    ("flushes.requeue", requeue_behind, stored_after_a_failure),
    ("flushes.after_reopening", stores_again_whatever_is_there, stored_once),
    ("flushes.batch_high", unknown_revision_is_next, stored_without_a_revision),
    ("flushes.gives_up", always, stored_in_the_end),
]
SCENES = sorted({scene for _, _, scene in MUTATIONS}, key=lambda scene: scene.__name__)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_fold_ends_as_it_should(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(scene(monkeypatch))


@pytest.mark.parametrize(("rule", "broken", "scene"), MUTATIONS)
def test_with_another_decision_it_does_not(
    rule: str, broken: Callable[..., object], scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"strandline.protocol.{rule}", broken)
    monkeypatch.setattr("tests.fold.buckets.PATIENCE_S", 2.0)  # what is waited for never comes
    with pytest.raises((AssertionError, StrandlineError, TimeoutError)):
        asyncio.run(scene(monkeypatch))


def test_every_decision_about_batches_and_the_order_of_repairs_has_a_mutation() -> None:
    rules = {rule for rule, _, _ in MUTATIONS}
    made = {f"flushes.{name}" for name in vars(flushes) if callable(getattr(flushes, name)) and name.islower()}
    assert made | {"repairs.next_repair_step"} <= rules
