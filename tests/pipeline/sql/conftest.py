"""A migrated database of each dialect, with a clock that the test moves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.clock import ManualClock
from strandline.pipeline.sql import PostgresDatabase, SqliteDatabase
from tests.pipeline.sql.stores import AnyDatabase


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(tmp_path / "pipeline.db", clock=ManualClock()) as database:
        database.migrate()
        yield database


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresDatabase]:
    server, schema = request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_schema")
    with PostgresDatabase(server.dsn, schema=schema, clock=ManualClock()) as database:
        database.migrate()
        yield database


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> AnyDatabase:
    found: AnyDatabase = request.getfixturevalue(request.param)
    return found
