"""SQLite: transactions, threads and processes, and what its refusals are called."""

import multiprocessing
import os
import pickle
import signal
import threading
from pathlib import Path

import apsw
import pytest

from strandline.errors import (
    Closed,
    CommitFailed,
    Damaged,
    FormatError,
    InvalidInput,
    StorageRefused,
    StrandlineError,
    Unavailable,
)
from strandline.pipeline.sql import SqliteDatabase
from strandline.pipeline.sql.sqlite_errors import sqlite_commit_error, sqlite_error
from strandline.pipeline.sql.state import SqlState
from strandline.pipeline.state import Put
from tests.pipeline.rows import TENANT
from tests.pipeline.sql.stores import change, count

INSERT = "INSERT INTO scanner_state (tenant, key, value) VALUES (?, ?, ?)"


def test_writes_are_durable_as_promised(sqlite: SqliteDatabase) -> None:
    def settings(connection: apsw.Connection) -> list[object]:
        return [connection.pragma(name) for name in ("journal_mode", "synchronous", "foreign_keys")]

    assert sqlite.read(settings) == ["wal", 2, 1]


def test_an_error_undoes_the_transaction_and_the_connection_goes_on(sqlite: SqliteDatabase) -> None:
    def work(connection: apsw.Connection) -> None:
        connection.execute(INSERT, (TENANT, b"k", b"v"))
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError):
            sqlite.write(work)
    assert count(sqlite, "scanner_state") == 0


def test_a_read_sees_one_moment(sqlite: SqliteDatabase) -> None:
    def work(connection: apsw.Connection) -> list[object]:
        counted = [connection.execute("SELECT count(*) FROM scanner_state").get]
        writer = threading.Thread(target=change, args=(sqlite, INSERT, (TENANT, b"k", b"v")))
        writer.start()
        writer.join()
        return [*counted, connection.execute("SELECT count(*) FROM scanner_state").get]

    assert sqlite.read(work) == [0, 0]
    assert count(sqlite, "scanner_state") == 1


def test_a_read_changes_nothing(sqlite: SqliteDatabase) -> None:
    def work(connection: apsw.Connection) -> None:
        connection.execute(INSERT, (TENANT, b"k", b"v"))

    sqlite.read(work)
    assert count(sqlite, "scanner_state") == 0


def test_a_commit_that_the_disk_refuses_leaves_the_outcome_open(sqlite: SqliteDatabase) -> None:
    def fail() -> bool:
        raise apsw.IOError("disk I/O error")

    def work(connection: apsw.Connection) -> None:
        connection.execute(INSERT, (TENANT, b"k", b"v"))
        connection.set_commit_hook(fail)

    with pytest.raises(CommitFailed, match="commit failed"):
        sqlite.write(work)


def add_many(database: SqliteDatabase, name: int, rows: int) -> None:
    for row in range(rows):
        SqlState(database).apply_batch(TENANT, [Put(b"%d/%d" % (name, row), b"v")])


def test_threads_share_a_database(sqlite: SqliteDatabase) -> None:
    threads = [threading.Thread(target=add_many, args=(sqlite, name, 20)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(sqlite, "scanner_state") == 80


def test_processes_share_a_file_and_a_fork_opens_connections_of_its_own(sqlite: SqliteDatabase) -> None:
    add_many(sqlite, 9, 1)  # the parent has an idle connection, which the children must not use
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=add_many, args=(sqlite, name, 20)) for name in range(4)]
    for child in children:
        child.start()
    add_many(sqlite, 8, 20)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    assert count(sqlite, "scanner_state") == 101


def write_and_die(database: SqliteDatabase) -> None:
    def work(connection: apsw.Connection) -> None:
        connection.execute(INSERT, (TENANT, b"half", b"v"))
        os.kill(os.getpid(), signal.SIGKILL)

    add_many(database, 1, 1)
    database.write(work)


