"""Counts of a database across tenants: for operators, not for tenants.

Invariants: counts are of one moment; nothing is shown but ids and counts.
"""

from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.statements import statements

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


def count_rows(database: Database) -> dict[str, int]:
    """Return how many rows each table has."""
    sql = statements(database.dialect, "overview")

    def count(connection: AnyConnection) -> dict[str, int]:
        return {table: connection.execute(sql[f"count_{table}"]).fetchone()[0] for table in TABLES}

    return database.read(count)


def list_tenants(database: Database) -> list[TenantId]:
    """Return the tenants that have results or runs."""
    sql = statements(database.dialect, "overview")["tenants"]
    return [TenantId(row[0]) for row in database.read(lambda connection: connection.execute(sql).fetchall())]


def list_policies(database: Database, tenant: TenantId) -> list[PolicyHash]:
    """Return the policies under which a tenant has results, or that it registered."""
    sql = statements(database.dialect, "overview")["policies"]
    named = {"tenant": tenant}
    return [PolicyHash(row[0]) for row in database.read(lambda connection: connection.execute(sql, named).fetchall())]
