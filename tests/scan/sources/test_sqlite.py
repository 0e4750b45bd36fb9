"""SQLite files are scanned cell by cell: the log counts, nothing is written, and hostile files are a problem."""

import errno
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.objects import LocalObjects
from strandline.replica import Replicator
from strandline.scan.sources import InputMissing, InputRefused, InputUnusable, ItemProblem, Problem, SqliteSource
from strandline.scan.sources import sqlite_file as sqlite_module
from strandline.scan.sources.sqlite import format_locator, parse_locator
from strandline.scan.sources.sqlite_file import BLOCK_ROWS, Block
from tests.scan.sources.helpers import left_out, listed, locators, problems
from tests.scan.threaded_workers import ThreadWorkers, made, request_for, scanned


def fill(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def places(source: SqliteSource, address: str) -> list[str]:
    outcome = scanned(request_for(address, source), ThreadWorkers(1))
    return sorted(one.observation.location_display or "" for one in outcome.findings)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "files" / "app.data"
    path.parent.mkdir()
    fill(
        path,
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, token BLOB)",
        "INSERT INTO users VALUES (41, 'none', NULL), (42, 'alpha_100', x'0a616c7068615f313031')",
        "CREATE TABLE codes (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        "INSERT INTO codes VALUES ('a', 'beta_100')",
        "CREATE TABLE empty (x)",
        'CREATE TABLE "odd ""name" (x); ',
        'INSERT INTO "odd ""name" VALUES (\'beta_101\')',
        "CREATE VIEW look AS SELECT 'alpha_999' AS x",
    )
    return path


def test_rows_and_columns_are_places(database: Path, tmp_path: Path) -> None:
    (database.parent / "notes.txt").write_text("alpha_555")
    source = SqliteSource.at(f"sqlite:{database.parent}")
    assert places(source, made(str(tmp_path / "state.db"))) == [
        "app.data/codes#0/value:1:1",
        'app.data/odd "name#1/x:1:1',
        "app.data/users#42/name:1:1",
        "app.data/users#42/token:2:1",
    ]
    assert left_out(source) == {"not sqlite": 1}


