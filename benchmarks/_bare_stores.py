"""Keys and values without a fold around them, in RocksDB and in SQLite as people use them: what a store is beside.

A record is the version and the value. A batch and its cursor are one write that is synced, as in a fold's store. SQLite
has a write-ahead log and `synchronous=FULL`; RocksDB has the settings that it comes with.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

CURSOR = b"\xffcursor"
"""After every key of the benchmarks."""


class BareStore(Protocol):
    """What the benchmark does with a store."""

    def write(self, keys: Sequence[bytes], records: Sequence[bytes], cursor: bytes) -> None:
        """Store a batch and its cursor, synced."""
        ...

    def settle(self) -> None:
        """Bring everything to where reads are quick."""
        ...

    def cursor(self) -> bytes | None:
        """Return the cursor that is stored."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return a record."""
        ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a record for each key."""
        ...

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the keys that begin so, and their records, in order."""
        ...

    def count(self) -> int:
        """Return how many keys there are, by going through them."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class BareRocksDb:
    """RocksDB."""

    def __init__(self, path: Path) -> None:
        self._db = Rdict(str(path), Options(raw_mode=True))
        self._synced = WriteOptions()
        self._synced.sync = True

    def write(self, keys: Sequence[bytes], records: Sequence[bytes], cursor: bytes) -> None:
        """Store a batch and its cursor as one `WriteBatch`."""
        batch = WriteBatch(raw_mode=True)
        for key, record in zip(keys, records, strict=True):
            batch.put(key, record)
        batch.put(CURSOR, cursor)
        self._db.write(batch, self._synced)

    def settle(self) -> None:
        """Flush and compact."""
        self._db.flush()
        self._db.compact_range(None, None)

    def cursor(self) -> bytes | None:
        """Return the cursor that is stored."""
        return self.get(CURSOR)

    def get(self, key: bytes) -> bytes | None:
        """Return a record."""
        found: bytes | None = self._db.get(key)
        return found

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a record for each key."""
        asked: list[str | int | float | bytes | bool] = [*keys]
        return self._db.get(asked) or []

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the keys that begin so, and their records, in order."""
        return [*self._rows(prefix)]

    def count(self) -> int:
        """Return how many keys there are, by going through them."""
        return sum(key != CURSOR for key, _ in self._rows(b""))

    def close(self) -> None:
        """Close it."""
        self._db.close()

    def _rows(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows: Iterable[tuple[bytes, bytes]] = self._db.items(from_key=prefix)  # type: ignore[assignment]  # raw mode
        for key, record in rows:
            if not key.startswith(prefix):
                return
            yield key, record


class BareSqlite:
    """SQLite."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY NOT NULL, record BLOB NOT NULL) WITHOUT ROWID"
        )

    def write(self, keys: Sequence[bytes], records: Sequence[bytes], cursor: bytes) -> None:
        """Store a batch and its cursor in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        put = "INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET record = excluded.record"
        self._db.executemany(put, zip(keys, records, strict=True))
        self._db.execute(put, (CURSOR, cursor))
        self._db.execute("COMMIT")

    def settle(self) -> None:
        """Bring the write-ahead log into the file."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def cursor(self) -> bytes | None:
        """Return the cursor that is stored."""
        return self.get(CURSOR)

    def get(self, key: bytes) -> bytes | None:
        """Return a record."""
        found = self._db.execute("SELECT record FROM entries WHERE key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a record for each key."""
        marks = ",".join("?" * len(keys))
        rows = self._db.execute(f"SELECT key, record FROM entries WHERE key IN ({marks})", keys)  # noqa: S608 - ours
        found: dict[bytes, bytes] = dict(rows)
        return [found.get(key) for key in keys]

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the keys that begin so, and their records, in order."""
        question = "SELECT key, record FROM entries WHERE key >= ? AND key < ? ORDER BY key"
        return self._db.execute(question, (prefix, prefix[:-1] + bytes([prefix[-1] + 1]))).fetchall()

    def count(self) -> int:
        """Return how many keys there are, by going through them."""
        found = self._db.execute("SELECT count(*) FROM entries WHERE key != ?", (CURSOR,)).fetchone()
        return int(found[0])

    def close(self) -> None:
        """Close it."""
        self._db.close()
