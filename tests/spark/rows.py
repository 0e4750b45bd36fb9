"""What a scan leaves behind, as rows that can be compared: between two runs, or two states.

Left out is what may differ between a disturbed and an undisturbed run: fences, ids of runs and shards, logical times
and times of commits. All else is there: findings, occurrences, observations with their locations, and the ledger.
"""

from typing import Any

from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.lake.columns import ledger_rows
from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.lake.stores import open_lake
from strandline.pipeline.stores import Stores

Rows = dict[str, list[tuple[Any, ...]]]

_QUERIES = {
    "findings": "SELECT finding_id, item, rule, secret FROM findings WHERE tenant = {tenant} ORDER BY finding_id",
    "occurrences": (
        "SELECT occurrence_id, finding_id, version, byte_offset, byte_length FROM occurrences"
        " WHERE tenant = {tenant} ORDER BY occurrence_id"
    ),
    "observations": (
        "SELECT observation_id, occurrence_id, policy, ovid, location_display, location_url FROM observations"
        " WHERE tenant = {tenant} ORDER BY observation_id"
    ),
    "ledger": (
        "SELECT policy, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped,"
        " findings_dropped, error_code FROM {ledger} WHERE tenant = {tenant} ORDER BY policy, ovid"
    ),
}


def rows_of(stores: Stores, tenant: TenantId, policy: PolicyHash | None = None) -> Rows:
    """Return what is stored for a tenant; with a policy, only observations and the ledger, and only of that."""
    rows = _lake_rows(stores, tenant) if isinstance(stores.database, LakeDatabase) else _sql_rows(stores, tenant)
    if policy is None:
        return rows
    observations = [row for row in rows["observations"] if row[2] == policy]
    return {"observations": observations, "ledger": [row for row in rows["ledger"] if row[0] == policy]}


def _lake_rows(stores: Stores, tenant: TenantId) -> Rows:
    assert isinstance(stores.database, LakeDatabase)
    cache = open_lake(stores.database).cache
    tables = cache.findings()
    ledgers = [ledger_rows(cache.ledger(*scope).table(), "") for scope in cache.scopes() if scope[0] == tenant]
    return {
        "findings": sorted((*row[1:4], bytes(row.secret)) for row in tables.findings.values() if row[0] == tenant),
        "occurrences": sorted(row[1:] for row in tables.occurrences.values() if row[0] == tenant),
        "observations": sorted(
            (*row[1:5], row.location_display, row.location_url)
            for row in tables.observations.values()
            if row[0] == tenant
        ),
        "ledger": [(*row[1:4], int(row.status), *row[5:10], row.error_code) for rows in ledgers for row in rows],
    }


def _sql_rows(stores: Stores, tenant: TenantId) -> Rows:
    sqlite = stores.database.dialect == "sqlite"
    words = {"tenant": ":tenant" if sqlite else "%(tenant)s", "ledger": "ledger" if sqlite else "ledger_entries"}

    def look(connection: Any) -> Rows:  # noqa: ANN401 - of either driver
        found = {}
        for name, query in _QUERIES.items():
            found[name] = [
                tuple(bytes(cell) if isinstance(cell, memoryview) else cell for cell in row)
                for row in connection.execute(query.format(**words), {"tenant": tenant}).fetchall()
            ]
        return found

    rows = stores.sql.read(look)
    for name in ("ledger",):
        rows[name] = [(*row[:2], bool(row[2]), *row[3:]) for row in rows[name]]
    return rows
