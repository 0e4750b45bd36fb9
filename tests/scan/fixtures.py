"""Fixtures of tests that scan: items that can be changed, and states on both databases."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.scan.things import READS, Things
from tests.scan.threaded_workers import made
from tests.servers_postgres import PostgresServer


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep compiled engines among the tests' own files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def things(tmp_path: Path) -> Things:
    """Items that can be changed; nothing was read yet."""
    READS.clear()
    return Things(tmp_path / "things.json")


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A state of its own, on SQLite."""
    return made(str(tmp_path / "pipeline.db"))


@pytest.fixture
def postgres_address(postgres_server: PostgresServer, postgres_schema: str) -> Iterator[str]:
    """A state of its own, on PostgreSQL."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {postgres_schema}")
    yield made(postgres_server.address(postgres_schema))
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {postgres_schema} WITH (FORCE)")
