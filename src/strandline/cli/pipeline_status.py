"""`strandline pipeline status`: how much there is, and how far the runs are."""

from collections.abc import Iterator
from typing import Annotated

import typer

from strandline.cli.output import AsJson, Record, emit, emit_rows, to_json
from strandline.cli.pipeline_address import DEFAULT_ADDRESS, Address, database_at, schema_record
from strandline.errors import InvalidInput
from strandline.pipeline.coordination import Coordinator
from strandline.pipeline.identity import TenantId, tenant_id
from strandline.pipeline.overview import count_rows, list_policies, list_tenants
from strandline.pipeline.stores import Stores, open_stores, require_current
from strandline.protocol.errors import shown
from strandline.protocol.shards import RunKey

Tenant = Annotated[str | None, typer.Option("--tenant", help="Show this tenant alone: 64 hexadecimal digits.")]
RUNS_SHOWN = 1_000


def status(address: Address = DEFAULT_ADDRESS, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show the schema, the size of each table, what each policy found and how well it looked, and the runs."""
    chosen = None if tenant is None else _parse_tenant(tenant)
    with database_at(address) as database:
        require_current(database)
        record = {"address": database.describe(), **schema_record(database.status()), "rows": count_rows(database)}
        tenants = [chosen] if chosen else list_tenants(database)
    with open_stores(address) as stores:
        policies = [row for one in tenants for row in _policies(stores, one)]
        runs = [row for one in tenants for row in _runs(stores.coordinator, one)]
    if as_json:
        print(to_json({**record, "policies": policies, "runs": runs}))
        return
    rows = record.pop("rows")
    emit({**record, **(rows if isinstance(rows, dict) else {})}, as_json=False)
    emit_rows(policies, as_json=False, title="policies")
    emit_rows(runs, as_json=False, title="runs")


def _parse_tenant(text: str) -> TenantId:
    try:
        return tenant_id(bytes.fromhex(text))
    except ValueError as error:
        raise InvalidInput(
            "a tenant is 64 hexadecimal digits", hint="as `strandline pipeline status` shows it"
        ) from error


def _policies(stores: Stores, tenant: TenantId) -> Iterator[Record]:
    found = {counts.policy: counts for counts in stores.reads.counts_by_policy(tenant)}
    for policy in list_policies(stores.database, tenant):
        coverage = stores.reads.coverage(tenant, policy)
        counts = found.get(policy)
        yield {
            "tenant": tenant.hex(),
            "policy": policy.hex(),
            **{name.name.lower(): count for name, count in sorted(coverage.objects.items())},
            "incomplete": coverage.incomplete,
            "findings": counts.findings if counts else 0,
            "bytes_seen": coverage.bytes_seen,
        }


def _runs(coordinator: Coordinator, tenant: TenantId) -> Iterator[Record]:
    for run in coordinator.list_runs(tenant, runs_max=RUNS_SHOWN):
        progress = coordinator.progress(RunKey(tenant, run.run))
        yield {
            "tenant": tenant.hex(),
            "run": shown(run.run),
            "status": run.status.name.lower(),
            **progress._asdict(),
        }