def test_what_a_killed_writer_committed_is_there_and_the_rest_is_not(sqlite: SqliteDatabase) -> None:
    child = multiprocessing.get_context("fork").Process(target=write_and_die, args=(sqlite,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert SqlState(sqlite).multi_get(TENANT, [b"1/0", b"half"]) == [b"v", None]


def test_a_writer_that_waits_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.db"
    with SqliteDatabase(path) as one, SqliteDatabase(path, busy_timeout_s=0.05) as other:
        one.migrate()

        def work(_: apsw.Connection) -> None:
            with pytest.raises(Unavailable, match="another writer holds it"):
                change(other, "DELETE FROM scanner_state")

        one.write(work)
        change(other, "DELETE FROM scanner_state")


def test_a_missing_file_is_refused_and_not_made(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "none.db") as database:
        assert database.history() == []
        with pytest.raises(StorageRefused, match="cannot be opened") as caught:
            count(database, "findings")
    assert "strandline pipeline init" in str(caught.value.hint)
    assert not (tmp_path / "none.db").exists()


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "none" / "x.db") as database, pytest.raises(StorageRefused, match="CANTOPEN"):
        database.migrate()


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"shopping list\n" * 500)
    with SqliteDatabase(path) as database, pytest.raises(FormatError, match="is not an SQLite database"):
        database.migrate()
    assert path.read_bytes() == b"shopping list\n" * 500


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    apsw.Connection(str(path)).execute("CREATE TABLE theirs (x)")
    with SqliteDatabase(path) as database, pytest.raises(FormatError, match="database of another program"):
        database.migrate()
    assert not apsw.Connection(str(path)).table_exists("main", "schema_migrations")


def test_damage_is_told(sqlite: SqliteDatabase, tmp_path: Path) -> None:
    add_many(sqlite, 1, 50)
    sqlite.close()
    path = tmp_path / "pipeline.db"
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with SqliteDatabase(path) as database, pytest.raises(Damaged, match="malformed"):
        database.history()


def test_a_closed_database_is_told_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "pipeline.db")
    database.migrate()
    database.close()
    database.close()
    with pytest.raises(Closed):
        count(database, "findings")
    assert not (tmp_path / "pipeline.db-wal").exists(), "the last to close leaves one file"


def test_a_row_that_breaks_a_rule_is_refused_without_its_bytes(sqlite: SqliteDatabase) -> None:
    with pytest.raises(InvalidInput, match="breaks a rule of its table") as caught:
        change(sqlite, INSERT, (b"short", b"hidden-key", b"v"))
    assert "hidden-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (apsw.FullError("x"), StorageRefused, "no space is left"),
        (apsw.ReadOnlyError("x"), StorageRefused, "read-only"),
        (apsw.PermissionsError("x"), StorageRefused, "denied"),
        (apsw.IOError("x"), StorageRefused, "failed"),
        (apsw.BusyError("x"), Unavailable, "another writer"),
        (apsw.CorruptError("x"), Damaged, "malformed"),
        (apsw.NoMemError("x"), Unavailable, "memory"),
        (apsw.SQLError("near x"), StrandlineError, "SQLite failed"),
    ],
)
def test_each_refusal_has_a_name(error: apsw.Error, kind: type[StrandlineError], words: str) -> None:
    typed = sqlite_error("file.db", error)
    assert type(typed) is kind
    assert words in str(typed)
    assert str(pickle.loads(pickle.dumps(typed))) == str(typed)  # noqa: S301 - our own bytes


def test_an_error_of_the_commit_itself_leaves_the_outcome_open() -> None:
    assert isinstance(sqlite_commit_error("file.db", apsw.IOError("disk")), CommitFailed)
    assert isinstance(sqlite_commit_error("file.db", apsw.FullError("full")), CommitFailed)
    assert type(sqlite_commit_error("file.db", apsw.BusyError("busy"))) is Unavailable


def test_a_full_disk_loses_nothing_that_was_acknowledged(sqlite: SqliteDatabase) -> None:
    add_many(sqlite, 1, 1)

    def limit(connection: apsw.Connection) -> None:
        connection.pragma("max_page_count", connection.pragma("page_count") + 2)
        connection.execute(INSERT, (TENANT, b"large", b"x" * 1_000_000))

    with pytest.raises(StorageRefused, match="no space is left"):
        sqlite.write(limit)
    assert count(sqlite, "scanner_state") == 1
