"""The pipeline's database in one schema of a PostgreSQL server.

Invariants: what `write` returned from is committed, and durable as far as the server is; a write that the server gave
up for another one (deadlock, serialization) is run again; an error before the commit means that nothing was done, and
one of the commit itself is `CommitFailed`, because the server may have committed before it went away. A connection
that died while idle is replaced unnoticed. No message shows a password.
"""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, LiteralString, Self, TypeAlias, TypeVar

from strandline.clock import Clock, SystemClock
from strandline.errors import InvalidInput
from strandline.lazy_imports import deferred
from strandline.pipeline.sql import arrays
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
from strandline.pipeline.sql.postgres_errors import RETRIED, bad_dsn, cause_of, postgres_commit_error, postgres_error
from strandline.pipeline.sql.statements import statements
from strandline.protocol.canonical import derive_64, to_signed

if TYPE_CHECKING:
    import psycopg
    from psycopg import conninfo
else:
    psycopg, conninfo = deferred("psycopg", "postgres"), deferred("psycopg.conninfo", "postgres")

T = TypeVar("T")
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

CONNECT_TIMEOUT_S = 5
_ATTEMPTS = 10
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.005, 0.2
_SCHEMA = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")
_LOCK_CONTEXT = "strandline/pipeline/v1/migration-lock"


class PostgresDatabase:
    """One schema. `write` and `read` run a function over a connection in a transaction of their own."""

    def __init__(self, dsn: str, *, schema: str = "strandline", clock: Clock | None = None) -> None:
        if not _SCHEMA.match(schema):
            raise InvalidInput(f"{schema!r} cannot name a schema", hint="lower-case letters, digits and _; 63 at most")
        self._parameters = _parse_dsn(dsn)
        self._schema = schema
        self._where = _describe(self._parameters, schema)
        self.clock = clock or SystemClock()
        self._sql = statements("postgres", "schema")
        self._pool: Pool[Connection] = Pool(self._where, self._open, lambda connection: connection.close())

    @property
    def dialect(self) -> Literal["postgres"]:
        """Return the SQL dialect."""
        return "postgres"

    def describe(self) -> str:
        """Return server, database and schema, without the password."""
        return self._where

    def array(self, values: Sequence[bytes]) -> arrays.BinaryArray:
        """Return many values as one parameter, for `ANY (%(name)s::bytea[])`."""
        return arrays.byteas(values)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one snapshot of the database."""
        return self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", work, self._undo)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, maybe more than once, and return once its changes are committed; its error rolls them back."""
        return self._run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", work, self._commit)

    def migrate(self) -> list[Migration]:
        """Create schema and tables, or migrate the tables; return the applied migrations."""
        return migrate(self, load_migrations("postgres"))

    def status(self) -> SchemaStatus:
        """Return which migrations were applied and which are pending."""
        return schema_status(self, load_migrations("postgres"))

    def history(self) -> list[Applied]:
        """Return the applied migrations, oldest first; a missing schema or table has none."""

        def look(connection: Connection) -> list[Applied]:
            row = connection.execute(self._sql["history_exists"]).fetchone()
            return _history(connection) if row and row[0] else []

        return self.read(look)

    def migrating(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one transaction under the schema's advisory lock, creating schema and history first."""

        def locked(connection: Connection) -> T:
            key = to_signed(derive_64(_LOCK_CONTEXT, self._schema.encode()))
            connection.execute(self._sql["wait_for_lock"].format(key=key))
            connection.execute(self._sql["create_schema"].format(schema=self._schema))
            connection.execute(self._sql["create_history"])
            return work(_PostgresSession(connection, self.clock))

        return self.write(locked)

    def close(self) -> None:
        """Close the connections; twice is harmless."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PostgresDatabase({self._where!r})"

    def _run(self, begin: LiteralString, work: Callable[[Connection], T], end: Callable[[Connection], None]) -> T:
        pause_s = _PAUSE_MIN_S
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._attempt(begin, work, end)
            except psycopg.OperationalError as error:
                if error.sqlstate not in RETRIED:
                    raise
            time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads rivals, guards nothing
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
        with self._typed_errors():
            return self._attempt(begin, work, end)

    def _attempt(self, begin: LiteralString, work: Callable[[Connection], T], end: Callable[[Connection], None]) -> T:
        """Run one transaction; retryable errors are raised unchanged, all others as ours."""
        with self._typed_errors(RETRIED):
            connection = self._begun(begin)
            try:
                result = work(connection)
            except BaseException:
                self._undo(connection)
                raise
        end(connection)
        return result

    def _begun(self, begin: LiteralString) -> Connection:
        while True:
            connection, is_new = self._pool.take()
            try:
                connection.execute(begin)
            except psycopg.OperationalError:
                self._pool.end(connection)
                if is_new:
                    raise
            else:
                return connection

    def _commit(self, connection: Connection) -> None:
        try:
            tag = connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            self._undo(connection)
            if error.sqlstate in RETRIED:
                raise
            raise postgres_commit_error(self._where, error) from cause_of(error)
        except BaseException:
            self._pool.end(connection)
            raise
        self._pool.give_back(connection)
        if tag != "COMMIT":  # the server answers ROLLBACK where a statement had failed and its error was swallowed
            raise AssertionError(f"a failed transaction was committed as {tag}")

    def _undo(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            self._pool.end(connection)
        else:
            self._pool.give_back(connection)

    def _open(self) -> Connection:
        with self._typed_errors():
            connection: Connection = psycopg.connect(**self._parameters, autocommit=True)
            arrays.register(connection)
            try:
                connection.execute(self._sql["prepare_connection"], (self._schema,))
            except BaseException:
                connection.close()
                raise
            return connection

    @contextmanager
    def _typed_errors(self, but: tuple[str, ...] = ()) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate in but:
                raise
            raise postgres_error(self._where, error) from cause_of(error)


class _PostgresSession:
    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._sql = statements("postgres", "schema")

    def applied(self) -> list[Applied]:
        return _history(self._connection)

    def apply(self, migration: Migration) -> None:
        self._connection.execute(migration.sql)
        row = (migration.version, migration.name, migration.checksum, self._clock.now_ns())
        self._connection.execute(self._sql["add_to_history"], row)


def _history(connection: Connection) -> list[Applied]:
    return [Applied(*row) for row in connection.execute(statements("postgres", "schema")["history"])]


def _parse_dsn(dsn: str) -> dict[str, Any]:
    try:
        parameters: dict[str, Any] = conninfo.conninfo_to_dict(dsn, application_name="strandline")
    except psycopg.ProgrammingError:
        parameters = {}
    if not parameters:
        raise bad_dsn()  # outside the handler: the driver's error quotes the string, password and all
    return {"connect_timeout": CONNECT_TIMEOUT_S} | parameters


def _describe(parameters: dict[str, Any], schema: str) -> str:
    host = parameters.get("host") or parameters.get("hostaddr") or "localhost"
    database = parameters.get("dbname") or parameters.get("user") or ""
    port = f":{parameters['port']}" if parameters.get("port") else ""
    if "@" in f"{host}{database}" or not re.fullmatch(r"(:[\d,]+)?", port):
        raise bad_dsn()  # it may be a part of a password that was not escaped
    return f"postgresql {host}{port}/{database} schema {schema}"
