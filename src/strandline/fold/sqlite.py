"""A fold in one SQLite file: larger than memory, and nothing but SQLite is needed to read it.

Invariants: a batch and its cursor are one transaction of the write-ahead log, `synchronous=FULL` if the store is
`SYNCED`; every question is one read transaction; one process writes, which the lock beside the file sees to, and any
number may read. It must stand on a local file system.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from strandline.errors import Closed, CommitFailed, Damaged, FormatError, Poisoned, StorageRefused, StrandlineError
from strandline.extras import needs
from strandline.files import Lock, OsDisk, storage_errors
from strandline.fold.batches import FoldBatch, Pages, PutColumns, check_cursor, paged, records_of
from strandline.fold.digests import digest_columns
from strandline.fold.paths import COPY_NAME, LOCK_SUFFIX, existing
from strandline.fold.records import FoldEntry, make_entry, prefix_end
from strandline.fold.store import PAGE_ROWS, Held, StoreFiles, Verified
from strandline.journal import SYNCED, Durability
from strandline.kv import NO_CURSOR, WatchCursor

with needs("sqlite"):
    import apsw

APPLICATION_ID = 0x53545246  # "STRF", in the header of the file
SCHEMA_VERSION = 2
"""Version 1 has the same tables, and no deadlines in its records."""
_CACHE_KIB = 128 * 1024
_CHECKPOINT_PAGES = 16 * 1024
_BUSY_MS = 60_000
_KEYS_PER_QUESTION = 10_000
_PAGES_PER_STEP = 4096

_SCHEMA = """
CREATE TABLE entries (key BLOB PRIMARY KEY NOT NULL, record BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""
_PUT = "INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET record = excluded.record"
_ADD = "INSERT INTO entries VALUES (?, ?)"
_DELETE = "DELETE FROM entries WHERE key = ?"
_SET_CURSOR = "INSERT INTO meta VALUES ('cursor', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_CURSOR = "SELECT value FROM meta WHERE name = 'cursor'"
_HAS_DATA = "SELECT EXISTS (SELECT 1 FROM entries)"
_GET = "SELECT record FROM entries WHERE key = ?"
_GET_MANY = "SELECT key, record FROM entries WHERE key IN carray(?)"
_FROM = "SELECT key, record FROM entries WHERE key >= ? ORDER BY key"
_BETWEEN = "SELECT key, record FROM entries WHERE key >= ? AND key < ? ORDER BY key"


class SqliteReader:
    """A `FoldReader` of an SQLite file, which another process may keep current; opened with `open_read_only`.

    Each question sees the moment at which it is asked.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._idle: list[apsw.Connection] = []
        self._is_closed = False

    @staticmethod
    def open_read_only(path: Path | str) -> "SqliteReader":
        """Open the fold at `path` without its lock; `StorageRefused` if there is none."""
        reader = SqliteReader(existing(path))
        with reader._reading() as connection:
            if not reader._check_name(connection):
                raise FormatError(reader._path, "is an empty database", hint="give the path of a fold")
        return reader

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        with self._reading() as connection:
            held = Held(_cursor(connection), has_data=bool(connection.execute(_HAS_DATA).get))
        return held if held.has_data or held.cursor else None

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        with self._reading() as connection:
            record = connection.execute(_GET, (key,)).get
        return None if record is None else self._entry(key, record)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        found: dict[bytes, bytes] = {}
        with self._reading() as connection:
            for first in range(0, len(keys), _KEYS_PER_QUESTION):
                asked = apsw.carray(tuple(keys[first : first + _KEYS_PER_QUESTION]))
                rows: Any = connection.execute(_GET_MANY, (asked,))
                found.update(rows)
        return [self._entry(key, found[key]) if key in found else None for key in keys]

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        with self._reading() as connection:
            return [self._entry(key, record) for key, record in _rows(connection, prefix)]

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        count = 0
        with self._reading() as connection:
            for key, record in _rows(connection, prefix):
                visit(self._entry(key, record))
                count += 1
        return count

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range as columns, and the cursor of the same moment."""
        found = self._pages(prefix, rows_max)
        cursor = next(found)
        return Pages(cursor, found)

    def cursor(self) -> WatchCursor:
        """Return the cursor of the last batch, or `NO_CURSOR`."""
        with self._reading() as connection:
            return _cursor(connection)

    def verify(self) -> Verified:
        """Let SQLite check every page, then read everything."""
        with self._reading() as connection:
            found = connection.execute("PRAGMA integrity_check(1)").get
            if found != "ok":
                raise self._damaged(f"SQLite's own check says: {found}")
            return Verified(_cursor(connection), *digest_columns(self._columns(_rows(connection, b""))))

    def close(self) -> None:
        """Close the connections; twice is harmless."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close(force=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pages(self, prefix: bytes, rows_max: int) -> Generator[Any]:
        """Yield the cursor, then the columns; begun at once, so that closing it ends the transaction."""
        with self._reading() as connection:
            yield _cursor(connection)
            yield from self._columns(_rows(connection, prefix), rows_max)

    def _connect(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(self._path, flags=flags)
        connection.set_busy_timeout(_BUSY_MS)
        connection.pragma("cache_size", -_CACHE_KIB)
        return connection

    def _check_name(self, connection: apsw.Connection) -> int:
        """Refuse another program's database and a later version; return the version, 0 for a new file."""
        if connection.pragma("application_id") != APPLICATION_ID:
            if connection.execute("SELECT count(*) FROM sqlite_schema").get:
                raise FormatError(self._path, "is a database of another program", hint="give a path of its own")
            return 0
        version = connection.pragma("user_version")
        if version > SCHEMA_VERSION:
            raise FormatError(self._path, f"is a fold of version {version}; this is version {SCHEMA_VERSION}")
        return int(version)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        """Lend a connection that sees one moment."""
        if self._is_closed:
            raise Closed(self._path)
        with self._errors():
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._connect(apsw.SQLITE_OPEN_READONLY)
            try:
                connection.execute("BEGIN")
                yield connection
            except BaseException:
                connection.close(force=True)
                raise
            connection.execute("COMMIT")
            self._take_back(connection)

    def _take_back(self, connection: apsw.Connection) -> None:
        if self._is_closed:
            connection.close(force=True)
        else:
            self._idle.append(connection)

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _errors_at(self._path)

    def _entry(self, key: bytes, record: bytes) -> FoldEntry:
        try:
            return make_entry(key, record)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _columns(self, rows: Iterator[tuple[bytes, bytes]], rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
        try:
            yield from paged(rows, rows_max)
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, problem: str) -> Damaged:
        return Damaged(self._path, problem, safe="remove the file and build the fold again, or restore a copy")


class SqliteStore(SqliteReader):
    """A `SnapshotStore` in an SQLite file, opened with `open`."""

    def __init__(self, path: Path, lock: Lock, sync: Durability) -> None:
        super().__init__(path)
        self._held_lock = lock
        self._applying = threading.Lock()
        self._failure: str | None = None
        with self._errors():
            self._writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            try:
                self._prepare(self._writer, sync)
            except BaseException:
                self._writer.close(force=True)
                raise

    @classmethod
    def open(cls, path: Path | str, *, sync: Durability = SYNCED) -> Self:
        """Open the file at `path`, or begin one; `FormatError` for a foreign one, `Damaged` for a broken one."""
        path, disk = Path(path), OsDisk()
        with storage_errors(path):
            disk.make_folder(path.parent)
            lock = disk.lock(path.with_name(path.name + LOCK_SUFFIX))
        try:
            return cls(path, lock, sync)
        except BaseException:
            lock.release()
            raise

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Write a batch and the cursor after it in one transaction."""
        check_cursor(cursor)
        with self._applying:
            connection = self._writable()
            try:
                connection.execute("BEGIN IMMEDIATE")
                _write(connection, batch, cursor)
                connection.execute("COMMIT")
            except apsw.Error as error:
                self._failure = str(error)
                with contextlib.suppress(apsw.Error):
                    connection.execute("ROLLBACK")
                raise CommitFailed(self._path, str(error), hint=_typed(self._path, error).hint) from error

    def files(self) -> StoreFiles:
        """Return what keeps the fold, and where; what is not settled yet is in the write-ahead log."""
        path = Path(self._path)
        return StoreFiles("sqlite", SCHEMA_VERSION, (path, path.with_name(f"{path.name}-wal")))

    def snapshot(self, beside: Path) -> "SqliteSnapshot":  # noqa: ARG002 - the write-ahead log keeps the moment
        """Return this moment: a read transaction, until it is closed."""
        self._writable()
        return SqliteSnapshot(self._path)

    def settle(self) -> None:
        """Bring the write-ahead log into the file."""
        with self._applying, self._errors():
            self._writable().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def close(self) -> None:
        """Close the connections and release the lock; twice is harmless."""
        with self._applying:
            if not self._is_closed:
                super().close()
                self._writer.close(force=True)
                self._held_lock.release()

    def _prepare(self, connection: apsw.Connection, sync: Durability) -> None:
        """Make a new file ours and refuse another's."""
        version = self._check_name(connection)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full" if sync is SYNCED else "normal")
        connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
        if version < SCHEMA_VERSION:
            with connection:
                if not version:
                    connection.execute(_SCHEMA)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", SCHEMA_VERSION)

    def _writable(self) -> apsw.Connection:
        if self._is_closed:
            raise Closed(self._path)
        if self._failure is not None:
            raise Poisoned(self._path, self._failure)
        return self._writer


class SqliteSnapshot(SqliteReader):
    """A `StoreSnapshot`: a read transaction on a connection of its own."""

    backend = "sqlite"
    version = SCHEMA_VERSION

    def __init__(self, path: str) -> None:
        super().__init__(Path(path))
        with self._errors():
            self._connection = self._connect(apsw.SQLITE_OPEN_READONLY)
            try:
                self._connection.execute("BEGIN")
                self._cursor_then = _cursor(self._connection)  # a transaction begins with its first read
            except BaseException:
                self._connection.close(force=True)
                raise

    def cursor(self) -> WatchCursor:
        """Return the cursor of this moment."""
        return self._cursor_then

    def rows(self, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
        """Yield all rows by key."""
        with self._errors():
            yield from self._columns(_rows(self._connection, b""), rows_max)

    def copy_to(self, folder: Path) -> None:
        """Copy all pages into a database that is one file."""
        folder.mkdir()
        with self._errors():
            copy = apsw.Connection(str(folder / COPY_NAME))
            try:
                copy.pragma("synchronous", "off")  # the exporter syncs it whole
                with copy.backup("main", self._connection, "main") as backup:
                    while not backup.done:
                        backup.step(_PAGES_PER_STEP)
                copy.pragma("journal_mode", "delete")
            finally:
                copy.close(force=True)

    def close(self) -> None:
        """End the transaction."""
        super().close()
        self._connection.close(force=True)


def write_database(path: Path, pages: Iterable[PutColumns], cursor: WatchCursor) -> None:
    """Write a new database that is one file, of rows in the order of their keys; nothing is synced."""
    with _errors_at(str(path)):
        connection = apsw.Connection(str(path))
        try:
            connection.pragma("journal_mode", "off")  # it is whole, or it is not used
            connection.pragma("synchronous", "off")
            connection.execute("BEGIN")  # never rolled back, which needs a journal and hides the error
            connection.execute(_SCHEMA)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", SCHEMA_VERSION)
            for rows in pages:
                connection.executemany(_ADD, zip(*records_of(rows), strict=True))
            if cursor != NO_CURSOR:
                connection.execute(_SET_CURSOR, (cursor,))
            connection.execute("COMMIT")
        finally:
            connection.close(force=True)


@contextlib.contextmanager
def _errors_at(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise _typed(path, error) from error


def _write(connection: apsw.Connection, batch: FoldBatch, cursor: WatchCursor) -> None:
    keys, records = batch.records()
    if keys:
        rows = sorted(zip(keys, records, strict=True))  # so that neighbours in the tree are written together
        connection.executemany(_PUT, rows)
    if batch.deletes.keys:
        connection.executemany(_DELETE, ((key,) for key in batch.deletes.keys))
    if cursor != NO_CURSOR:
        connection.execute(_SET_CURSOR, (cursor,))


def _cursor(connection: apsw.Connection) -> WatchCursor:
    return WatchCursor(connection.execute(_CURSOR).get or NO_CURSOR)


def _rows(connection: apsw.Connection, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    end = prefix_end(prefix)
    if end is None:
        yield from connection.execute(_FROM, (prefix,))
    else:
        yield from connection.execute(_BETWEEN, (prefix, end))


def _typed(path: str, error: apsw.Error) -> StrandlineError:
    match error:
        case apsw.NotADBError():
            return FormatError(path, "is not an SQLite database", hint="give the path of a fold, or of no file")
        case apsw.CorruptError():
            return Damaged(path, "the database is malformed", safe="remove the file and build the fold again")
        case apsw.FullError():
            return StorageRefused(path, "no space is left", "SQLITE_FULL", hint="free some space, then open it again")
        case _:
            return StorageRefused(path, str(error), type(error).__name__, hint="check the device and its permissions")
