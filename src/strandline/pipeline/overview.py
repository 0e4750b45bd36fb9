"""Counts of a database across tenants: for operators, not for tenants.

Invariants: counts are of one moment; nothing is shown but ids and counts.
"""

from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.stores import AnyDatabase

TABLES = (
    "ledger_entries",
    "findings",
    "occurrences",
    "observations",
    "triage_events",
    "policies",
    "scanner_state",
    "runs",
    "shards",
)


def count_rows(database: AnyDatabase) -> dict[str, int]:
    """Return how many rows each table has."""
    if database.dialect == "objects":
        from strandline.pipeline.lake.overview import count_lake_rows  # noqa: PLC0415 - only lakes need it

        return count_lake_rows(database)
    sql = statements(database.dialect, "overview")

    def count(connection: AnyConnection) -> dict[str, int]:
        return {table: connection.execute(sql[f"count_{table}"]).fetchone()[0] for table in TABLES}

    return database.read(count)


def list_tenants(database: AnyDatabase) -> list[TenantId]:
    """Return the tenants that have results or runs."""
    if database.dialect == "objects":
        from strandline.pipeline.lake.overview import lake_tenants  # noqa: PLC0415 - only lakes need it

        return lake_tenants(database)
    sql = statements(database.dialect, "overview")["tenants"]

    def look(connection: AnyConnection) -> list[TenantId]:
        return [TenantId(row[0]) for row in connection.execute(sql).fetchall()]

    return database.read(look)


def list_policies(database: AnyDatabase, tenant: TenantId) -> list[PolicyHash]:
    """Return the policies under which a tenant has results, or that it registered."""
    if database.dialect == "objects":
        from strandline.pipeline.lake.overview import lake_policies  # noqa: PLC0415 - only lakes need it

        return lake_policies(database, tenant)
    sql = statements(database.dialect, "overview")["policies"]
    named = {"tenant": tenant}

    def look(connection: AnyConnection) -> list[PolicyHash]:
        return [PolicyHash(row[0]) for row in connection.execute(sql, named).fetchall()]

    return database.read(look)
