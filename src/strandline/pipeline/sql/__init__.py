"""The pipeline's tables in SQLite or PostgreSQL: one database, its migrations, and the stores over it.

**Promise.** A write that returned is durable; one that raised anything but `UnknownOutcome` did nothing. Any number of
threads and processes may share a database. Migrations go forward only and are applied once.

**Parts.** `SqliteDatabase` and `PostgresDatabase` run functions in transactions and speak our errors; the `.sql` files
hold every statement, by name; the stores are thin: rows in, rows out, merged by SQL exactly as the pure functions of
`strandline.pipeline` merge them. Where rows are sent by the thousand, each dialect has its own way: SQLite binds row by
row, PostgreSQL takes a column as one array.

**Trade-offs.** A batch is one transaction of at most 10,000 rows for each layer. Keys are digests, so new rows fall all
over an index, and what a batch costs is the pages that it touches: indexes are few and narrow, and rows stand in the
order in which they came. SQLite still slows down as a table outgrows its cache. Commit times are taken before the
commit, so `known_at` of the last moments may yet grow.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.pipeline.sql.findings import PostgresFindings, SqliteFindings
    from strandline.pipeline.sql.ledger import PostgresLedger, SqliteLedger
    from strandline.pipeline.sql.migrations import Applied, Migration, SchemaStatus, load_migrations
    from strandline.pipeline.sql.postgres import PostgresDatabase
    from strandline.pipeline.sql.reads import SqlReads
    from strandline.pipeline.sql.sqlite import SqliteDatabase
    from strandline.pipeline.sql.state import SqlState

__all__ = [
    "Applied",
    "Migration",
    "PostgresDatabase",
    "PostgresFindings",
    "PostgresLedger",
    "SchemaStatus",
    "SqlReads",
    "SqlState",
    "SqliteDatabase",
    "SqliteFindings",
    "SqliteLedger",
    "load_migrations",
]

# Import a public name at its first use, so that a command loads only the modules that it needs.
__getattr__ = _lazy_names(
    __name__,
    {
        "findings": (
            "PostgresFindings",
            "SqliteFindings",
        ),
        "ledger": (
            "PostgresLedger",
            "SqliteLedger",
        ),
        "migrations": (
            "Applied",
            "Migration",
            "SchemaStatus",
            "load_migrations",
        ),
        "postgres": ("PostgresDatabase",),
        "reads": ("SqlReads",),
        "sqlite": ("SqliteDatabase",),
        "state": ("SqlState",),
    },
)
