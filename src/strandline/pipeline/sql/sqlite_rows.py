"""Rows sent to SQLite one by one, by the thousand."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from strandline.pipeline.sql.database import AnyConnection

Row: TypeAlias = tuple[Any, ...]


def send(connection: AnyConnection, statement: str, rows: Sequence[Row], rest: Row) -> int:
    """Run a statement for each row and what all rows end with; return how many rows it inserted or changed."""
    before = connection.total_changes()
    connection.executemany(statement, (row + rest for row in rows))
    return int(connection.total_changes() - before)


def insert_or_merge(connection: AnyConnection, insert: str, merge: str, rows: Sequence[Row], rest: Row) -> int:
    """Insert rows, or merge them if some are there, and return how many were inserted or merged.

    SQLite looks for a row's place twice where it may have to update, and most batches are new: so it is told to insert
    first. Then merging all is the same as merging those that were there: a row merged with itself is itself.
    """
    inserted = send(connection, insert, rows, rest)
    return inserted if inserted == len(rows) else send(connection, merge, rows, rest)
