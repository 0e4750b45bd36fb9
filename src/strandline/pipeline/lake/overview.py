"""What a lake holds: rows, tenants and policies; and the rows themselves, for checks and copies.

Invariants: nothing is changed; counts are of distinct rows, as in the tables of a database.
"""

from collections.abc import Iterator

from strandline.pipeline.coordination.object_records import parse_run_key, parse_shard_key
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.lake.database import LakeDatabase
from strandline.pipeline.lake.layout import POLICIES, STATE, format_policies_prefix, parse_policy, parse_tenant
from strandline.pipeline.lake.stores import LakeStores, open_lake
from strandline.protocol.runs import RunRecord
from strandline.protocol.shards import RunKey, ShardRecord

STATE_KEYS_END = b"\xff" * 2048


def count_lake_rows(database: LakeDatabase) -> dict[str, int]:
    """Return how many rows a lake has, by the names of the tables of a database."""
    lake = open_lake(database)
    tables = lake.cache.findings()
    tenants = {parse_tenant(info.key) for info in database.store.list(STATE)}
    return {
        "ledger_entries": sum(len(lake.cache.ledger(*scope)) for scope in lake.cache.scopes()),
        "findings": len(tables.findings),
        "occurrences": len(tables.occurrences),
        "observations": len(tables.observations),
        "triage_events": sum(map(len, tables.triage.values())),
        "policies": sum(1 for _ in database.store.list(POLICIES)),
        "scanner_state": sum(count_state(lake, tenant) for tenant in tenants),
        "runs": sum(1 for _ in lake_runs(database)),
        "shards": sum(1 for _ in lake_shards(database)),
    }


def count_state(lake: LakeStores, tenant: TenantId) -> int:
    """Return how many keys of scanner state a tenant has."""
    return lake.state.log(tenant).read(lambda fold: sum(1 for _ in fold.between(b"", STATE_KEYS_END)))


def lake_tenants(database: LakeDatabase) -> list[TenantId]:
    """Return the tenants that have results or runs."""
    cache = open_lake(database).cache
    with_runs = {TenantId(run.tenant) for run in lake_runs(database)}
    found = {key[0] for key in cache.findings().findings} | {tenant for tenant, _ in cache.scopes()}
    return sorted(found | with_runs)


def lake_policies(database: LakeDatabase, tenant: TenantId) -> list[PolicyHash]:
    """Return the policies under which a tenant has results, or that it registered."""
    cache = open_lake(database).cache
    registered = {parse_policy(info.key) for info in database.store.list(format_policies_prefix(tenant))}
    observed = {row.policy for row in cache.findings().observations.values() if row.tenant == tenant}
    return sorted(registered | observed | {policy for of, policy in cache.scopes() if of == tenant})


def lake_runs(database: LakeDatabase) -> Iterator[RunRecord]:
    """Yield all runs."""
    records = ObjectRecords(database.store)
    for info in database.store.list("coordination/runs/"):
        run = records.load_run(parse_run_key(info.key))
        if run is not None:
            yield run.record


def lake_shards(database: LakeDatabase) -> Iterator[ShardRecord]:
    """Yield all shards, also those whose run is gone."""
    records = ObjectRecords(database.store)
    keys = [parse_shard_key(info.key) for info in database.store.list("coordination/shards/")]
    for run in sorted({RunKey(key.tenant, key.run) for key in keys}):
        yield from records.list_shards(run, None, len(keys))
