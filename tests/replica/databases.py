"""SQLite databases to replicate, made by SQLite itself."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from strandline.replica.capture import TABLE
from tests.waiting import PATIENCE_S

PAGE_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


@contextmanager
def database(path: Path, page_size: int = 4096) -> Iterator[apsw.Connection]:
    """Open a database in WAL mode that checkpoints only when it is told to."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))  # a replicator beside it takes the lock too
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    try:
        yield connection
    finally:
        connection.close()


def fill(connection: apsw.Connection, rows: int, seed: int = 0, table: str = "t") -> None:
    """Commit rows, one by one."""
    chance = random.Random(seed)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY, body BLOB)")
    for _ in range(rows):
        connection.execute(f"INSERT INTO {table} (body) VALUES (?)", (chance.randbytes(chance.randint(1, 900)),))  # noqa: S608


def content(path: Path) -> list[tuple[object, ...]]:
    """Return every row of every table of an application, after checking that SQLite finds the database whole."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))
    try:
        assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")
        ]
        queries = {name: f'SELECT * FROM "{name}"' for name in names if name != TABLE}  # noqa: S608
        return [(name, *row) for name, query in queries.items() for row in connection.execute(query)]
    finally:
        connection.close()
