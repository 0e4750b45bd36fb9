"""Restore: to the last transaction, to any, to a time; what is missing, cut off or foreign is refused."""

import errno
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from strandline.errors import StorageRefused
from strandline.objects import MemoryObjects
from strandline.replica import (
    Layout,
    LtxDamaged,
    ReplicaGap,
    Replicator,
    RestorePointMissing,
    ltx,
    restore,
)
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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


def test_a_restore_imports_no_more_than_it_needs() -> None:
    program = "import sys, strandline.cli.replica_restore; print(sorted({'numpy', 'apsw'} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "[]\n"
