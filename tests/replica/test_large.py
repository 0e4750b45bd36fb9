"""Databases past 2^30 bytes, where SQLite keeps its lock page, and many small ones: all of it in bounded memory."""

import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import apsw
import pytest

from strandline.objects import open_objects
from strandline.replica import Follower, Layout, ReplicaPool, Replicator, restore
from strandline.replica.ltx import lock_page
from strandline.replica.pool import Pauses
from tests.replica.databases import content, database, fill
from tests.replica.litestream_program import litestream
from tests.waiting import PATIENCE_S, eventually

BLOB_BYTES = 8 << 20
BLOBS = 132
GROWTH_MAX_BYTES = 96 << 20
SMALL = 100
SMALL_SAMPLE = 20
THREADS_MAX = 12


def make_large(path: Path, page_size: int) -> None:
    """Make a database with rows before and behind the lock page; every fourth blob cannot be compressed."""
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE b (id INTEGER PRIMARY KEY, body BLOB)")
    for number in range(BLOBS):
        made = "randomblob" if number % 4 == 0 else "zeroblob"
        connection.execute(f"INSERT INTO b (body) VALUES ({made}(?))", (BLOB_BYTES,))  # noqa: S608
    connection.execute("PRAGMA journal_mode = wal")
    connection.close()
    assert path.stat().st_size // page_size > lock_page(page_size)


def check_equal(one: Path, other: Path) -> None:
    """Compare two databases row by row, after SQLite has found both whole."""
    connections = [apsw.Connection(str(path)) for path in (one, other)]
    for connection in connections:
        assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
    for ours, theirs in zip_longest(*(connection.execute("SELECT * FROM b ORDER BY id") for connection in connections)):
        assert ours == theirs
    for connection in connections:
        connection.close()


def growth_bytes(what: str, path: Path, folder: Path) -> int:
    """Return by how much the memory of a process grew."""
    command = [sys.executable, "-m", "tests.replica.memory_child", what, str(path), str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.long
@pytest.mark.parametrize("page_size", [4096, 65536])
def test_a_database_past_the_lock_page_goes_both_ways(tmp_path: Path, page_size: int) -> None:
    path, replica = tmp_path / "a.db", tmp_path / "replica"
    make_large(path, page_size)
    grown = {"ship": growth_bytes("ship", path, replica)}
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))
    store = open_objects(f"file://{replica}")
    follower = Follower(store, tmp_path / "followed.db")
    with Replicator(path, store) as running:
        connection.execute("DELETE FROM b WHERE id IN (7, 8)")
        connection.execute("INSERT INTO b (body) VALUES (randomblob(?))", (3 * BLOB_BYTES,))
        running.wait_durable(PATIENCE_S)
        grown["restore"] = growth_bytes("restore", tmp_path / "ours.db", replica)
        grown["follow"] = growth_bytes("follow", tmp_path / "followed.db", replica)
        connection.execute("UPDATE b SET body = randomblob(1000) WHERE id > 120")
        running.wait_durable(PATIENCE_S)
        follower.catch_up()
        follower.close()
    check_equal(tmp_path / "followed.db", path)
    (tmp_path / "ours.db").unlink()
    (tmp_path / "followed.db").unlink()
    restore(store, Layout(store), tmp_path / "ours.db")
    store.close()
    check_equal(tmp_path / "ours.db", path)
    (tmp_path / "ours.db").unlink()
    theirs = tmp_path / "theirs.db"
    subprocess.run([litestream(), "restore", "-o", str(theirs), f"file://{replica}"], check=True, capture_output=True)
    check_equal(theirs, path)
    theirs.unlink()
    check_from_litestream(tmp_path, connection)
    connection.close()
    assert max(grown.values()) < GROWTH_MAX_BYTES, f"memory grew by {grown}"


def check_from_litestream(tmp_path: Path, connection: apsw.Connection) -> None:
    """Have litestream replicate the database, and restore it."""
    replica = tmp_path / "their-replica"
    config = tmp_path / "litestream.yml"
    config.write_text(
        f"dbs:\n  - path: {tmp_path}/a.db\n    monitor-interval: 50ms\n    replicas:\n"
        f"      - type: file\n        path: {replica}\n        sync-interval: 50ms\n"
    )
    running = subprocess.Popen(
        [litestream(), "replicate", "-config", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    store = open_objects(f"file://{replica}")
    try:
        eventually(lambda: Layout(store).all_files(), "the first file of litestream's")
        connection.execute("INSERT INTO b (body) VALUES ('the last')")
    finally:
        running.terminate()  # it ships the rest
        running.wait(PATIENCE_S)
    restore(store, Layout(store), tmp_path / "from-theirs.db")
    store.close()
    check_equal(tmp_path / "from-theirs.db", tmp_path / "a.db")


@pytest.mark.parametrize("count", [SMALL_SAMPLE, pytest.param(SMALL, marks=pytest.mark.long)])
def test_many_databases_share_a_few_threads(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replica.pool.STALL_S", PATIENCE_S)  # a slow disk has more threads started

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    connections = list[apsw.Connection]()
    with ReplicaPool(workers=4) as pool:
        running = list[Replicator]()
        for number in range(count):
            with database(tmp_path / f"{number}.db") as connection:
                fill(connection, 2, seed=number)
            store = open_objects(f"file://{tmp_path}/replica-{number}")
            running.append(pool.start(Replicator(tmp_path / f"{number}.db", store)))
        assert threads() - before <= THREADS_MAX
        for number in range(count):
            connection = apsw.Connection(str(tmp_path / f"{number}.db"))
            connection.set_busy_timeout(int(PATIENCE_S * 1000))
            connections.append(connection)
            fill(connection, 2, seed=1000 + number)
        for one in running:
            one.wait_durable(PATIENCE_S)
        noticed = running[7].position.txid
        fill(connections[7], 1)
        eventually(lambda: running[7].position.txid > noticed, "a commit without a waiter")
        running[3].close()
        running[7].wait_durable(PATIENCE_S)
    for number in range(0, count, 9):
        store = open_objects(f"file://{tmp_path}/replica-{number}")
        restore(store, Layout(store), tmp_path / f"{number}-copy.db")
        assert content(tmp_path / f"{number}-copy.db") == content(tmp_path / f"{number}.db")
        store.close()
    for connection in connections:
        connection.close()


def test_a_pause_that_was_cut_short_wakes_nobody() -> None:
    pauses = Pauses[str]()
    assert pauses.begin("a", 5.0)
    assert pauses.begin("b", 3.0)
    assert not pauses.begin("a", 6.0)
    assert pauses.next_s() == 3.0
    assert [pauses.over(now_s) for now_s in (2.0, 3.0, 5.0, 6.0, 7.0)] == [[], ["b"], [], ["a"], []]
    assert pauses.next_s() is None
