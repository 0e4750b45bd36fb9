"""Whether a database changed since an earlier look, by any process: cheap enough to ask every second.

Invariant: a token differs from an earlier one if something was committed in between; it may also differ without that.
"""

import time
from pathlib import Path

from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.stores import AnyDatabase

OBJECTS_EVERY_S = 30
"""A state in object storage is taken for changed so often: asking it costs requests."""
_HEAD_BYTES = 136
"""The header of SQLite's index of a write-ahead log, twice, and what checkpoints write behind it."""


def change_token(database: AnyDatabase) -> object:
    """Return the token of a database now.

    SQLite's is the head of its index of the write-ahead log, which every commit rewrites; PostgreSQL's is the id of the
    next transaction that writes.
    """
    if database.dialect == "objects":
        return int(time.time() // OBJECTS_EVERY_S)
    if database.dialect == "sqlite":
        return [_head(Path(database.describe() + suffix)) for suffix in ("", "-shm")]
    sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"

    def look(connection: AnyConnection) -> str:
        return str(connection.execute(sql).fetchone()[0])

    return database.read(look)


def _head(path: Path) -> tuple[int, int, bytes] | None:
    try:
        with path.open("rb") as file:
            found = path.stat()
            return found.st_mtime_ns, found.st_size, file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return None
