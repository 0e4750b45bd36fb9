"""Fixtures of tests that scan: items that can be changed, and states on both databases."""

from pathlib import Path

import pytest

from tests.scan.things import READS, Things
from tests.scan.threaded_workers import made


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
def postgres_address(postgres_state: str) -> str:
    """A state of its own, on PostgreSQL."""
    return made(postgres_state)
