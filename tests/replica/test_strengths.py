"""How strong a commit is: one transaction, or every commit, waits until it is in the object store."""

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from strandline.errors import Closed, InvalidInput, Unavailable
from strandline.objects import MemoryObjects
from strandline.replica import Layout, ReplicaFenced, ReplicaPool, Replicator, ltx, restore
from strandline.replica.pace import BURST, Pace
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S, eventually

WRITERS = 16
COMMITS = 5


def rows_of(store: MemoryObjects, to: Path) -> set[object]:
    """Return the bodies of what a replica restores to."""
    restore(store, Layout(store), to)
    return {row[-1] for row in content(to)}


@pytest.fixture
def application(tmp_path: Path) -> Iterator[apsw.Connection]:
    """A connection of the application."""
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 2)
        yield connection


def test_a_durable_block_ends_after_its_upload(tmp_path: Path, application: apsw.Connection) -> None:
    store = MemoryObjects()
    with Replicator(tmp_path / "a.db", store) as running:
        for number in range(3):
            with running.durable(PATIENCE_S):
                application.execute("INSERT INTO t (body) VALUES (?)", (f"row {number}",))
            assert f"row {number}" in rows_of(store, tmp_path / f"{number}.db")


def test_a_durable_block_that_raises_waits_for_nothing(tmp_path: Path, application: apsw.Connection) -> None:
    store = MemoryObjects()
    running = Replicator(tmp_path / "a.db", store).start()
    running.close()
    with pytest.raises(ZeroDivisionError), running.durable():
        raise ZeroDivisionError
    with pytest.raises(Closed), running.durable():
        fill(application, 1)


def test_every_commit_returns_after_its_upload(tmp_path: Path, application: apsw.Connection) -> None:
    store = MemoryObjects()
    with Replicator(tmp_path / "a.db", store) as running:
        running.every_commit(application, PATIENCE_S)
        application.execute("INSERT INTO t (body) VALUES ('alone')")
        assert "alone" in rows_of(store, tmp_path / "alone.db")
        with application:
            application.execute("INSERT INTO t (body) VALUES ('one')")
            application.execute("INSERT INTO t (body) VALUES ('two')")
        assert rows_of(store, tmp_path / "both.db") >= {"one", "two"}
        store.faults.fail("put", Unavailable("away"), nth=1)
        application.execute("INSERT INTO t (body) VALUES ('late')")
        assert "late" in rows_of(store, tmp_path / "late.db")


def test_a_commit_that_is_not_shipped_raises_and_stays(tmp_path: Path, application: apsw.Connection) -> None:
    store = MemoryObjects()
    running = Replicator(tmp_path / "a.db", store, epoch=1).start()
    position = running.wait_durable(PATIENCE_S)
    running.every_commit(application, PATIENCE_S)
    header = ltx.LtxHeader(4096, 1, position.txid + 1, position.txid + 1, 1, epoch=9)
    store.put(Layout(store).key(0, header.min_txid, header.min_txid), b"".join(ltx.encode(header, [(1, bytes(4096))])))
    with pytest.raises(ReplicaFenced):
        application.execute("INSERT INTO t (body) VALUES ('local')")
    with pytest.raises(ReplicaFenced):
        running.close()
    with pytest.raises((Closed, ReplicaFenced)):
        application.execute("INSERT INTO t (body) VALUES ('later')")
    assert {row[-1] for row in content(tmp_path / "a.db")} >= {"local", "later"}


def test_a_connection_to_another_database_is_refused(tmp_path: Path, application: apsw.Connection) -> None:
    with database(tmp_path / "b.db") as other:
        fill(other, 1)
        with Replicator(tmp_path / "b.db", MemoryObjects()) as running, pytest.raises(InvalidInput, match=r"a\.db"):
            running.every_commit(application)


@pytest.mark.usefixtures("application")
def test_writers_that_wait_share_uploads(tmp_path: Path) -> None:
    looking, wanted = apsw.Connection(str(tmp_path / "a.db")), 0

    class Held(MemoryObjects):
        """A store that answers when all writers have committed."""

        def put(self, *arguments: object, **options: object) -> str:
            count = "SELECT count(*) FROM t WHERE typeof(body) = 'text'"
            eventually(lambda: next(iter(looking.execute(count)))[0] >= wanted, "the commits of all writers")
            return super().put(*arguments, **options)  # type: ignore[arg-type]

    def begin_round() -> None:
        nonlocal wanted
        wanted += WRITERS

    store = Held()
    connections = [apsw.Connection(str(tmp_path / "a.db")) for _ in range(WRITERS)]
    rounds = threading.Barrier(WRITERS, begin_round)
    said = set[str]()
    with Replicator(tmp_path / "a.db", store) as running:
        first = running.wait_durable(PATIENCE_S)

        def write(number: int) -> None:
            connections[number].set_busy_timeout(int(PATIENCE_S * 1000))
            running.every_commit(connections[number], PATIENCE_S)
            for commit in range(COMMITS):
                rounds.wait()
                connections[number].execute("INSERT INTO t (body) VALUES (?)", (f"{number} {commit}",))
                said.add(f"{number} {commit}")

        threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        uploads = running.position.txid - first.txid
    for connection in (looking, *connections):
        connection.close()
    assert len(said) == WRITERS * COMMITS
    assert uploads <= 2 * COMMITS, "the first commit of a round, and all others"
    assert rows_of(store, tmp_path / "all.db") >= said


