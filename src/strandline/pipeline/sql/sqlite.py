"""The pipeline's database in one SQLite file, which several threads and processes may use at once.

Invariants: what `write` returned from is on the disk (write-ahead log, `synchronous=FULL`); a write takes the writer's
lock first (`BEGIN IMMEDIATE`), so what it reads is what it changes; a read sees one moment of the database; an error
before the commit means that nothing was done, and one of the commit itself is `CommitFailed`.

It must stand on a local file system: the write-ahead log is shared memory between processes.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Self, TypeVar

from strandline.clock import Clock, SystemClock
from strandline.errors import FormatError
from strandline.extras import needs
from strandline.pipeline.sql.migrations import (
    Applied,
    Migration,
    SchemaStatus,
    Session,
    load_migrations,
    migrate,
    schema_status,
)
from strandline.pipeline.sql.pool import Pool
from strandline.pipeline.sql.sqlite_errors import sqlite_commit_error, sqlite_error
from strandline.pipeline.sql.statements import statements

with needs("sqlite"):
    import apsw

T = TypeVar("T")

APPLICATION_ID = 0x53545244  # "STRD", in the header of the file
BUSY_TIMEOUT_S = 60.0
# Batches of digests touch the same pages of an index again and again: they are written back once for many batches.
_CACHE_KIB = 128 * 1024
_CHECKPOINT_PAGES = 32 * 1024
_WAL_SWITCH_PAUSE_S = 0.005


class SqliteDatabase:
    """One file. `write` and `read` run a function over a connection in a transaction of their own."""

    def __init__(self, path: Path | str, *, busy_timeout_s: float = BUSY_TIMEOUT_S, clock: Clock | None = None) -> None:
        self._path = str(path)
        self._busy_timeout_s = busy_timeout_s
        self.clock = clock or SystemClock()
        self._sql = statements("sqlite", "schema")
        self._pool: Pool[apsw.Connection] = Pool(self._path, self._open, _end)

    @property
    def dialect(self) -> Literal["sqlite"]:
        """Return the SQL dialect."""
        return "sqlite"

    def describe(self) -> str:
        """Return the path."""
        return self._path

    def array(self, values: Sequence[bytes]) -> "apsw.CArrayBinding":
        """Return many values as one parameter, for `carray(:name)`."""
        return apsw.carray(tuple(values))

    def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` on one snapshot of the database; its changes are rolled back."""
        connection = self._begun("BEGIN")
        try:
            return work(connection)
        except apsw.Error as error:
            raise sqlite_error(self._path, error) from error
        finally:
            self._undo(connection)

    def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` alone among all writers, and return once its changes are durable; its error rolls them back."""
        connection = self._begun("BEGIN IMMEDIATE")
        try:
            result = work(connection)
        except BaseException as error:
            self._undo(connection)
            if isinstance(error, apsw.Error):
                raise sqlite_error(self._path, error) from error
            raise
        self._commit(connection)
        return result

    def migrate(self) -> list[Migration]:
        """Create the file and its tables, or migrate the tables; return the applied migrations."""
        return migrate(self, load_migrations("sqlite"))

    def status(self) -> SchemaStatus:
        """Return which migrations were applied and which are pending."""
        return schema_status(self, load_migrations("sqlite"))

    def history(self) -> list[Applied]:
        """Return the applied migrations, oldest first; a missing file or table has none."""
        return self.read(self._history) if Path(self._path).exists() else []

    def migrating(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one write transaction, creating file and history table first."""
        self._create()

        def begin(connection: apsw.Connection) -> T:
            connection.execute(self._sql["create_history"])
            return work(_SqliteSession(connection, self))

        return self.write(begin)

    def close(self) -> None:
        """Close the connections; twice is harmless."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SqliteDatabase({self._path!r})"

    def _begun(self, begin: str) -> apsw.Connection:
        connection, _ = self._pool.take()
        try:
            connection.execute(begin)
        except apsw.Error as error:
            self._undo(connection)
            raise sqlite_error(self._path, error) from error
        return connection

    def _commit(self, connection: apsw.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.Error as error:
            self._undo(connection)
            raise sqlite_commit_error(self._path, error) from error
        self._pool.give_back(connection)

    def _undo(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            self._pool.end(connection)
        else:
            self._pool.give_back(connection)

    def _open(self) -> apsw.Connection:
        return self._connect(apsw.SQLITE_OPEN_READWRITE)

    def _connect(self, flags: int) -> apsw.Connection:
        try:
            connection = apsw.Connection(self._path, flags=flags)
        except apsw.Error as error:
            raise sqlite_error(self._path, error) from error
        try:
            connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
            connection.execute(
                f"PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA cache_size=-{_CACHE_KIB};"
                f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}"
            )
        except apsw.Error as error:
            _end(connection)
            raise sqlite_error(self._path, error) from error
        return connection

    def _create(self) -> None:
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            self._claim(connection)
            self._switch_to_wal(connection)
        except apsw.Error as error:
            raise sqlite_error(self._path, error) from error
        finally:
            _end(connection)

    def _claim(self, connection: apsw.Connection) -> None:
        """Mark a new file as ours; reject another program's database."""
        if connection.pragma("application_id") == APPLICATION_ID:
            return
        connection.execute("BEGIN IMMEDIATE")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
        if tables and connection.pragma("application_id") != APPLICATION_ID:
            raise FormatError(self._path, "is a database of another program", hint="give a path of its own")
        connection.pragma("application_id", APPLICATION_ID)
        connection.execute("COMMIT")

    def _switch_to_wal(self, connection: apsw.Connection) -> None:
        """Switch the journal mode; SQLite refuses at once, without waiting, while another process switches it."""
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.pragma("journal_mode", "wal")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_WAL_SWITCH_PAUSE_S)
            else:
                return

    def _history(self, connection: apsw.Connection) -> list[Applied]:
        if not connection.table_exists("main", "schema_migrations"):
            return []
        return [Applied(*row) for row in connection.execute(self._sql["history"])]


class _SqliteSession:
    def __init__(self, connection: apsw.Connection, database: SqliteDatabase) -> None:
        self._connection = connection
        self._database = database
        self._sql = statements("sqlite", "schema")

    def applied(self) -> list[Applied]:
        return [Applied(*row) for row in self._connection.execute(self._sql["history"])]

    def apply(self, migration: Migration) -> None:
        self._connection.execute(migration.sql)
        row = (migration.version, migration.name, migration.checksum, self._database.clock.now_ns())
        self._connection.execute(self._sql["add_to_history"], row)


def _end(connection: apsw.Connection) -> None:
    connection.close(force=True)
