"""What left the bucket leaves a mirror: also after a crash in the middle, and where a server is late."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from strandline.fold import ALL, FoldBatch, MemoryStore, catch_up
from strandline.fold.watch.sweeper import Limits, scan
from strandline.kv import Discard, KvEntry, Retention, StoreConfig, UpdateBatch, format_revision
from tests.fold.buckets import Script, twin, watching
from tests.fold.shelves import Fault, Killed, Shelf

NS = 1_000_000_000
OVERFLOWS = StoreConfig(updates_max=1_000, discard=Discard.OLD)


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_mirror_that_is_killed_between_the_parts_of_what_left_removes_the_rest_later(
    monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    async def check() -> None:
        monkeypatch.setattr("strandline.fold.repair.from_listing.KEYS_PER_CHUNK", 2)
        bucket, shelf = await twin(*(f"k{number}=1" for number in range(7)), "last=1", config=OVERFLOWS), Shelf()
        await catch_up(bucket.store, ALL, shelf.open)
        bucket.forget(7)
        shelf.faults = {shelf.writes + nth: Fault.KILLED_AFTER}
        for _ in range(2):
            try:
                await catch_up(bucket.store, ALL, shelf.open)
            except Killed:
                continue
        assert shelf.values == {"last": b"1"}

    asyncio.run(check())


def retention(now_ns: int) -> Retention:
    return Retention(True, 1, 2, in_order=False, ttl_only=True, history=5, now_ns=now_ns)


@dataclass
class Late(Script):
    """A bucket that still tells a value whose time is over, and says when it does not any more."""

    held: list[KvEntry] = field(default_factory=list)
    asked: int = 0

    async def get(self, _: str) -> KvEntry | None:
        self.asked += 1
        return self.held[0] if len(self.held) == 1 else self.held.pop(0)


def test_an_expired_value_that_the_server_still_tells_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S", 0.01)
        monkeypatch.setattr("strandline.fold.watch.observation.LOOK_S_MIN", 0.01)
        ended_ns, shelf = 1_700_000_000 * NS, Shelf()
        new = KvEntry("a", b"new", format_revision(2), 0, ended_ns)
        old = KvEntry("a", b"old", format_revision(1))
        bucket = Late(retention(ended_ns + 1), held=[new, old])
        column = pa.array([b"a"], pa.binary())
        batch = UpdateBatch(
            column,
            np.zeros(1, np.uint8),
            np.array([2], np.uint64),
            pa.array([b"new"], pa.binary()),
            np.array([ended_ns], np.uint64),
        )
        async with watching(bucket.store, shelf) as run:
            bucket._said.put_nowait(batch)  # noqa: SLF001 - what it says has no deadlines
            await run.until(lambda: bucket.asked > 0)
            for _ in range(5):
                await asyncio.sleep(0)  # turns without a new look do not ask again
            assert bucket.asked == 1
            bucket.retained = retention(ended_ns + NS)
            await run.until_stored({"a": b"old"})

    asyncio.run(check())


@pytest.mark.parametrize("rows", [3, 10, 25, 1000])
def test_a_scan_finds_what_has_left_and_the_entries_that_leave_next(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("strandline.fold.watch.sweeper.WINDOW_ROWS", rows)
    store, numbers = MemoryStore(), [int(number) for number in np.random.default_rng(rows).permutation(100) + 1]
    for at in range(0, 100, 7):
        part = numbers[at : at + 7]
        keys = [b"k%03d" % (number * 37 % 101) for number in part]
        store.apply(FoldBatch(keys, keys, [format_revision(number) for number in part]), store.cursor())
    found = scan(store, Limits(first=21, now_ns=0))
    assert sorted(found.left) == sorted(b"k%03d" % (number * 37 % 101) for number in range(1, 21))
    following = [(number, b"k%03d" % (number * 37 % 101)) for number in range(21, 101)]
    assert found.revisions == following[:rows]
    assert found.deadlines == []
