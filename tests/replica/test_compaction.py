"""Compaction and retention: fewer files, the same database at every restore point that is kept."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.objects import MemoryObjects
from strandline.replica import (
    Change,
    Layout,
    LtxDamaged,
    LtxFile,
    Position,
    ReplicaFenced,
    ReplicaGap,
    Replicator,
    Shipper,
    find_position,
    ltx,
    restore,
)
from strandline.replica import shipper as shipper_module
from strandline.replica.capture import LogState
from strandline.replica.compaction import FILES_MAX, compact, compact_level, take_snapshot
from strandline.replica.errors import RestorePointMissing
from strandline.replica.maintenance import Maintenance, MaintenancePolicy
from strandline.replica.restore_points import plan_restore
from strandline.replica.retention import DEFAULT_POLICY, RetentionPolicy, plan_retention, prune
from strandline.replica.wal import WalPosition
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S, eventually

PAGE = 512
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def written(store: MemoryObjects, transactions: int, seed: int = 0) -> dict[int, bytes]:
    """Write transactions of random pages; return the database after each."""
    chance, layout, before = random.Random(seed), Layout(store), 0
    database_, after = bytearray(), dict[int, bytes]()
    for txid in range(1, transactions + 1):
        size = max(1, len(database_) // PAGE + chance.randint(-2, 3)) if txid > 1 else 4
        new = range(len(database_) // PAGE + 1, size + 1)
        numbers = sorted({*new, *chance.sample(range(1, size + 1), min(2, size))})
        pages = [(number, chance.randbytes(PAGE)) for number in numbers]
        database_.extend(bytes(max(0, size * PAGE - len(database_))))
        del database_[size * PAGE :]
        for number, page in pages:
            database_[(number - 1) * PAGE : number * PAGE] = page
        header = ltx.LtxHeader(PAGE, size, txid, txid, txid * 1000, epoch=5, predecessor=before)
        body = b"".join(ltx.encode(header, pages))
        store.put(layout.key(0, txid, txid), body)
        before, after[txid] = ltx.file_checksum(body), bytes(database_)
    return after


def restored(store: MemoryObjects, folder: Path, txid: int | None = None) -> bytes:
    """Return a restored database, and check that every file followed the one before it."""
    out = folder / f"{random.random()}.db"
    restore(store, Layout(store), out, txid=txid)
    return out.read_bytes()


@pytest.mark.parametrize("transactions", [2, 7, FILES_MAX + 3, 2 * FILES_MAX + 1])
def test_merged_files_restore_to_the_same(tmp_path: Path, transactions: int) -> None:
    store = MemoryObjects()
    after, layout = written(store, transactions), Layout(store)
    for level in (1, 2):
        made = compact_level(store, layout, layout.all_files(), level)
        assert restored(store, tmp_path) == after[transactions]
        for file in made:
            assert restored(store, tmp_path, file.max_txid) == after[file.max_txid]
    assert [file.min_txid for file in layout.files(1)] == list(range(1, transactions, FILES_MAX))


def test_a_later_transaction_follows_a_merged_file(tmp_path: Path) -> None:
    store = MemoryObjects()
    after, layout = written(store, 9), Layout(store)
    last = layout.key(0, 9, 9)
    found = store.get(last)
    assert found is not None
    store.delete(last)
    before = find_position(store, layout)
    compact_level(store, layout, layout.all_files(), 1)
    for txid in range(1, 9):
        store.delete(layout.key(0, txid, txid))
    assert find_position(store, layout) == before
    store.put(last, found.body)
    assert restored(store, tmp_path) == after[9]
    header, pages, _ = ltx.decode(found.body)
    store.put(last, b"".join(ltx.encode(header._replace(predecessor=1), pages)))
    with pytest.raises(ReplicaGap, match="follows another file"):
        restored(store, tmp_path)


def test_a_snapshot_alone_restores_the_last_transaction(tmp_path: Path) -> None:
    store = MemoryObjects()
    after, layout = written(store, FILES_MAX + 9), Layout(store)
    snapshot = take_snapshot(store, layout, layout.all_files())
    assert snapshot is not None
    assert take_snapshot(store, layout, layout.all_files()) is None
    for file in layout.all_files():
        if file.key != snapshot.key:
            store.delete(file.key)
    assert restored(store, tmp_path) == after[FILES_MAX + 9]


@pytest.mark.parametrize("damage", ["flipped", "missing", "foreign"])
def test_no_merged_file_appears_where_a_source_is_wrong(damage: str) -> None:
    store = MemoryObjects()
    written(store, 5)
    layout = Layout(store)
    files, key = layout.all_files(), layout.key(0, 3, 3)
    found = store.get(key)
    assert found is not None
    header, pages, _ = ltx.decode(found.body)
    body = bytearray(found.body)
    body[-30] ^= 1
    foreign = b"".join(ltx.encode(header._replace(predecessor=4), pages))
    store.put(key, {"flipped": bytes(body), "missing": found.body, "foreign": foreign}[damage])
    sources = [file for file in files if damage != "missing" or file.key != key]
    with pytest.raises((LtxDamaged, ReplicaGap)):
        compact(store, layout, sources, 1)
    assert not list(layout.files(1))


def some_files(chance: random.Random) -> list[LtxFile]:
    """Return the files of a replica that has a transaction each half hour, merged and with snapshots."""
    files, last = list[LtxFile](), chance.randint(1, 40)

    def add(level: int, first: int, end: int) -> None:
        age = timedelta(minutes=(last - end) * 30 + chance.randint(0, 20))
        files.append(LtxFile(level, first, end, f"{level}/{first}-{end}", 1, NOW - age))

    for txid in range(1, last + 1):
        add(0, txid, txid)
    for level, every in ((1, 3), (2, 9)):
        for first in range(1, last - every + 2, every):
            add(level, first, first + every - 1)
    for end in range(chance.randint(1, 5), last + 1, 7):
        add(9, 1, end)
    return files


@given(st.integers(0, 10**6))
def test_any_retention_keeps_what_it_promises(seed: int) -> None:
    chance = random.Random(seed)
    files = some_files(chance)
    policy = RetentionPolicy(timedelta(hours=chance.randint(0, 20)), chance.randint(1, 3), timedelta(minutes=90))
    plan = plan_retention(files, NOW, policy)
    kept = [file for file in files if file not in plan]
    snapshots = [file.max_txid for file in files if file.level == 9]
    assert [file.max_txid for file in kept if file.level == 9][-1:] == snapshots[-1:]
    assert sum(file.level == 9 for file in kept) >= min(len(snapshots), policy.snapshots_min)
    points = {file.max_txid for file in kept if restorable(kept, file.max_txid)}
    for file in files:
        if NOW - file.modified <= policy.restorable_for:
            assert min(abs(point - file.max_txid) for point in points) < 3, "a merged file has three transactions"
    left = list(files)
    for gone in plan:
        left.remove(gone)
        assert all(restorable(left, point) for point in points)
    assert plan_retention(left, NOW, policy) == []


def restorable(files: list[LtxFile], txid: int) -> bool:
    """Return whether a transaction can be restored from files."""
    try:
        plan_restore(files, txid)
    except (ReplicaGap, RestorePointMissing):
        return False
    return True


def test_pruned_files_are_gone(tmp_path: Path) -> None:
    store = MemoryObjects()
    after, layout = written(store, 20), Layout(store)
    for _ in range(2):
        take_snapshot(store, layout, layout.all_files())
    policy = RetentionPolicy(timedelta(0), 1)
    later = datetime.now(UTC) + timedelta(days=2)
    assert plan_retention(layout.all_files(), later, policy) == [], "leaders rely on them, whatever the clock says"
    files = [file._replace(modified=file.modified - timedelta(days=file.level == 0)) for file in layout.all_files()]
    assert prune(store, plan_retention(files, later, policy)) == 19, "all but the last"
    assert [(file.level, file.max_txid) for file in layout.all_files()] == [(0, 20), (9, 20)]
    assert restored(store, tmp_path) == after[20]
    with pytest.raises(RestorePointMissing):
        restored(store, tmp_path, 19)


def test_single_transactions_stay_for_as_long_as_a_leader_relies_on_them() -> None:
    for seconds in (0, shipper_module.SURE_FOR_S - 1):
        with pytest.raises(InvalidInput, match="single transactions are kept for") as refused:
            RetentionPolicy(transactions_for=timedelta(seconds=seconds))
        assert "120 s at least" in (refused.value.hint or "")
    RetentionPolicy(transactions_for=timedelta(seconds=shipper_module.SURE_FOR_S))


def test_a_replica_is_maintained_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replica.retention.SURE_FOR_S", 0.0)  # nothing fences here, and files go soon
    store, path = MemoryObjects(), tmp_path / "a.db"
    maintenance = Maintenance(
        store,
        MaintenancePolicy((0.05, 0.1, 0.2), 0.1, RetentionPolicy(timedelta(seconds=0.5), 1, timedelta(seconds=0.1))),
    )
    with database(path) as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(path, store) as running:
            maintenance.start()
            position = Position(0, 0)
            for number in range(60):
                fill(connection, 2, seed=number)
                position = running.wait_durable(PATIENCE_S)
            eventually(lambda: len(list(Layout(store).files(0))) < position.txid, "files that went")
        maintenance.close()
        assert maintenance.error is None
        restore(store, Layout(store), tmp_path / "copy.db")
        assert content(tmp_path / "copy.db") == content(path)


def test_a_change_of_the_page_size_is_merged(tmp_path: Path) -> None:
    store = MemoryObjects()
    layout = Layout(store)
    with database(tmp_path / "a.db", 1024) as connection:
        for page_size in (1024, 8192):
            connection.execute("PRAGMA journal_mode = delete")
            connection.execute(f"PRAGMA page_size = {page_size}")
            connection.execute("VACUUM")
            connection.execute("PRAGMA journal_mode = wal")
            with Replicator(tmp_path / "a.db", store) as running:
                fill(connection, 5, seed=page_size)
                running.wait_durable(PATIENCE_S)
        expected = content(tmp_path / "a.db")
    compact_level(store, layout, layout.all_files(), 1)
    for file in layout.files(0):
        store.delete(file.key)
    snapshot = take_snapshot(store, layout, layout.all_files())
    assert snapshot is not None
    restore(store, layout, tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == expected


def test_a_snapshot_without_a_page_does_not_appear() -> None:
    store = MemoryObjects()
    layout = Layout(store)
    for txid, commit, pages in ((1, 1, [1]), (2, 3, [3])):
        header = ltx.LtxHeader(512, commit, txid, txid, 1000)
        store.put(layout.key(0, txid, txid), b"".join(ltx.encode(header, [(page, bytes(512)) for page in pages])))
    with pytest.raises(ReplicaGap, match="page 2 of 3 is missing"):
        take_snapshot(store, layout, layout.all_files())
    assert not list(layout.files(9))


def test_the_last_transaction_stays_a_file_of_its_own() -> None:
    old = NOW - timedelta(days=9)
    files = [LtxFile(0, txid, txid, f"0/{txid}", 1, old) for txid in (1, 2, 3)] + [LtxFile(1, 1, 3, "1/1-3", 1, NOW)]
    assert [file.key for file in plan_retention(files, NOW)] == ["0/1", "0/2"]


@pytest.mark.parametrize(
    ("policy", "ahead"),
    [
        (DEFAULT_POLICY, timedelta(hours=1)),
        (RetentionPolicy(snapshots_min=1), timedelta(days=2)),
        (RetentionPolicy(timedelta(0), snapshots_min=1), timedelta(0)),
    ],
    ids=["an hour ahead", "days ahead", "nothing is to be restorable"],
)
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_neither_a_clock_nor_a_policy_frees_a_name_that_a_leader_relies_on(
    policy: RetentionPolicy, ahead: timedelta, has_snapshot: bool
) -> None:
    store = MemoryObjects()
    layout = Layout(store)
    written(store, 3)
    away = Shipper(store, layout, find_position(store, layout), epoch=1)
    state = LogState((1, 2), WalPosition(100, (1, 2)), 1, 512)
    shipment = away.pack(Change(512, 1, iter([(1, bytes(512))]), 32, state))
    another = Shipper(store, layout, away.position, epoch=2)
    for _ in range(2):
        another.ship(another.pack(Change(512, 1, iter([(1, bytes(512))]), 32, state)))
    compact_level(store, layout, layout.all_files(), 1)
    if has_snapshot:
        take_snapshot(store, layout, layout.all_files())
        another.ship(another.pack(Change(512, 1, iter([(1, bytes(512))]), 32, state)))
    prune(store, plan_retention(layout.all_files(), datetime.now(UTC) + ahead, policy))
    with pytest.raises(ReplicaFenced, match="epoch 2"):
        away.ship(shipment)
    assert away.position.txid == 3


def test_single_transactions_go_when_the_store_has_a_file_that_is_so_much_later() -> None:
    ages = ((0, 1, 1, 9), (0, 2, 2, 6), (1, 1, 2, 5), (0, 3, 3, 3), (0, 4, 4, 2), (1, 3, 4, 0))
    files = [
        LtxFile(level, first, last, f"{level}/{last}", 1, NOW - timedelta(minutes=age))
        for level, first, last, age in ages
    ]
    for ahead_h in (0, 1, 20):
        assert [file.key for file in plan_retention(files, NOW + timedelta(hours=ahead_h))] == ["0/1", "0/2"]


@pytest.mark.parametrize("is_ours", [False, True])
def test_a_transaction_whose_name_is_free_again_is_not_written_by_a_leader_that_was_away(
    monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    store = MemoryObjects()
    layout = Layout(store)
    written(store, 3)
    shipper = Shipper(store, layout, find_position(store, layout), epoch=1)
    state = LogState((1, 2), WalPosition(100, (1, 2)), 1, 512)
    shipment = shipper.pack(Change(512, 1, iter([(1, bytes(512))]), 32, state))
    header = shipment.header._replace(epoch=1 if is_ours else 2)
    body = b"".join(ltx.encode(header, [(1, bytes(512))]))
    store.put(layout.key(0, 4, 4), body)
    compact_level(store, layout, layout.all_files(), 1)
    store.delete(layout.key(0, 4, 4))
    monkeypatch.setattr(shipper_module, "SURE_FOR_S", -1.0)
    if is_ours:
        assert shipper.ship(shipment).txid == 4
        return
    with pytest.raises(ReplicaFenced, match="epoch 2"):
        shipper.ship(shipment)
    assert shipper.position.txid == 3
    assert store.head(layout.key(0, 4, 4)) is None
