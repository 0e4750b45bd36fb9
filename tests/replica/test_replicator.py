"""The replicator: what it says is durable is in the store, and nothing it ships is written twice or over another's."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest

from strandline.errors import Closed, FormatError, Locked, Unavailable
from strandline.objects import LocalObjects, MemoryObjects, ObjectStore, open_objects
from strandline.replica import (
    Capture,
    DatabaseRefused,
    Layout,
    ReplicaFenced,
    ReplicaForeign,
    Replicator,
    capture,
    connections,
    ltx,
    replicator,
    restore,
)
from strandline.replica.lineage import format_lineage, parse_lineage
from strandline.replica.metrics import replicator_metrics
from tests.metrics.scrapes import Scrapes
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty object store."""
    store = open_objects(f"file://{tmp_path}/replica")
    yield store
    store.close()


@pytest.fixture
def application(tmp_path: Path) -> Iterator[apsw.Connection]:
    """A connection of the application."""
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 5)
        yield connection


def restored(store: ObjectStore, to: Path) -> list[tuple[object, ...]]:
    """Return the content of what a replica restores to."""
    restore(store, Layout(store), to)
    return content(to)


def test_a_path_is_the_file_that_it_led_to_when_the_replicator_was_made(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "link.db").symlink_to("../a.db")
    monkeypatch.chdir(tmp_path / "links")
    with Replicator(Path("link.db"), store) as running:
        monkeypatch.chdir(tmp_path)
        running.wait_durable(PATIENCE_S)
        fill(application, 3, seed=1)
        running.wait_durable(PATIENCE_S)
        assert running.status().snapshots == 1
        for same in (tmp_path / "a.db", Path("links/link.db")):
            with pytest.raises(Locked):
                Replicator(same, MemoryObjects()).start()
    assert list((tmp_path / "links").iterdir()) == [tmp_path / "links" / "link.db"]
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_what_is_durable_is_restored(tmp_path: Path, store: ObjectStore, application: apsw.Connection) -> None:
    with Replicator(tmp_path / "a.db", store) as running:
        for number in range(20):
            fill(application, 1, seed=number)
            position = running.wait_durable(PATIENCE_S)
            assert store.head(Layout(store).key(0, position.txid, position.txid)) is not None
        assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_each_file_follows_the_one_before_it(tmp_path: Path, store: ObjectStore, application: apsw.Connection) -> None:
    with Replicator(tmp_path / "a.db", store, epoch=7) as running:
        for number in range(5):
            fill(application, 1, seed=number)
            running.wait_durable(PATIENCE_S)
    before = 0
    for file in Layout(store).files(0):
        found = store.get(file.key)
        assert found is not None
        header, _, end = ltx.decode(found.body)
        assert (header.min_txid, header.max_txid, header.epoch) == (file.min_txid, file.min_txid, 7)
        assert header.predecessor == before
        before = end.checksum