def test_rows_of_a_table_with_a_column_named_rowid_are_all_scanned(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    fill(
        path,
        "CREATE TABLE one (rowid INTEGER, v)",
        "INSERT INTO one VALUES (1, 'none'), (NULL, 'alpha_100')",
        "CREATE TABLE two (RowId, v)",
        "INSERT INTO two VALUES (1, 'none'), ('x', 'alpha_101')",
        "CREATE TABLE all_three (rowid, _rowid_, oid)",
        "INSERT INTO all_three VALUES (NULL, NULL, 'alpha_102'), (1, 'alpha_103', 1)",
    )
    found = places(SqliteSource.at(f"sqlite:{path}"), made(str(tmp_path / "state.db")))
    names = ["app.db/all_three#0/oid:1:1", "app.db/all_three#1/_rowid_:1:1", "app.db/one#2/v:1:1", "app.db/two#2/v:1:1"]
    assert found == names


def test_a_file_that_cannot_be_read_is_a_problem_and_not_another_kind(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = database.parent / "denied.db"
    shutil.copyfile(database, denied)
    opened = os.open

    def refusing(path: str | bytes, *more: int) -> int:
        if os.fsencode(path) == os.fsencode(denied):
            raise PermissionError(errno.EACCES, "denied")
        return opened(path, *more)

    source = SqliteSource.at(f"sqlite:{database.parent}")
    monkeypatch.setattr(os, "open", refusing)
    assert list(problems(source).values()) == [Problem.PERMISSION_DENIED]
    assert len(listed(source)) > 1
    with pytest.raises(InputRefused, match="PERMISSION_DENIED"):
        SqliteSource.at(f"sqlite:{denied}")


def test_a_login_in_the_address_of_a_replica_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        SqliteSource.at("replica:s3://ada:secret-word@bucket/x")
    assert "secret-word" not in str(refused.value)


def test_a_table_that_grew_is_scanned_where_it_grew(database: Path, tmp_path: Path) -> None:
    rows = ", ".join(f"({number}, 'alpha_{number}')" for number in range(1, 2 * BLOCK_ROWS, 500))
    fill(database, "CREATE TABLE events (id INTEGER PRIMARY KEY, text)", f"INSERT INTO events VALUES {rows}")  # noqa: S608 - ours
    address, source = made(str(tmp_path / "state.db")), SqliteSource.at(f"sqlite:{database}")
    blocks = [block.number for _, block in map(parse_locator, locators(source)) if block.table == "events"]
    assert blocks == [0, 1]
    places(source, address)
    fill(database, f"INSERT INTO events VALUES ({2 * BLOCK_ROWS + 5}, 'beta_500')")  # noqa: S608 - ours
    outcome = scanned(request_for(address, source), ThreadWorkers(1))
    assert outcome.new_items == 1


def test_transactions_in_the_log_are_seen_and_nothing_is_written(database: Path, tmp_path: Path) -> None:
    source = SqliteSource.at(f"sqlite:{database}")
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("INSERT INTO users VALUES (50, 'alpha_200', NULL)")
        live = sorted(path.name for path in database.parent.iterdir())
        assert "app.data/users#50/name:1:1" in places(source, made(str(tmp_path / "live.db")))
        assert sorted(path.name for path in database.parent.iterdir()) == live
        other = tmp_path / "copied"
        other.mkdir()
        for name in ("app.data", "app.data-wal"):  # as a crash or a backup leaves them: no index beside the log
            shutil.copyfile(database.parent / name, other / name)
    copied = SqliteSource.at(f"sqlite:{other}")
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    assert "app.data/users#50/name:1:1" in places(copied, made(str(tmp_path / "copied.db")))
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before


def test_the_log_alone_changes_what_vouches_for_a_version(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO users VALUES (60, 'x', NULL)")
        before = sqlite_module.combined_stat(str(database))
        writer.execute("INSERT INTO users VALUES (61, 'y', NULL)")
        assert sqlite_module.combined_stat(str(database)) != before


def test_what_is_not_sqlite_is_an_error_and_what_is_broken_a_problem(database: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputUnusable, match="not SQLite"):
        SqliteSource.at(f"sqlite:{tmp_path / 'text'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputUnusable, match="no SQLite file"):
        listed(SqliteSource.at(f"sqlite:{tmp_path / 'empty'}"))
    whole = database.read_bytes()
    database.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    assert set(problems(SqliteSource.at(f"sqlite:{database}")).values()) == {Problem.BROKEN_TABLE}


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE t (x, y AS (load_extension(x)))",
        "CREATE TABLE t (x, y AS (randomblob(900000000)))",
    ],
)
def test_a_schema_runs_no_function(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.db"
    fill(path, "CREATE TABLE t (x, y TEXT)", "INSERT INTO t (x) VALUES ('alpha_100')")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ?", (schema,))
    source = SqliteSource.at(f"sqlite:{path}")
    codes = set(problems(source).values())
    with source.open() as reader:
        for locator in locators(source):
            try:
                list(reader.read(locator, None).parts)
            except ItemProblem as problem:
                codes.add(problem.code)
    assert codes == {Problem.BROKEN_TABLE}


def test_work_and_values_are_bounded(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SqliteSource.at(f"sqlite:{database}", size_max=5)
    with source.open() as reader, pytest.raises(ItemProblem) as refused:
        reader.read(format_locator(b"app.data", Block("users", 0)), None)
    assert refused.value.code is Problem.BROKEN_TABLE
    monkeypatch.setattr(sqlite_module, "STEPS_MAX", -1)
    monkeypatch.setattr(sqlite_module, "_STEPS_AT_ONCE", 1)
    assert set(problems(SqliteSource.at(f"sqlite:{database}")).values()) == {Problem.BROKEN_TABLE}


def test_a_replica_is_scanned_as_its_database(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "app.db"))) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE users (name TEXT)")
        with Replicator(tmp_path / "app.db", LocalObjects(tmp_path / "the replica")) as running:
            connection.execute("INSERT INTO users VALUES ('alpha_100')")
            running.wait_durable()
    source = SqliteSource.at(f"replica:{(tmp_path / 'the replica').as_uri()}")
    address = made(str(tmp_path / "state.db"))
    assert places(source, address) == ["restored.db/users#1/name:1:1"]
    assert scanned(request_for(address, source), ThreadWorkers(1)).new_items == 0
    with pytest.raises(InputMissing):
        listed(SqliteSource.at(f"replica:file://{tmp_path / 'nothing'}"))
    assert not (tmp_path / "nothing").exists()


@given(
    st.binary(min_size=1).map(lambda path: path.replace(b"\0", b"")),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.none() | st.integers(-(2**62), 2**62),
)
def test_locators_are_read_back(path: bytes, table: str, number: int | None) -> None:
    assert parse_locator(format_locator(path, Block(table, number))) == (path, Block(table, number))
