"""The stores over a database, whichever its dialect, and what tests write into its tables by hand."""

from typing import Any

from strandline.clock import ManualClock
from strandline.pipeline.identity import TenantId
from strandline.pipeline.sql import (
    PostgresDatabase,
    PostgresFindings,
    PostgresLedger,
    SqliteDatabase,
    SqliteFindings,
    SqliteLedger,
    SqlReads,
    SqlState,
)
from strandline.testing.persistence_helpers import CheckedPersistence

AnyDatabase = SqliteDatabase | PostgresDatabase


def ledger_over(database: AnyDatabase) -> SqliteLedger | PostgresLedger:
    return SqliteLedger(database) if isinstance(database, SqliteDatabase) else PostgresLedger(database)


def findings_over(database: AnyDatabase) -> SqliteFindings | PostgresFindings:
    return SqliteFindings(database) if isinstance(database, SqliteDatabase) else PostgresFindings(database)


def clock_of(database: AnyDatabase) -> ManualClock:
    assert isinstance(database.clock, ManualClock)
    return database.clock


def stores_over(database: AnyDatabase) -> CheckedPersistence:
    def set_fence(tenant: TenantId, run: int, shard: int, fence: int) -> None:
        set_shard(database, tenant, run, shard, fence)

    findings = findings_over(database)
    ledger, reads, state = ledger_over(database), SqlReads(database), SqlState(database)
    return CheckedPersistence(ledger, findings, findings, findings, reads, state, clock_of(database), set_fence)


def set_shard(database: AnyDatabase, tenant: TenantId, run: int, shard: int, fence: int) -> None:
    """Make a shard's fence known, as coordination would."""
    change(database, "DELETE FROM shards WHERE tenant = ? AND run_id = ? AND shard_id = ?", (tenant, run, shard))
    columns = "tenant, run_id, shard_id, fence, status, version, record"
    row = (tenant, run, shard, fence, 0, 1, b"")
    change(database, f"INSERT INTO shards ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608


def change(database: AnyDatabase, statement: str, row: tuple[Any, ...] = ()) -> None:
    """Run a statement by hand, its parameters written as `?`."""
    if isinstance(database, PostgresDatabase):
        statement = statement.replace("?", "%s")

    def run(connection: Any) -> None:  # noqa: ANN401 - of either driver
        connection.execute(statement, row)

    database.write(run)


def count(database: AnyDatabase, table: str) -> int:
    """Return how many rows a table has."""
    found = database.read(lambda connection: connection.execute(f"SELECT count(*) FROM {table}").fetchone())  # noqa: S608
    assert found is not None
    return int(found[0])