def test_commits_made_during_an_upload_go_together(tmp_path: Path, application: apsw.Connection) -> None:
    gate, entered = threading.Event(), threading.Event()

    class Slow(MemoryObjects):
        def put(self, key: str, *arguments: object, **options: object) -> str:
            if key.endswith(".ltx"):
                entered.set()
                assert gate.wait(PATIENCE_S)
            return super().put(key, *arguments, **options)  # type: ignore[arg-type]

    store = Slow()
    running = Replicator(tmp_path / "a.db", store).start()
    assert entered.wait(PATIENCE_S)
    fill(application, 50, seed=1)
    gate.set()
    running.wait_durable(PATIENCE_S)
    running.close()
    assert len(list(Layout(store).files(0))) <= 4
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_store_that_is_away_is_waited_for(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "_PAUSE_S_MAX", 0.1)

    class Away(MemoryObjects):
        is_away = False

        def put(self, key: str, *arguments: object, **options: object) -> str:
            if self.is_away:
                raise Unavailable("the store is away")
            return super().put(key, *arguments, **options)  # type: ignore[arg-type]

    store = Away()
    with Replicator(tmp_path / "a.db", store) as running:
        position = running.wait_durable(PATIENCE_S)
        store.is_away = True
        fill(application, 3, seed=1)
        eventually(lambda: running.status().error == "the store is away")
        with pytest.raises(Unavailable, match="not replicated after"):
            running.wait_durable(0.2)
        assert running.position == position
        status = running.status()
        assert (status.error, status.lag_s > 0) == ("the store is away", True)
        store.is_away = False
        assert running.wait_durable(PATIENCE_S).txid > position.txid
        assert (running.status().error, running.status().lag_s) == (None, 0.0)
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_an_upload_whose_answer_was_lost_counts_once(tmp_path: Path, application: apsw.Connection) -> None:
    class Unanswered(MemoryObjects):
        lost = False

        def put(self, key: str, *arguments: object, **options: object) -> str:
            etag = super().put(key, *arguments, **options)  # type: ignore[arg-type]
            if not self.lost and key.endswith(".ltx"):
                self.lost = True
                raise Unavailable("the answer was lost")
            return etag

    store = Unanswered()
    with Replicator(tmp_path / "a.db", store) as running:
        fill(application, 3, seed=1)
        running.wait_durable(PATIENCE_S)
    assert store.lost
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_transaction_that_another_leader_wrote_ends_the_replicator(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection
) -> None:
    running = Replicator(tmp_path / "a.db", store, epoch=3).start()
    position = running.wait_durable(PATIENCE_S)
    header = ltx.LtxHeader(4096, 1, position.txid + 1, position.txid + 1, 1, epoch=9)
    other = b"".join(ltx.encode(header, [(1, bytes(4096))]))
    store.put(Layout(store).key(0, header.min_txid, header.min_txid), other, if_absent=True)
    fill(application, 1, seed=1)
    with pytest.raises(ReplicaFenced, match="epoch 9"):
        running.wait_durable(PATIENCE_S)
    assert running.position == position
    with pytest.raises(ReplicaFenced):
        running.wait_durable(PATIENCE_S)
    with pytest.raises(ReplicaFenced):
        running.close()
    found = store.get(Layout(store).key(0, header.min_txid, header.min_txid))
    assert found is not None
    assert found.body == other


def test_a_replicator_goes_on_without_a_snapshot(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection
) -> None:
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
    fill(application, 3, seed=1)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        assert running.status().snapshots == 0
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


@pytest.mark.parametrize("hint", ["", "{}", '{"version": 2}', "gone"])
def test_a_hint_that_says_nothing_costs_a_snapshot_and_nothing_else(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection, hint: str
) -> None:
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
    file = tmp_path / ".a.db-strandline"
    assert file.exists()
    file.unlink() if hint == "gone" else file.write_text(hint)
    fill(application, 3, seed=1)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        assert running.status().snapshots == 1
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_log_that_grows_is_checkpointed(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "CHECKPOINT_BYTES", 100_000)
    scrapes = Scrapes()
    with Replicator(tmp_path / "a.db", store) as running:
        scrapes.take(replicator_metrics(running))
        for seed in range(10):
            fill(application, 40, seed=seed)
            running.wait_durable(PATIENCE_S)
        eventually(lambda: running.status().checkpoints > 2, "checkpoints")
        assert scrapes.take(replicator_metrics(running))["strandline_replica_checkpoints_total"] > 2
        scrapes.check_changed("strandline_replica_checkpoints_total")
        running.wait_durable(PATIENCE_S)
        assert running.status().snapshots == 1
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_database_that_is_replaced_gets_a_snapshot(tmp_path: Path, store: ObjectStore) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
    with database(tmp_path / "other.db") as connection:
        fill(connection, 3, table="other")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with Replicator(path, store) as running:
        running.wait_durable(PATIENCE_S)
        for file in sorted(tmp_path.glob("a.db*")):  # the database first: it is looked for before it is opened again
            file.unlink()
        (tmp_path / "other.db").rename(path)
        eventually(lambda: running.status().snapshots == 2, "a second snapshot")
        running.wait_durable(PATIENCE_S)
    assert {row[0] for row in restored(store, tmp_path / "copy.db")} >= {"other"}


@pytest.mark.usefixtures("application")
def test_a_second_replicator_is_kept_out(tmp_path: Path, store: ObjectStore) -> None:
    with Replicator(tmp_path / "a.db", store), pytest.raises(Locked) as caught:
        Replicator(tmp_path / "a.db", store).start()
    assert "one replicator" in (caught.value.hint or "")
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)


