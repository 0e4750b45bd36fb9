"""The first snapshot of a large database: parts of bounded size, each a valid database."""

import subprocess
import uuid
from pathlib import Path

import apsw
import pytest

from strandline.errors import Unavailable
from strandline.objects import MemoryObjects, open_objects, remote
from strandline.replica import Layout, Replicator, TransactionTooLarge, restore, shipper, snapshot_parts
from tests.replica.databases import content, database, fill
from tests.replica.litestream_program import litestream
from tests.servers_seaweed import BUCKET, SeaweedServer
from tests.waiting import PATIENCE_S

PART_BYTES = 100_000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have parts of little more than a page."""
    monkeypatch.setattr(snapshot_parts, "PART_BYTES", PART_BYTES)


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
@pytest.mark.parametrize("vacuum", ["none", "incremental"])
def test_every_part_is_a_database_and_the_last_one_is_the_whole(tmp_path: Path, page_size: int, vacuum: str) -> None:
    store = open_objects(f"file://{tmp_path}/replica")
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute(f"PRAGMA auto_vacuum = {vacuum}")
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("BEGIN")
    fill(connection, 800)
    connection.execute("COMMIT")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        assert running.status().snapshots == 1
        files = list(Layout(store).files(0))
        assert len(files) > 3
        assert max(file.size for file in files) < 2 * PART_BYTES
        for file in files[:-1]:
            out = tmp_path / f"{file.max_txid}.db"
            restore(store, Layout(store), out, txid=file.max_txid)
            assert content(out) == []
        fill(connection, 3, seed=1)
    restore(store, Layout(store), tmp_path / "copy.db")
    command = [litestream(), "restore", "-o", str(tmp_path / "theirs.db"), f"file://{tmp_path}/replica"]
    subprocess.run(command, check=True, capture_output=True)
    assert content(tmp_path / "copy.db") == content(tmp_path / "theirs.db") == content(tmp_path / "a.db")
    connection.close()
    store.close()


def test_nothing_is_durable_before_the_last_part(tmp_path: Path) -> None:
    store = MemoryObjects()
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 800)
        running = Replicator(tmp_path / "a.db", store).start()
        running.wait_durable(PATIENCE_S)
        parts = running.position.txid
        running.close()
    for part in (*range(3, parts + 1, 3), parts + 1):  # the first object says whose replica it is
        again = MemoryObjects()
        again.faults.fail("put", SystemError("killed"), nth=part)  # type: ignore[arg-type]
        for file in tmp_path.glob(".a.db-strandline"):
            file.unlink()
        running = Replicator(tmp_path / "a.db", again).start()
        with pytest.raises(SystemError):
            running.wait_durable(PATIENCE_S)
        with pytest.raises(SystemError):
            running.close()
        restore(again, Layout(again), tmp_path / f"{part}.db")
        assert content(tmp_path / f"{part}.db") == []
        with Replicator(tmp_path / "a.db", again) as running:
            running.wait_durable(PATIENCE_S)
            assert running.position.txid - 1 >= part - 2 + parts - 1, "it is shipped in parts again"
        restore(again, Layout(again), tmp_path / f"{part}-whole.db")
        assert content(tmp_path / f"{part}-whole.db") == content(tmp_path / "a.db")


def test_a_large_later_snapshot_waits_on_disk_and_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "SPOOL_BYTES", 10_000)
    monkeypatch.setattr(shipper, "PIECE_BYTES", 10_000)
    store = MemoryObjects()
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 5)
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(connection, 400, seed=1)
        store.faults.fail("put", Unavailable("the answer was lost"), nth=1, after=True)
        with Replicator(tmp_path / "a.db", store) as running:
            position = running.wait_durable(PATIENCE_S)
            assert running.status().snapshots == 1
        assert [file.max_txid for file in Layout(store).files(0)][-1] == position.txid
    restore(store, Layout(store), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    assert sorted(path.name for path in tmp_path.iterdir() if "tmp" in path.name) == []


def test_a_transaction_that_is_longer_than_a_chunk_is_read_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHUNK_BYTES", "_FIRST_BYTES"):
        monkeypatch.setattr(f"strandline.replica.capture.{name}", 20_000)
    monkeypatch.setattr("strandline.replica.replicator.CHECKPOINT_BYTES", 50_000)
    store = MemoryObjects()
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 5)
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
            for seed in range(5):
                connection.execute("BEGIN IMMEDIATE")
                fill(connection, 200, seed=seed)
                connection.execute("DELETE FROM t WHERE id % 3 = 0")
                connection.execute("COMMIT")
                fill(connection, 3, seed=seed)
            connection.execute("VACUUM")
            running.wait_durable(PATIENCE_S)
            assert running.status().snapshots == 1
    restore(store, Layout(store), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_later_snapshot_that_the_store_does_not_take_ends_the_replicator_with_a_way_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seaweed_server: SeaweedServer
) -> None:
    places = [f"s3://{BUCKET}/{uuid.uuid4().hex}" for _ in range(2)]
    stores = [open_objects(place, conditional=True, environ=seaweed_server.environ) for place in places]
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 800)
        with Replicator(tmp_path / "a.db", stores[0]) as running:
            running.wait_durable(PATIENCE_S)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(connection, 5, seed=1)
        monkeypatch.setitem(remote.PUT_BYTES_MAX, "s3", PART_BYTES + 10_000)
        again = open_objects(places[0], conditional=True, environ=seaweed_server.environ)
        running = Replicator(tmp_path / "a.db", again).start()
        with pytest.raises(TransactionTooLarge, match="more than the store takes in one write") as refused:
            running.wait_durable(PATIENCE_S)
        assert "an empty place" in (refused.value.hint or "")
        with pytest.raises(TransactionTooLarge):
            running.close()
        other = open_objects(places[1], conditional=True, environ=seaweed_server.environ)
        with Replicator(tmp_path / "a.db", other) as running:
            running.wait_durable(PATIENCE_S)
    restore(stores[1], Layout(stores[1]), tmp_path / "copy.db")
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    for store in (*stores, again, other):
        store.close()
