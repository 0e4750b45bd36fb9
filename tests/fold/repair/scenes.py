"""Folds that need a repair, with what is true of their buckets."""

from dataclasses import replace
from typing import Any

from strandline.fold import (
    ALL,
    Batching,
    FoldBatch,
    FoldReader,
    Hooks,
    RepairMode,
    RepairPolicy,
    Scope,
    catch_up,
)
from strandline.kv import (
    Discard,
    StoreConfig,
)
from strandline.protocol.fold_modes import FoldMode
from tests.fold.buckets import Twin, twin, watching
from tests.fold.shelves import Shelf

OVERFLOWS = StoreConfig(updates_max=3, discard=Discard.OLD)


def archive(*given: Any, **named: Any) -> RepairPolicy:  # noqa: ANN401 - as those of RepairPolicy
    """Return a policy of an archive: these are tests of its rules, for a mirror goes by every listing."""
    return replace(RepairPolicy(*given, **named), fold_mode=FoldMode.ARCHIVE)


class Artifact:
    """A restorer that has one fold, a copy of a shelf as it was."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = Shelf()
        rows = shelf.kept.range()
        columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        keys, values, versions, _ = map(list, columns)
        self.shelf.kept.apply(FoldBatch(keys, values, versions), shelf.kept.cursor())
        self.asked: list[Scope] = []

    async def newest(self, scope: Scope) -> FoldReader | None:
        self.asked.append(scope)
        return self.shelf.open()

    def policy(self, mode: RepairMode = RepairMode.AUTO) -> RepairPolicy:
        return archive(mode, self)


async def folded(
    bucket: Twin,
    shelf: Shelf | None = None,
    scope: Scope = ALL,
    *,
    policy: RepairPolicy | None = None,
    hooks: Hooks | None = None,
) -> Shelf:
    """Return a shelf that holds what the bucket does."""
    shelf = shelf or Shelf()
    await catch_up(bucket.store, scope, shelf.open, policy=policy or archive(), hooks=hooks)
    return shelf


async def overflown() -> tuple[Twin, Shelf, Artifact]:
    """Return a bucket that keeps three updates, a fold that missed some, and an artifact that did not."""
    bucket = await twin("a=1", "b=2", config=OVERFLOWS)
    shelf = await folded(bucket)
    other = await folded(bucket)
    async with watching(bucket.store, other, policy=archive(), batching=Batching(window_s=0.0)) as run:
        for pair in ("-a", "c=4", "b=5", "d=6", "e=7"):
            await bucket.put(pair)
            await run.until(lambda: other.mark.revision == bucket.log.last_revision)
    artifact = Artifact(other)
    await bucket.put("f=8")
    return bucket, shelf, artifact


TRUTH = {"b": b"5", "c": b"4", "d": b"6", "e": b"7", "f": b"8"}
"""What is true of the overflown bucket, though it lists three keys only."""


async def relisting() -> tuple[Twin, Shelf, RepairPolicy, dict[str, bytes]]:
    bucket = await twin(*(f"k{number}={number}" for number in range(9)))
    shelf = await folded(bucket)
    await bucket.put("-k0", "-k3", "-k8", *(f"k{number}=x" for number in (1, 2, 4, 5, 6, 7)), "n=y", "k1=z")
    bucket.forget_markers()
    return bucket, shelf, archive(), await bucket.truth()


async def restoring() -> tuple[Twin, Shelf, RepairPolicy, dict[str, bytes]]:
    bucket, shelf, artifact = await overflown()
    return bucket, shelf, artifact.policy(), TRUTH
