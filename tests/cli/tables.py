"""The rows of a SQLite file, read and changed behind our back."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}  # noqa: S608


def make_newer(path: Path) -> None:
    """Say that a later version of Strandline has been here."""
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(schema_migrations)")]
        row = connection.execute("SELECT * FROM schema_migrations ORDER BY version DESC LIMIT 1").fetchone()
        later = [cell + 1 if name == "version" else cell for name, cell in zip(columns, row, strict=True)]
        marks = ", ".join("?" * len(columns))
        connection.execute(f"INSERT INTO schema_migrations VALUES ({marks})", later)  # noqa: S608
        connection.commit()
