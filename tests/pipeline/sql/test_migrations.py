"""Migrations are applied once, in order, whole, by one of many processes; other histories are refused."""

import multiprocessing
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.pipeline.sql import PostgresDatabase, SqliteDatabase, load_migrations
from strandline.pipeline.sql.migrations import (
    Applied,
    format_migration_file,
    make_migration,
    migrate,
    parse_migration_file,
    pending_migrations,
    schema_status,
)
from tests.pipeline.sql.stores import AnyDatabase, change, count
from tests.waiting import PATIENCE_S

TWO = [
    make_migration(1, "one", "CREATE TABLE one (x INTEGER)"),
    make_migration(2, "two", "CREATE TABLE two (x INTEGER)"),
]
HISTORY = [Applied(m.version, m.name, m.checksum, 0) for m in TWO]


@pytest.fixture
def fresh_sqlite(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "fresh.db")


@pytest.fixture
def fresh_postgres(request: pytest.FixtureRequest) -> PostgresDatabase:
    server, schema = request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_schema")
    return PostgresDatabase(server.dsn, schema=schema)


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest) -> Iterator[AnyDatabase]:
    made: AnyDatabase = request.getfixturevalue(f"fresh_{request.param}")
    with made:
        yield made


def test_file_names_round_trip_and_others_are_refused() -> None:
    assert parse_migration_file(format_migration_file(12, "more_columns")) == (12, "more_columns")
    with pytest.raises(FormatError, match="not named as a migration"):
        parse_migration_file("12_More.sql")


def test_both_dialects_have_the_same_versions_with_the_same_tables() -> None:
    sqlite, postgres = load_migrations("sqlite"), load_migrations("postgres")
    assert [(m.version, m.name) for m in sqlite] == [(m.version, m.name) for m in postgres]
    made_by_sqlite, made_by_postgres = (
        {table for migration in found for table in re.findall(r"CREATE TABLE (\w+)", migration.sql)}
        for found in (sqlite, postgres)
    )
    assert made_by_sqlite - {"ledger_scopes"} == made_by_postgres


def test_both_dialects_have_the_same_statements() -> None:
    folder = files("strandline.pipeline.sql")
    nouns = [{file.name for file in (folder / dialect).iterdir()} for dialect in ("sqlite", "postgres")]
    assert nouns[0] == nouns[1]


def test_a_fresh_database_is_migrated_once(fresh: AnyDatabase) -> None:
    known = load_migrations(fresh.dialect)
    assert fresh.status().pending == known
    assert fresh.status().applied == []
    assert fresh.migrate() == known
    assert fresh.migrate() == []
    status = fresh.status()
    assert status.pending == []
    assert [(row.version, row.checksum) for row in status.applied] == [(m.version, m.checksum) for m in known]


def test_a_later_migration_is_added_to_what_is_there(fresh: AnyDatabase) -> None:
    migrate(fresh, TWO[:1])
    assert schema_status(fresh, TWO).pending == TWO[1:]
    assert migrate(fresh, TWO) == TWO[1:]
    assert count(fresh, "two") == 0


def test_an_edited_migration_is_refused(fresh: AnyDatabase) -> None:
    migrate(fresh, TWO)
    edited = [make_migration(1, "one", TWO[0].sql + " "), TWO[1]]
    for refused in (migrate, schema_status):
        with pytest.raises(FormatError, match="version 1 was applied as 'one' with other content"):
            refused(fresh, edited)


def test_a_database_of_a_later_version_is_refused(fresh: AnyDatabase) -> None:
    migrate(fresh, TWO)
    with pytest.raises(FormatError, match="has schema version 2, and this version knows 1") as caught:
        migrate(fresh, TWO[:1])
    assert caught.value.hint == "use the version of Strandline that made it, or a later one"


def test_a_history_with_a_hole_is_damage() -> None:
    with pytest.raises(Damaged, match="no version 1"):
        pending_migrations(TWO, HISTORY[1:], "here")


def test_what_fails_half_way_leaves_nothing(fresh: AnyDatabase) -> None:
    broken = make_migration(2, "two", "CREATE TABLE two (x INTEGER); CREATE TABLE one (x INTEGER)")
    with pytest.raises(StrandlineError):
        migrate(fresh, [TWO[0], broken])
    assert fresh.history() == []
    assert migrate(fresh, TWO) == TWO


def test_a_database_without_tables_says_what_to_do(fresh: AnyDatabase) -> None:
    migrate(fresh, [])
    fresh.migrating(lambda _: None)
    with pytest.raises(FormatError, match="tables are missing or old") as caught:
        change(fresh, "DELETE FROM ledger_entries")
    assert caught.value.hint == "run `strandline pipeline migrate`"


def migrate_at_once(
    make: Callable[[], AnyDatabase], barrier: "multiprocessing.synchronize.Barrier", results: object
) -> None:
    barrier.wait()
    with make() as database:
        results.put(len(database.migrate()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_many_processes_may_migrate_at_once(request: pytest.FixtureRequest, dialect: str) -> None:
    fresh: AnyDatabase = request.getfixturevalue(f"fresh_{dialect}")
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(6), context.Queue()
    children = [context.Process(target=migrate_at_once, args=(lambda: fresh, barrier, results)) for _ in range(6)]
    for child in children:
        child.start()
    applied = sorted(results.get(timeout=PATIENCE_S) for _ in children)
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 6
    assert applied == [0] * 5 + [len(load_migrations(fresh.dialect))]
    assert fresh.status().pending == []
    fresh.close()
