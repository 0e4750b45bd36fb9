"""The address of a pipeline's stores."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from strandline.pipeline.sql.migrations import Migration, SchemaStatus
from strandline.pipeline.stores import AnyDatabase, open_database

DEFAULT_ADDRESS = "pipeline.db"
Address = Annotated[
    str,
    typer.Argument(
        help="A SQLite file, postgresql://user@host/database, or a lake: s3://bucket/prefix, file:///folder.",
        envvar="STRANDLINE_PIPELINE",
        show_default=True,
    ),
]


@contextmanager
def database_at(address: str) -> Iterator[AnyDatabase]:
    """Open the database at an address for the block."""
    database = open_database(address)
    try:
        yield database
    finally:
        database.close()


def schema_record(status: SchemaStatus) -> dict[str, object]:
    """Return what was applied and what is pending, as commands print it."""
    return {
        "schema_version": len(status.applied),
        "pending": [migration_name(migration) for migration in status.pending],
    }


def migration_name(migration: Migration) -> str:
    """Return a migration as people know it."""
    return f"{migration.version:04} {migration.name}"
