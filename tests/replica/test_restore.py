"""Restore: to the last transaction, to any, to a time; what is missing, cut off or foreign is refused."""

import errno
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import StorageRefused
from strandline.objects import MemoryObjects
from strandline.replica import (
    Layout,
    LtxDamaged,
    LtxFile,
    ReplicaGap,
    Replicator,
    RestorePointMissing,
    find_transaction,
    ltx,
    plan_restore,
    restore,
)
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def file(level: int, first: int, last: int) -> LtxFile:
    """Return a file as a listing shows it."""
    return LtxFile(level, first, last, f"{level}/{first}-{last}", 100, NOW)


@pytest.fixture
def history(tmp_path: Path) -> tuple[MemoryObjects, dict[int, list[tuple[object, ...]]]]:
    """A replica of several transactions, and the content of the database after each."""
    store, after = MemoryObjects(), dict[int, list[tuple[object, ...]]]()
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as running:
            for number in range(6):
                fill(connection, 3, seed=number)
                position = running.wait_durable(PATIENCE_S)
                after[position.txid] = content(tmp_path / "a.db")
    return store, after


def test_every_transaction_is_a_restore_point(
    tmp_path: Path, history: tuple[MemoryObjects, dict[int, list[tuple[object, ...]]]]
) -> None:
    store, after = history
    for txid, expected in after.items():
        restored = restore(store, Layout(store), tmp_path / f"{txid}.db", txid=txid)
        assert (restored.position.txid, content(tmp_path / f"{txid}.db")) == (txid, expected)


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


def test_a_plan_takes_few_files() -> None:
    files = [file(9, 1, 10), file(1, 11, 20), file(2, 11, 30), *(file(0, txid, txid) for txid in range(11, 33))]
    assert [(one.level, one.max_txid) for one in plan_restore(files)] == [(9, 10), (2, 30), (0, 31), (0, 32)]


def test_an_empty_replica_says_so(tmp_path: Path) -> None:
    store = MemoryObjects()
    with pytest.raises(RestorePointMissing, match="no whole database"):
        restore(store, Layout(store), tmp_path / "a.db")
    assert not list(tmp_path.iterdir())


def test_a_missing_transaction_is_a_gap(tmp_path: Path, history: tuple[MemoryObjects, object]) -> None:
    store = history[0]
    store.delete(Layout(store).key(0, 3, 3))
    with pytest.raises(ReplicaGap, match="missing after transaction 2"):
        restore(store, Layout(store), tmp_path / "out.db")
    assert not (tmp_path / "out.db").exists()


def test_a_file_of_another_history_is_refused(tmp_path: Path, history: tuple[MemoryObjects, object]) -> None:
    store, key = history[0], Layout(history[0]).key(0, 3, 3)
    found = store.get(key)
    assert found is not None
    header, pages, _ = ltx.decode(found.body)
    store.put(key, b"".join(ltx.encode(header._replace(predecessor=header.predecessor ^ 1), pages)))
    with pytest.raises(ReplicaGap, match="follows another file"):
        restore(store, Layout(store), tmp_path / "out.db")
    assert not (tmp_path / "out.db").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "swapped"])
def test_a_damaged_file_is_refused_and_nothing_is_left(
    tmp_path: Path, history: tuple[MemoryObjects, object], damage: str
) -> None:
    store, layout = history[0], Layout(history[0])
    found, other = store.get(layout.key(0, 2, 2)), store.get(layout.key(0, 3, 3))
    assert found is not None
    assert other is not None
    body = bytearray(found.body)
    body[len(body) // 2] ^= 1
    store.put(layout.key(0, 2, 2), {"cut": found.body[:-20], "flipped": bytes(body), "swapped": other.body}[damage])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(LtxDamaged):
        restore(store, layout, tmp_path / "out.db")
    assert sorted(tmp_path.iterdir()) == before


def test_an_existing_file_is_never_touched(tmp_path: Path, history: tuple[MemoryObjects, object]) -> None:
    (tmp_path / "out.db").write_bytes(b"precious")
    with pytest.raises(StorageRefused, match="there is a file already"):
        restore(history[0], Layout(history[0]), tmp_path / "out.db")
    assert (tmp_path / "out.db").read_bytes() == b"precious"


def test_a_file_that_is_made_while_a_restore_runs_is_not_touched(
    tmp_path: Path, history: tuple[MemoryObjects, object]
) -> None:
    out = tmp_path / "out.db"

    def make(_: object) -> None:
        out.write_bytes(b"precious")

    with pytest.raises(StorageRefused, match="there is a file already"):
        restore(history[0], Layout(history[0]), out, tell=make)
    assert out.read_bytes() == b"precious"
    assert list(tmp_path.glob(".out.db*")) == []


def test_a_restore_needs_no_links(
    tmp_path: Path, history: tuple[MemoryObjects, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_: Path, __: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    restore(history[0], Layout(history[0]), tmp_path / "out.db")
    assert content(tmp_path / "out.db")


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_log_of_another_database_is_not_taken_for_one_of_what_is_restored(tmp_path: Path, suffix: str) -> None:
    store = MemoryObjects()
    store.put(Layout(store).key(0, 1, 1), b"".join(ltx.encode(ltx.LtxHeader(512, 1, 1, 1, 1000), [(1, bytes(512))])))
    (tmp_path / f"a.db{suffix}").write_bytes(b"of another one")
    with pytest.raises(StorageRefused, match="a log already") as caught:
        restore(store, Layout(store), tmp_path / "a.db")
    assert caught.value.hint
    assert not (tmp_path / "a.db").exists()
