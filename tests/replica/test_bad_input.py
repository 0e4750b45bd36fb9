"""Bad input, as a table: each is a typed error with a hint, and nothing is overwritten, here or in the store."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from strandline.errors import Damaged, Locked, StrandlineError, Unavailable
from strandline.objects import (
    ConditionsIgnored,
    LocalObjects,
    MemoryObjects,
    ObjectStore,
    StoreRefused,
    open_objects,
    probe_conditions,
)
from strandline.objects.contracts import Buffer
from strandline.replica import (
    DatabaseRefused,
    Follower,
    Layout,
    LtxDamaged,
    ReplicaForeign,
    Replicator,
    capture,
    restore,
)
from strandline.replica.layout import LtxFile
from tests.replica.databases import database, fill
from tests.servers_seaweed import BUCKET, SeaweedServer
from tests.waiting import PATIENCE_S

Action = Callable[[], object]


class Place:
    """A database, its replica and what else a case needs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.database = folder / "a.db"
        self.store: ObjectStore = LocalObjects(folder / "replica")
        with database(self.database) as connection:
            connection.set_busy_timeout(int(PATIENCE_S * 1000))
            fill(connection, 20)
            with Replicator(self.database, self.store) as running:
                for seed in range(3):
                    fill(connection, 2, seed=seed)
                    running.wait_durable(PATIENCE_S)

    def last(self) -> tuple[LtxFile, Path]:
        """Return the last file of the replica, and where it is."""
        file = list(Layout(self.store).files(0))[-1]
        return file, self.folder / "replica" / file.key

    def seen(self) -> dict[str, bytes]:
        """Return everything that must stay as it is."""
        return {
            str(path): path.read_bytes()
            for root in (self.folder / "replica", self.folder / "given")
            for path in sorted(root.rglob("*"))
            if path.is_file() and ".strandline" not in path.parts and path.suffix != ".lock"
        }


def a_file(place: Path, body: bytes) -> Path:
    """Return a file of the user's, which must stay as it is."""
    given = place / "given" / "x.db"
    given.parent.mkdir(exist_ok=True)
    given.write_bytes(body)
    return given


def not_sqlite(place: Place) -> Action:
    """Give a text for a database."""
    return Replicator(a_file(place.folder, b"not a database " * 500), place.store).start


def not_there(place: Place) -> Action:
    """Give a path where nothing is."""
    return Replicator(place.folder / "given.db", place.store).start


def a_folder(place: Place) -> Action:
    """Give a folder."""
    return Replicator(place.folder, place.store).start


def not_wal(place: Place) -> Action:
    """Give a database with a rollback journal."""
    path = place.folder / "given" / "x.db"
    path.parent.mkdir()
    connection = apsw.Connection(str(path))
    fill(connection, 3)
    connection.close()
    return Replicator(path, place.store).start


def damaged(place: Place) -> Action:
    """Give a database whose pages were overwritten."""
    path = a_file(place.folder, b"SQLite format 3\0" + os.urandom(8176))
    return Replicator(path, place.store).start


def second_library(place: Place) -> Action:
    """Have the database open with Python's own SQLite, in the process of the replicator."""
    connection = place.stack.enter_context(closing(sqlite3.connect(place.database)))
    connection.execute("SELECT count(*) FROM t").fetchall()
    return Replicator(place.database, place.store).start


def second_replicator(place: Place) -> Action:
    """Start two for one database."""
    place.stack.enter_context(Replicator(place.database, place.store)).wait_durable(PATIENCE_S)
    return Replicator(place.database, MemoryObjects()).start


def foreign_prefix(place: Place) -> Action:
    """Ship another database to the place."""
    with database(place.folder / "b.db") as connection:
        fill(connection, 3)
    return Replicator(place.folder / "b.db", place.store).start


def begun_by_others(place: Place) -> Action:
    """Ship to a place that holds files and does not say whose."""
    place.store.delete("strandline.json")
    (place.folder / ".a.db-strandline").unlink()
    return Replicator(place.database, place.store).start