class TestPace:
    def test_a_burst_is_not_held_up_and_then_there_is_one_upload_for_each_interval(self) -> None:
        pace = Pace(2.0, 100.0)
        for _ in range(BURST):
            assert pace.wait_s(100.0) == 0
            pace.spend(100.0)
        assert pace.wait_s(100.0) == 2.0
        assert pace.wait_s(102.0) == 0
        pace.spend(102.0)
        assert pace.wait_s(102.0) == 2.0

    def test_a_quiet_time_saves_up_a_burst_and_no_more(self) -> None:
        pace = Pace(1.0, 0.0)
        for _ in range(BURST):
            pace.spend(0.0)
        for _ in range(BURST):
            assert pace.wait_s(10_000.0) == 0
            pace.spend(10_000.0)
        assert pace.wait_s(10_000.0) == 1.0

    def test_without_an_interval_nothing_waits(self) -> None:
        pace = Pace(0.0, 0.0)
        for _ in range(10 * BURST):
            pace.spend(0.0)
            assert pace.wait_s(0.0) == 0

    def test_waiters_that_used_more_than_the_burst_hold_no_one_up_for_longer_than_an_interval(self) -> None:
        pace = Pace(1.0, 0.0)
        for _ in range(10 * BURST):
            pace.spend(0.0)
        assert pace.wait_s(0.0) == 1.0


@pytest.mark.parametrize("in_pool", [False, True])
def test_commits_wait_for_the_pace_and_a_waiter_does_not(tmp_path: Path, *, in_pool: bool) -> None:
    with database(tmp_path / "a.db") as connection, ReplicaPool() as pool:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        store = MemoryObjects()
        replicator = Replicator(tmp_path / "a.db", store, upload_every_s=3600.0)
        replicator = pool.start(replicator) if in_pool else replicator.start()
        for _ in range(BURST + 2):
            fill(connection, 1)
            replicator.wait_durable(PATIENCE_S)
        before = replicator.position
        fill(connection, 200)
        assert replicator.wait_durable(PATIENCE_S).txid == before.txid + 1  # nothing was shipped before that
        replicator.close()


def test_a_backlog_does_not_wait_for_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHUNK_BYTES", "_FIRST_BYTES"):
        monkeypatch.setattr(f"strandline.replica.capture.{name}", 20_000)
    monkeypatch.setattr("strandline.replica.pace.BURST", 3)
    held, is_asked = threading.Event(), threading.Event()

    class Held(MemoryObjects):
        is_held = False

        def put(self, *arguments: object, **options: object) -> str:
            if self.is_held:
                is_asked.set()
                assert held.wait(PATIENCE_S)
            return super().put(*arguments, **options)  # type: ignore[arg-type]

    store = Held()
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 1)
        with Replicator(tmp_path / "a.db", store, upload_every_s=3600.0) as running:
            running.wait_durable(PATIENCE_S)
            store.is_held = True
            fill(connection, 1, seed=1)
            assert is_asked.wait(PATIENCE_S)
            fill(connection, 100, seed=2)  # while an upload runs; the next one takes a small part of it
            held.set()
            eventually(lambda: running.position.txid > 6, "it is shipped without a waiter")


def test_the_parts_of_a_first_snapshot_do_not_wait_for_the_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.replica.snapshot_parts.PART_BYTES", 20_000)
    monkeypatch.setattr("strandline.replica.pace.BURST", 1)
    store = MemoryObjects()
    with database(tmp_path / "a.db") as connection:
        fill(connection, 100)
        with Replicator(tmp_path / "a.db", store, upload_every_s=3600.0) as running:
            eventually(lambda: running.status().snapshots == 1, "a snapshot without a waiter")
            assert running.position.txid > 3


def test_commits_of_a_database_that_cannot_be_read_are_said_to_wait(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Replicator(tmp_path / "a.db", MemoryObjects()) as running:
        running.wait_durable(PATIENCE_S)
        with monkeypatch.context() as broken:
            broken.setattr("strandline.replica.capture.Capture.changes", _unreadable)
            fill(application, 1)
            eventually(lambda: running.status().error and running.status().lag_s > 0, "an error, and its lag")
        running.wait_durable(PATIENCE_S)
        assert running.status().lag_s == 0


def _unreadable(_: object) -> None:
    raise Unavailable("the disk is full")