@pytest.mark.parametrize(("body", "reason"), [(None, "no such file"), (b"x" * 5000, "not a SQLite database")])
def test_what_is_no_database_is_refused(tmp_path: Path, store: ObjectStore, body: bytes | None, reason: str) -> None:
    path = tmp_path / "none.db"
    if body is not None:
        path.write_bytes(body)
    with pytest.raises(DatabaseRefused, match=reason):
        Replicator(path, store).start()
    assert not list(Layout(store).all_files())
    assert path.exists() == (body is not None)


def test_a_commit_is_noticed_at_once(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "LOOK_EVERY_S", 3600.0)
    store = MemoryObjects()
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        for number in range(10):
            before = running.position.txid
            fill(application, 1, seed=number)
            eventually(partial(store.head, Layout(store).key(0, before + 1, before + 1)), "an upload without a look")


class Gated(MemoryObjects):
    """A store that takes so many uploads."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.left = threading.Condition(), 1 << 30

    def allow(self, uploads: int) -> None:
        """Let so many more through."""
        with self.open:
            self.left = uploads
            self.open.notify_all()

    def put(self, key: str, *arguments: object, **options: object) -> str:
        with self.open:
            assert self.open.wait_for(lambda: self.left > 0, PATIENCE_S)
            self.left -= 1
        return super().put(key, *arguments, **options)  # type: ignore[arg-type]


def test_a_waiter_is_not_answered_by_a_change_that_was_read_before_its_commit(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Gated()
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        sealed, asked = threading.Event(), threading.Event()
        checkpoint = Capture.checkpoint

        def checkpoint_with_commits(capture: Capture) -> bool:
            if sealed.is_set():
                return checkpoint(capture)
            application.execute("INSERT INTO t (body) VALUES ('before')")
            done = checkpoint(capture)
            application.execute("INSERT INTO t (body) VALUES ('after')")
            store.allow(1)
            sealed.set()
            assert asked.wait(PATIENCE_S)
            return done

        monkeypatch.setattr(Capture, "checkpoint", checkpoint_with_commits)
        running._checkpoint_at = 0  # noqa: SLF001
        assert sealed.wait(PATIENCE_S)
        threading.Timer(0.1, asked.set).start()
        with pytest.raises(Unavailable):
            running.wait_durable(0.6)
        store.allow(1 << 30)
        running.wait_durable(PATIENCE_S)
        assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_waiter_is_not_answered_by_a_part_of_a_long_log(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "CHUNK_BYTES", 8192)
    monkeypatch.setattr(capture, "_FIRST_BYTES", 8192)
    store = Gated()
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        store.allow(0)
        fill(application, 100, seed=1)
        store.allow(2)
        with pytest.raises(Unavailable):
            running.wait_durable(0.5)
        store.allow(1 << 30)
        running.wait_durable(PATIENCE_S)
        assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_database_that_is_busy_for_long_is_waited_for(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_MS", 50)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
        application.execute("BEGIN IMMEDIATE")
        running._snapshot_due = True  # noqa: SLF001
        eventually(lambda: "busy" in (running.status().error or ""), "a busy database in the status")
        application.execute("COMMIT")
        fill(application, 1, seed=1)
        running.wait_durable(PATIENCE_S)
        assert running.status().error is None
        assert restored(store, tmp_path / "copy.db") == content(tmp_path / "a.db")


def test_a_busy_database_at_the_start_is_said(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_MS", 50)
    application.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="busy") as caught:
        Replicator(tmp_path / "a.db", store).start()
    assert caught.value.hint
    application.execute("COMMIT")


def test_a_database_that_is_gone_for_a_while_is_waited_for(tmp_path: Path, store: ObjectStore) -> None:
    path = tmp_path / "a.db"
    with database(path) as connection:
        fill(connection, 5)
    with Replicator(path, store) as running:
        running.wait_durable(PATIENCE_S)
        for file in sorted(tmp_path.glob("a.db*")):
            file.unlink()
        eventually(lambda: "no such file" in (running.status().error or ""), "a missing file in the status")
        with pytest.raises(Unavailable):
            running.wait_durable(0.1)
        with database(path) as connection:
            fill(connection, 3, table="other")
        running.wait_durable(PATIENCE_S)
        assert restored(store, tmp_path / "copy.db") == content(path)


def test_a_log_that_cannot_begin_anew_is_not_checkpointed_all_the_time(
    tmp_path: Path, application: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "CHECKPOINT_BYTES", 50_000)
    reader = apsw.Connection(str(tmp_path / "a.db"))
    reader.execute("BEGIN")
    list(reader.execute("SELECT * FROM t"))
    with Replicator(tmp_path / "a.db", MemoryObjects()) as running:
        fill(application, 40, seed=1)
        before = running.wait_durable(PATIENCE_S).txid
        time.sleep(1.0)
        assert running.position.txid < before + 5, "each try writes a heartbeat, and each heartbeat is an upload"
    reader.close()


def test_the_end_of_a_replicator_is_raised_by_close(tmp_path: Path, application: apsw.Connection) -> None:
    class Broken(MemoryObjects):
        is_broken = False

        def put(self, key: str, *arguments: object, **options: object) -> str:
            if self.is_broken:
                raise RuntimeError("broken")
            return super().put(key, *arguments, **options)  # type: ignore[arg-type]

    store = Broken()
    running = Replicator(tmp_path / "a.db", store).start()
    running.wait_durable(PATIENCE_S)
    store.is_broken = True
    fill(application, 1, seed=1)
    eventually(lambda: running.failure is not None, "the end of the replicator")
    with pytest.raises(RuntimeError, match="broken"):
        running.close()


@pytest.mark.usefixtures("application")
def test_a_waiter_after_the_end_is_told_so(tmp_path: Path) -> None:
    running = Replicator(tmp_path / "a.db", MemoryObjects()).start()
    running.close()
    with pytest.raises(Closed):
        running.wait_durable(PATIENCE_S)


def test_a_local_store_is_what_is_meant(store: ObjectStore) -> None:
    assert isinstance(getattr(store, "_store", store), LocalObjects)


def test_the_replica_of_another_database_is_left_alone(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection
) -> None:
    fill(application, 1)
    with Replicator(tmp_path / "a.db", store) as running:
        running.wait_durable(PATIENCE_S)
    before = [(info.key, info.etag) for info in store.list()]
    with database(tmp_path / "other.db") as other:
        fill(other, 3)
        with pytest.raises(ReplicaForeign, match="another database") as caught:
            Replicator(tmp_path / "other.db", store).start()
    assert "a place of its own" in (caught.value.hint or "")
    assert [(info.key, info.etag) for info in store.list()] == before


def test_a_place_that_others_began_is_left_alone(tmp_path: Path, application: apsw.Connection) -> None:
    store = MemoryObjects()
    fill(application, 1)
    header = ltx.LtxHeader(4096, 1, 1, 1, 1)
    store.put(Layout(store).key(0, 1, 1), b"".join(ltx.encode(header, [(1, bytes(4096))])))
    with pytest.raises(ReplicaForeign, match="did not begin"):
        Replicator(tmp_path / "a.db", store).start()
    assert len(list(store.list())) == 1


def test_a_restored_database_goes_on_with_its_replica(
    tmp_path: Path, store: ObjectStore, application: apsw.Connection
) -> None:
    fill(application, 3)
    with Replicator(tmp_path / "a.db", store) as running:
        position = running.wait_durable(PATIENCE_S)
    restore(store, Layout(store), tmp_path / "moved.db")
    with database(tmp_path / "moved.db") as moved, Replicator(tmp_path / "moved.db", store) as running:
        moved.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(moved, 3, seed=9)
        assert running.wait_durable(PATIENCE_S).txid > position.txid
    assert restored(store, tmp_path / "copy.db") == content(tmp_path / "moved.db")


def test_identities_are_written_and_read() -> None:
    assert parse_lineage(format_lineage("ab" * 16), "x") == "ab" * 16
    for body in (b"", b"{}", b'{"format": 2}', b"[]"):
        with pytest.raises(FormatError):
            parse_lineage(body, "x")
