"""A fold is exported while it is watched: between two batches, with everything that was received before."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from strandline.artifacts import DestinationTaken, export_watched, import_fold
from strandline.fold import ALL, Batching, Exports, FoldMode, open_fold, watch_applied
from strandline.fold.scopes import Scope
from tests.fold.buckets import Twin

SLOW = Batching(window_s=3600.0)


async def reached(exports: Exports, revision: int) -> None:
    """Wait until the fold holds a revision: a request has everything stored that was received."""
    while (await exports.request(lambda _, cursor: cursor)).revision < revision:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["fold", "fold.db", "fold.rocks"])
def test_an_export_holds_what_was_received_before_it_and_nothing_later(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        twin, exports, stop = await Twin().start(), Exports(), asyncio.Event()
        for at in range(5):
            await twin.writer.put(f"key.{at}", b"%d" % at)
        watch = asyncio.create_task(
            watch_applied(
                twin.store, ALL, lambda: open_fold(tmp_path / name), batching=SLOW, exports=exports, stop=stop
            )
        )
        await reached(exports, 5)
        exported = await export_watched(exports, tmp_path / "artifact")
        await twin.writer.put("later", b"x")
        with pytest.raises(DestinationTaken):
            await export_watched(exports, tmp_path / "artifact")
        await reached(exports, 6)
        stop.set()
        await watch
        cursor = exported.manifest.fold_cursor
        assert (cursor.revision, cursor.mode, cursor.scope) == (5, FoldMode.MIRROR, Scope())
        assert exported.pause_s > 0

    asyncio.run(main())
    import_fold(tmp_path / "artifact", tmp_path / "copy", scope=ALL, mode=FoldMode.MIRROR)
    with closing(open_fold(tmp_path / "copy")) as copy:
        assert [entry.key for entry in copy.range()] == [b"key.%d" % at for at in range(5)]
    left = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert left == set()
