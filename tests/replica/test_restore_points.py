"""Restore points: plans, times, and late files of a former leader, which no plan ends with."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.objects import MemoryObjects, Object
from strandline.replica import (
    Layout,
    LtxDamaged,
    LtxFile,
    ReplicaGap,
    RestorePointMissing,
    find_plan,
    find_transaction,
    ltx,
    plan_restore,
    restore,
)
from strandline.replica.compaction import compact, take_snapshot
from strandline.replica.lineage import KEY, format_lineage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LAST = 9
MERGED = ((1, 4), (5, 8))


def file(level: int, first: int, last: int) -> LtxFile:
    """Return a file as a listing shows it."""
    return LtxFile(level, first, last, f"{level}/{first}-{last}", 100, NOW)


def test_a_time_is_a_restore_point(tmp_path: Path) -> None:
    store = dated([10, 20, 30])
    layout = Layout(store)
    files = layout.all_files()
    start = datetime.fromtimestamp(0, UTC)
    expected: list[tuple[float, int]] = [(10.0, 1), (19.9, 1), (20.0, 2), (29.0, 2), (30.0, 3), (1000.0, 3)]
    for after_s, txid in expected:
        assert find_transaction(store, files, start + timedelta(seconds=after_s)) == txid
    with pytest.raises(RestorePointMissing, match="does not reach back"):
        find_transaction(store, files, start + timedelta(seconds=9))
    restore(store, layout, tmp_path / "a", at=start + timedelta(seconds=25))
    assert (tmp_path / "a").read_bytes() == b"\2" * 512


def dated(seconds: Iterable[int]) -> MemoryObjects:
    """Return a replica with transactions of given times."""
    store = MemoryObjects()
    for txid, second in enumerate(seconds, 1):
        header = ltx.LtxHeader(512, 1, txid, txid, second * 1000)
        body = b"".join(ltx.encode(header, [(1, bytes([txid]) * 512)]))
        store.put(Layout(store).key(0, txid, txid), body)
    return store


def found_at(store: MemoryObjects, second: int) -> int | None:
    """Return the transaction that a time names; None where there is none."""
    try:
        return find_transaction(store, Layout(store).all_files(), datetime.fromtimestamp(second, UTC))
    except RestorePointMissing:
        return None


def test_a_time_is_found_after_a_clock_that_jumped() -> None:
    back, forth = dated([10, 20, 30, 40, 15, 25, 35]), dated([10, 20, 9000, 30, 40])
    asked = (9, 10, 14, 22, 30, 36, 50)
    assert [found_at(back, second) for second in asked] == [None, 1, 1, 5, 6, 7, 7]
    assert [found_at(forth, second) for second in asked] == [None, 1, 1, 2, 4, 4, 5]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=80), st.integers(1, 100))
def test_any_time_names_the_last_transaction_at_or_before_it(seconds: list[int], second: int) -> None:
    expected = max((txid for txid, one in enumerate(seconds, 1) if one <= second), default=None)
    assert found_at(dated(seconds), second) == expected


@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_any_plan_is_contiguous_and_ends_where_it_should(last: int, chance: random.Random) -> None:
    files = [file(0, txid, txid) for txid in range(1, last + 1) if chance.random() < 0.8]
    for level in (1, 2, 9):
        for _ in range(3):
            first = 1 if level == 9 else chance.randint(1, last)
            files.append(file(level, first, chance.randint(first, last)))
    target = chance.randint(1, last)
    reachable = {one.max_txid for one in files if one.is_whole and one.max_txid <= target}
    while True:
        more = {
            one.max_txid
            for one in files
            for reached in reachable
            if one.max_txid <= target and one.min_txid <= reached + 1 and one.max_txid > reached
        }
        if more <= reachable:
            break
        reachable |= more
    try:
        plan = plan_restore(files, target)
    except (ReplicaGap, RestorePointMissing):
        assert target not in reachable
        return
    assert plan[0].is_whole
    assert plan[-1].max_txid == target
    for before, after in pairwise(plan):
        assert after.min_txid <= before.max_txid + 1 <= after.max_txid


def test_a_transaction_behind_the_last_one_is_no_gap() -> None:
    with pytest.raises(RestorePointMissing, match="its last transaction is 2, and not 3") as caught:
        plan_restore([file(0, 1, 1), file(0, 2, 2)], 3)
    assert caught.value.hint


def test_a_plan_takes_few_files() -> None:
    files = [file(9, 1, 10), file(1, 11, 20), file(2, 11, 30), *(file(0, txid, txid) for txid in range(11, 33))]
    assert [(one.level, one.max_txid) for one in plan_restore(files)] == [(9, 10), (2, 30), (0, 31), (0, 32)]


class TwoLeaders:
    """A replica of pages that say which transaction wrote them: leader 1 up to 4, then leader 2; merged by fours.

    The transaction `whole` is of the whole database, and names no predecessor.
    """

    def __init__(self, whole: int = 0) -> None:
        self.store = MemoryObjects()
        self.layout = Layout(self.store)
        self.store.put(KEY, format_lineage("a" * 32))
        self.ends = {0: 0}
        self.after = dict[int, bytes]()
        pages = bytearray(4)
        for txid in range(1, LAST + 1):
            changed = dict.fromkeys(range(1, 5) if txid in (1, whole) else (1, 2 + txid % 2), txid)
            self.ends[txid] = self.ship(txid, 1 if txid <= 4 else 2, changed, is_whole=txid == whole)
            for page, value in changed.items():
                pages[page - 1] = value
            self.after[txid] = bytes(pages)
        files = self.layout.all_files()
        for first, last in MERGED:
            compact(self.store, self.layout, files[first - 1 : last], 1)

    def ship(self, txid: int, epoch: int, pages: Mapping[int, int], time_ms: int = 0, *, is_whole: bool = False) -> int:
        """Create a transaction; return the checksum of its file."""
        before = 0 if is_whole else self.ends[txid - 1]
        header = ltx.LtxHeader(512, 4, txid, txid, time_ms or txid * 1000, epoch=epoch, predecessor=before)
        body = b"".join(ltx.encode(header, [(page, bytes([value]) * 512) for page, value in pages.items()]))
        self.store.put(self.layout.key(0, txid, txid), body, if_absent=True)
        return ltx.file_checksum(body)

    def remove(self, txids: Iterable[int]) -> None:
        """Remove transactions, as retention does."""
        for txid in txids:
            self.store.delete(self.layout.key(0, txid, txid))

    def restored(self, to: Path, *, txid: int | None = None, at: datetime | None = None) -> bytes | None:
        """Return the first byte of each page; None where there is no such restore point."""
        to.unlink(missing_ok=True)
        try:
            restore(self.store, self.layout, to, txid=txid, at=at)
        except (RestorePointMissing, ReplicaGap):
            return None
        return to.read_bytes()[::512]


@pytest.mark.parametrize("removed", range(LAST))
@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("ahead_ms", [-7000, 1, 12_000])
def test_no_restore_ends_with_a_late_transaction_of_a_former_leader(
    tmp_path: Path, removed: int, has_snapshot: bool, ahead_ms: int
) -> None:
    for late in range(1, removed + 1):
        two = TwoLeaders()
        if has_snapshot:
            take_snapshot(two.store, two.layout, two.layout.all_files())
        two.remove(range(1, removed + 1))
        two.ship(late, 1, dict.fromkeys(range(1, 5), 99), time_ms=late * 1000 + ahead_ms)
        ends = {last for _, last in MERGED}
        cut_into = {txid for first, last in MERGED if first <= removed for txid in range(first, last)}
        expected = {txid: None if txid in cut_into else two.after[txid] for txid in range(1, LAST + 1)}
        for txid in range(1, LAST + 1):
            assert two.restored(tmp_path / "out", txid=txid) == expected[txid]
            named = max((one for one in {*ends, *range(removed + 1, LAST + 1)} if one <= txid), default=0)
            at = datetime.fromtimestamp(txid + 0.5, UTC)
            assert two.restored(tmp_path / "out", at=at) == expected.get(named)


@pytest.mark.parametrize("removed", range(1, LAST))
@pytest.mark.parametrize("whole", [0, 6])
def test_a_transaction_of_which_several_came_late_is_the_one_of_the_history_or_refused(
    tmp_path: Path, removed: int, whole: int
) -> None:
    for first, last in combinations(range(1, removed + 2), 2):
        two = TwoLeaders(whole)
        two.remove(range(1, removed + 1))
        for late in range(first, last):  # a chain of the former leader's own: each follows the one before it
            two.ends[late] = two.ship(late, 1, dict.fromkeys(range(1, 5), 99))
        refused = {txid for first, last in MERGED if first <= removed for txid in range(first, last)}
        refused |= set(range(5, whole))  # a whole database proves nothing of those before it
        for txid in range(1, LAST + 1):
            found = two.restored(tmp_path / "out", txid=txid)
            assert found == two.after[txid] or (found is None and txid in refused)


def test_a_late_transaction_is_refused_with_a_reason(tmp_path: Path) -> None:
    two = TwoLeaders()
    two.remove(range(1, 9))
    two.ship(5, 1, {3: 99})
    with pytest.raises(RestorePointMissing, match="that a former leader wrote late") as caught:
        restore(two.store, two.layout, tmp_path / "out", txid=5)
    assert "such as 8" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_a_whole_database_behind_a_late_transaction_does_not_hide_that_it_is_late(tmp_path: Path) -> None:
    two = TwoLeaders(whole=6)
    two.remove(range(1, 6))
    two.ship(5, 1, dict.fromkeys(range(1, 5), 99))
    with pytest.raises(RestorePointMissing, match="transaction 6 names none before it"):
        find_plan(two.store, two.layout.all_files(), txid=5)
    assert two.restored(tmp_path / "out", at=datetime.fromtimestamp(5.5, UTC)) == two.after[4]
    assert two.restored(tmp_path / "out", txid=6) == two.after[6]


@pytest.mark.parametrize("removed", [range(5, 9), range(5, 6), range(7, 8)])
def test_a_transaction_that_is_removed_during_a_restore_is_not_told_as_late(removed: Iterable[int]) -> None:
    two = TwoLeaders()
    listed = two.layout.all_files()
    two.remove(removed)
    with pytest.raises(LtxDamaged, match="it went away while the replica was read"):
        find_plan(two.store, listed, txid=5)


def test_a_late_transaction_does_not_have_the_headers_before_it_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    two = TwoLeaders()
    two.remove(range(1, 9))
    two.ship(8, 1, {3: 99})
    files, reads, get = two.layout.all_files(), Counter[str](), two.store.get

    def counted(key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        reads[key] += 1
        return get(key, start=start, stop=stop)

    monkeypatch.setattr(two.store, "get", counted)
    assert find_transaction(two.store, files, datetime.fromtimestamp(8.5, UTC)) == 8
    assert reads[two.layout.key(0, 9, 9)] == 1


def test_a_transaction_whose_successors_were_shipped_after_the_listing_is_restored() -> None:
    two = TwoLeaders()
    listed = [file for file in two.layout.all_files() if file.level or file.max_txid <= 6]
    assert find_plan(two.store, listed, txid=6)[-1].max_txid == 6


def test_a_replica_of_one_leader_that_names_no_predecessors_is_left_as_it_is(tmp_path: Path) -> None:
    store = dated([10, 20, 30])
    compact(store, Layout(store), Layout(store).all_files(), 1)
    store.delete(Layout(store).key(0, 3, 3))  # litestream merges what it has not shipped one by one
    restore(store, Layout(store), tmp_path / "a", txid=2)
    assert (tmp_path / "a").read_bytes() == b"\2" * 512
