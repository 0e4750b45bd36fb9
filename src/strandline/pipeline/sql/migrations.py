"""Migrations: numbered `.sql` files that are applied once, in order, and never change afterwards.

    migrations/<dialect>/0001_tables.sql

Invariants: what is pending is applied in one transaction under a lock that all processes share, so a database is never
between two versions; a database whose history differs from the files, or goes beyond them, is refused and left alone;
there is no way back but a new migration. The decision is `pending_migrations`, which is pure.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Literal, NamedTuple, Protocol, TypeVar

from strandline.errors import Damaged, FormatError
from strandline.protocol.canonical import derive

T = TypeVar("T")
Dialect = Literal["sqlite", "postgres"]

_CHECKSUM_CONTEXT = "strandline/pipeline/v1/migration"
_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema; `checksum` covers every byte of its file."""

    version: int
    name: str
    sql: str = field(repr=False)
    checksum: bytes


class Applied(NamedTuple):
    """A row of the history."""

    version: int
    name: str
    checksum: bytes
    applied_ns: int


class SchemaStatus(NamedTuple):
    """The migrations that a database has, and those that are pending."""

    applied: list[Applied]
    pending: list[Migration]


class Session(Protocol):
    """The locked transaction that migrations are applied in."""

    def applied(self) -> list[Applied]:
        """Return the history, oldest first."""
        ...

    def apply(self, migration: Migration) -> None:
        """Run one migration and add it to the history."""
        ...


class Migratable(Protocol):
    """A database that can be migrated."""

    def describe(self) -> str:
        """Return a name for messages."""
        ...

    def history(self) -> list[Applied]:
        """Return the history, oldest first; nothing where there is none yet."""
        ...

    def migrating(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one transaction, alone among all processes."""
        ...


def format_migration_file(version: int, name: str) -> str:
    """Return the file name of a migration."""
    return f"{version:04}_{name}.sql"


def parse_migration_file(file_name: str) -> tuple[int, str]:
    """Return version and name; `FormatError` for a file of another name."""
    match = _FILE.match(file_name)
    if match is None:
        raise FormatError(file_name, "is not named as a migration is", hint="name it like 0003_more_columns.sql")
    return int(match[1]), match[2]


def make_migration(version: int, name: str, sql: str) -> Migration:
    """Return a migration with its checksum."""
    return Migration(version, name, sql, derive(_CHECKSUM_CONTEXT, sql.encode()))


def load_migrations(dialect: Dialect) -> list[Migration]:
    """Return the migrations that this version brings, in order."""
    folder = files("strandline.pipeline.sql") / "migrations" / dialect
    sources = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    found = [make_migration(*parse_migration_file(file.name), file.read_text("utf-8")) for file in sources]
    versions = [migration.version for migration in found]
    if versions != list(range(1, len(found) + 1)):
        raise FormatError(dialect, f"its migrations are numbered {versions}, and not 1, 2, 3 …")
    return found


def pending_migrations(known: Sequence[Migration], applied: Sequence[Applied], where: str) -> list[Migration]:
    """Return the pending migrations; `FormatError` if the history is of a later version or differs."""
    if len(applied) > len(known):
        raise FormatError(
            where,
            f"has schema version {applied[-1].version}, and this version knows {len(known)}",
            hint="use the version of Strandline that made it, or a later one",
        )
    for migration, row in zip(known, applied, strict=False):
        if row.version != migration.version:
            raise Damaged(where, f"the schema history has no version {migration.version}", safe="restore a backup")
        if row.checksum != migration.checksum:
            raise FormatError(
                where,
                f"schema version {row.version} was applied as {row.name!r} with other content than this version has",
                hint="a migration never changes once it is released: put the file back, and add a new one",
            )
    return list(known[len(applied) :])


def migrate(database: Migratable, known: Sequence[Migration]) -> list[Migration]:
    """Apply what is pending and return it; any number of processes may do so at once."""
    where = database.describe()

    def apply_pending(session: Session) -> list[Migration]:
        pending = pending_migrations(known, session.applied(), where)
        for migration in pending:
            session.apply(migration)
        return pending

    if not pending_migrations(known, database.history(), where):
        return []  # the usual case, without a lock
    return database.migrating(apply_pending)


def schema_status(database: Migratable, known: Sequence[Migration]) -> SchemaStatus:
    """Return applied and pending migrations; rejects the same histories as `migrate`."""
    applied = database.history()
    return SchemaStatus(applied, pending_migrations(known, applied, database.describe()))


def not_migrated(where: str) -> FormatError:
    """Return the error for a database without our tables, or with those of an earlier version."""
    return FormatError(where, "its tables are missing or old", hint="run `strandline pipeline migrate`")