def truncated(place: Place) -> Action:
    """Restore from a file that was cut off."""
    file, path = place.last()
    os.truncate(path, file.size // 2)
    return partial(restore, place.store, Layout(place.store), place.folder / "out.db")


def altered(place: Place) -> Action:
    """Restore from a file with a changed byte."""
    _, path = place.last()
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 0x40
    path.write_bytes(body)
    return partial(restore, place.store, Layout(place.store), place.folder / "out.db")


def followed_altered(place: Place) -> Action:
    """Follow a replica with a changed byte in its last file."""
    _, path = place.last()
    body = bytearray(path.read_bytes())
    body[150] ^= 1
    path.write_bytes(body)
    return Follower(place.store, place.folder / "out.db").catch_up


def misnamed(place: Place) -> Action:
    """Restore from a file that has the name of another transaction."""
    file, path = place.last()
    shutil.copy(path, path.with_name(Layout(place.store).key(0, file.max_txid + 1, file.max_txid + 1)[-37:]))
    return partial(restore, place.store, Layout(place.store), place.folder / "out.db")


def without_conditions(place: Place) -> Action:
    """Use a store that writes whatever the condition."""

    class Ignoring(LocalObjects):
        def put(self, key: str, body: Buffer, **_: object) -> str:
            return super().put(key, body)

    return partial(probe_conditions, Ignoring(place.folder / "ignoring"))


def over_a_file(place: Place) -> Action:
    """Restore over an existing file."""
    return partial(restore, place.store, Layout(place.store), a_file(place.folder, b"precious"))


CASES: list[tuple[Callable[[Place], Action], type[StrandlineError], str, str]] = [
    (not_sqlite, DatabaseRefused, "not a SQLite database", "give the path"),
    (not_there, DatabaseRefused, "no such file", "give the path"),
    (a_folder, DatabaseRefused, "not a file", "give the path"),
    (not_wal, DatabaseRefused, "journal mode is delete", "PRAGMA journal_mode = wal"),
    (damaged, Damaged, "x.db", "restore from the replica"),
    (second_library, DatabaseRefused, "two SQLite libraries", "open it with apsw"),
    (second_replicator, Locked, "a.db", "one replicator"),
    (foreign_prefix, ReplicaForeign, "another database", "a place of its own"),
    (begun_by_others, ReplicaForeign, "did not begin", "a place of its own"),
    (truncated, LtxDamaged, "ltx", "restore to a transaction before it"),
    (altered, LtxDamaged, "ltx", "restore to a transaction before it"),
    (followed_altered, LtxDamaged, "ltx", "restore to a transaction before it"),
    (misnamed, LtxDamaged, "holds transactions", "restore to a transaction before it"),
    (without_conditions, ConditionsIgnored, "conditional writes", "use a store that does"),
    (over_a_file, Unavailable, "there is a file already", "restore beside it"),
]


@pytest.mark.parametrize(("case", "error", "said", "hint"), CASES, ids=[case[0].__name__ for case in CASES])
def test_bad_input_is_told_and_changes_nothing(
    tmp_path: Path, case: Callable[[Place], Action], error: type[StrandlineError], said: str, hint: str
) -> None:
    with ExitStack() as stack:
        place = Place(tmp_path, stack)
        action = case(place)
        before = place.seen()
        assert before
        with pytest.raises(error) as caught:
            action()
        assert said in str(caught.value)
        assert hint in (caught.value.hint or "")
        assert place.seen() == before
        assert not (tmp_path / "out.db").exists()


def test_a_read_only_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)

    def read_only(path: Path) -> apsw.Connection:
        return apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)

    monkeypatch.setattr(capture, "connect", read_only)
    with pytest.raises(DatabaseRefused, match=r"cannot (be written|use it)") as caught:
        Replicator(tmp_path / "a.db", MemoryObjects()).start()
    assert "rights" in (caught.value.hint or "") or "right to write" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("address", "changed", "said"),
    [
        (f"s3://{BUCKET}/x", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "403"),
        (f"s3://{BUCKET}/x", {"AWS_ACCESS_KEY_ID": "nobody"}, "403"),
    ],
    ids=["wrong secret", "unknown key"],
)
def test_a_store_that_refuses_is_told(
    seaweed_server: SeaweedServer, address: str, changed: dict[str, str], said: str
) -> None:
    with pytest.raises(StoreRefused, match=said) as caught:
        open_objects(address, conditional=True, environ={**seaweed_server.environ, **changed})
    assert caught.value.hint
    assert "wrong" not in str(caught.value)


def test_a_bucket_that_does_not_exist_is_told(seaweed_server: SeaweedServer, tmp_path: Path) -> None:
    store = open_objects("s3://strandline-no-such-bucket/x", environ=seaweed_server.environ)
    with pytest.raises(StoreRefused, match="bucket does not exist") as caught:
        restore(store, Layout(store), tmp_path / "out.db")
    assert caught.value.hint
    store.close()
