"""What a start makes of its cursor: it goes on, ships a snapshot, or refuses to ship an older state as a newer one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from strandline.errors import FormatError, Unavailable
from strandline.objects import LocalObjects, MemoryObjects, ObjectStore
from strandline.replica import Layout, Position, ReplicaAhead, ReplicaFenced, Replicator, restore
from strandline.replica.capture import LogState
from strandline.replica.cursor import ReplicaCursor, Shipped, cursor_path, format_cursor, parse_cursor
from strandline.replica.shipper import EMPTY
from strandline.replica.wal import FRAME_HEADER_BYTES, HEADER_BYTES, WalPosition
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S, eventually

STATE = LogState((1, 2), WalPosition(4152, (3, 4)), 9, 4096)


def at(txid: int) -> Shipped:
    """Return a transaction."""
    return Shipped(Position(txid, 2**63 + txid), STATE)


@pytest.mark.parametrize(
    ("head", "found"),
    [(at(5).position, at(5)), (at(6).position, at(6)), (EMPTY, None), (Position(4, 1), None)],
    ids=["the last upload never arrived", "it arrived", "the place is empty", "the place has lost the last ones"],
)
def test_a_cursor_knows_what_the_replica_ends_with(head: Position, found: Shipped | None) -> None:
    assert ReplicaCursor("memory://", at(5), at(6)).find(head) == found


@pytest.mark.parametrize("head", [Position(5, 1), Position(6, 1), at(7).position])
def test_a_replica_that_ends_with_another_transaction_is_ahead(head: Position) -> None:
    with pytest.raises(ReplicaAhead, match=f"transaction {head.txid}.*shipped up to 5") as caught:
        ReplicaCursor("memory://", at(5), at(6)).find(head)
    assert "--adopt" in (caught.value.hint or "")


def test_cursors_are_written_and_read() -> None:
    for cursor in (
        ReplicaCursor("s3://b", at(5), at(6), is_complete=False, inode=7),
        ReplicaCursor("s3://b", Shipped(EMPTY), None),
    ):
        assert parse_cursor(format_cursor(cursor), "x") == cursor
    first = (
        '{"version": 1, "address": "s3://b", "txid": 5, "checksum": "8000000000000005", "salts": [1, 2],'
        ' "offset": 4152, "log_checksum": [3, 4], "pages": 9, "page_size": 4096}'
    )
    assert parse_cursor(first, "x") == ReplicaCursor("s3://b", at(5))
    for text in ("", "{}", "[]", '{"version": 3}', '{"version": 2}'):
        with pytest.raises(FormatError):
            parse_cursor(text, "x")


def test_a_cursor_is_of_a_place_with_a_slash_at_its_end_or_without() -> None:
    for address in ("s3://b/app", "s3://b/app/"):
        assert ReplicaCursor(address).is_at("s3://b/app")
        assert not ReplicaCursor(address).is_at("s3://b/other")


@pytest.fixture
def application(tmp_path: Path) -> Iterator[apsw.Connection]:
    """A connection of the application."""
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 5)
        yield connection


def led_elsewhere(tmp_path: Path, store: ObjectStore, commits: int) -> None:
    """Let another leader restore the database and go on with the replica."""
    restore(store, Layout(store), tmp_path / "b.db")
    with database(tmp_path / "b.db") as other, Replicator(tmp_path / "b.db", store, epoch=9) as running:
        other.set_busy_timeout(int(PATIENCE_S * 1000))
        for number in range(commits):
            other.execute("INSERT INTO t (body) VALUES (?)", (f"theirs {number}",))
            running.wait_durable(PATIENCE_S)


def keys(store: ObjectStore) -> list[tuple[str, str]]:
    """Return what is in a store."""
    return [(info.key, info.etag) for info in store.list()]


@pytest.mark.parametrize("is_running", [True, False], ids=["fenced while it ran", "away meanwhile"])
def test_a_leader_that_was_replaced_ships_nothing_when_it_starts_again(
    tmp_path: Path, application: apsw.Connection, is_running: bool
) -> None:
    store = MemoryObjects()
    running = Replicator(tmp_path / "a.db", store, epoch=3).start()
    running.wait_durable(PATIENCE_S)
    if not is_running:
        running.close()
    led_elsewhere(tmp_path, store, 3)
    application.execute("INSERT INTO t (body) VALUES ('ours')")
    if is_running:
        with pytest.raises(ReplicaFenced):
            running.wait_durable(PATIENCE_S)
        with pytest.raises(ReplicaFenced):
            running.close()
    before = keys(store)
    for epoch in (0, 3, 10):
        with pytest.raises(ReplicaAhead):
            Replicator(tmp_path / "a.db", store, epoch=epoch).start()
    assert keys(store) == before
    with Replicator(tmp_path / "a.db", store, epoch=10, adopt=True) as adopted:
        adopted.wait_durable(PATIENCE_S)
    restore(store, Layout(store), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_replaced_leader_is_refused_by_whatever_path_the_folder_of_its_replica_is_given(
    tmp_path: Path, application: apsw.Connection
) -> None:
    folder = tmp_path / "real" / "replica"
    store = LocalObjects(folder)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
    led_elsewhere(tmp_path, store, 1)
    (tmp_path / "link").symlink_to("real")
    application.execute("INSERT INTO t (body) VALUES ('ours')")
    before = keys(store)
    for same in (tmp_path / "link" / "replica", tmp_path / "link" / ".." / "real" / "replica"):
        with pytest.raises(ReplicaAhead):
            Replicator(tmp_path / "a.db", LocalObjects(same)).start()
    assert keys(store) == before


def test_a_restored_database_in_the_place_of_a_replaced_leaders_goes_on(
    tmp_path: Path, application: apsw.Connection
) -> None:
    store = MemoryObjects()
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
    led_elsewhere(tmp_path, store, 2)
    application.close()
    restore(store, Layout(store), tmp_path / "new.db")
    for file in tmp_path.glob("a.db*"):
        file.unlink()
    (tmp_path / "new.db").rename(tmp_path / "a.db")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        assert running.status().snapshots == 1
    restore(store, Layout(store), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "b.db")


def test_an_upload_that_arrived_before_its_replicator_died_is_gone_on_with(
    tmp_path: Path, application: apsw.Connection
) -> None:
    class Dying(MemoryObjects):
        is_dying = False

        def put(self, key: str, *arguments: object, **options: object) -> str:
            etag = super().put(key, *arguments, **options)  # type: ignore[arg-type]
            if self.is_dying:
                raise SystemExit
            return etag

    store = Dying()
    running = Replicator(tmp_path / "a.db", store).start()
    last = running.wait_durable(PATIENCE_S)
    store.is_dying = True
    fill(application, 1, seed=1)
    with pytest.raises(SystemExit):
        running.wait_durable(PATIENCE_S)
    with pytest.raises(SystemExit):
        running.close()
    store.is_dying = False
    with Replicator(tmp_path / "a.db", store) as running:
        assert running.wait_durable(PATIENCE_S).txid > last.txid
        assert running.status().snapshots == 0
    restore(store, Layout(store), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_database_that_lost_shipped_commits_ships_nothing(tmp_path: Path) -> None:
    store, path, log = MemoryObjects(), tmp_path / "a.db", tmp_path / "a.db-wal"
    with database(path) as connection:
        fill(connection, 5)
        with Replicator(path, store) as running:
            running.wait_durable(PATIENCE_S)
            fill(connection, 5, seed=1)
            running.wait_durable(PATIENCE_S)
        shutil.copy(log, tmp_path / "kept")
        size = log.stat().st_size
    frame = 4096 + FRAME_HEADER_BYTES
    cut = HEADER_BYTES + ((size - HEADER_BYTES) // frame - 3) * frame
    with (tmp_path / "kept").open("r+b") as kept:  # as a power cut leaves it
        kept.truncate(cut)
    for file in tmp_path.glob("a.db-*"):
        file.unlink()
    (tmp_path / "kept").rename(log)
    before = keys(store)
    with pytest.raises(ReplicaAhead, match="its log ends before"):
        Replicator(path, store).start()
    assert keys(store) == before


def test_what_is_shipped_is_on_the_local_disk_first(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()
    sync = os.fdatasync

    def synced(descriptor: int) -> None:
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)
        done.append("log" if name.endswith("a.db-wal") else "cursor" if ".a.db-strandline" in name else "other")

    class Noted(MemoryObjects):
        def put(self, key: str, *arguments: object, **options: object) -> str:
            done.append("put")
            return super().put(key, *arguments, **options)  # type: ignore[arg-type]

    store = Noted()
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        monkeypatch.setattr(os, "fdatasync", synced)
        for number in range(3):
            done.clear()
            fill(application, 1, seed=number)
            running.wait_durable(PATIENCE_S)
            assert done[: done.index("put")] == ["log", "cursor"]


def test_a_cursor_that_cannot_be_written_is_removed_and_shipping_goes_on(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store = MemoryObjects()
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        monkeypatch.setattr("strandline.replica.replicator.write_cursor", full)
        fill(application, 1, seed=1)
        running.wait_durable(PATIENCE_S)
        assert not cursor_path(tmp_path / "a.db").exists()
    monkeypatch.undo()
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        assert running.status().snapshots == 1
    restore(store, Layout(store), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_log_that_cannot_be_synced_ships_nothing_until_it_can(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryObjects()
    with Replicator(tmp_path / "a.db", store) as running:
        position = running.wait_durable(PATIENCE_S)

        def broken(_: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", broken)
        fill(application, 1, seed=1)
        eventually(lambda: "Input/output error" in (running.status().error or ""))
        with pytest.raises(Unavailable, match="Input/output error"):
            running.wait_durable(0.1)
        assert running.position == position
        monkeypatch.undo()
        running.wait_durable(PATIENCE_S)
    restore(store, Layout(store), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
