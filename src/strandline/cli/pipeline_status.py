"""`strandline pipeline status`: rows, policies and runs."""

from collections.abc import Iterator
from typing import Annotated

import typer

from strandline.cli.output import AsJson, Record, emit, emit_rows, to_json
from strandline.cli.pipeline_address import DEFAULT_ADDRESS, Address, database_at, schema_record
from strandline.pipeline.coordination import Coordinator
from strandline.pipeline.identity import TenantId, tenant_id
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.overview import count_rows, list_policies, list_tenants
from strandline.pipeline.stores import Stores, open_stores, require_current
from strandline.protocol import RunRecord
from strandline.protocol.errors import shown
from strandline.protocol.shards import RunKey

Tenant = Annotated[str | None, typer.Option("--tenant", help="Show this tenant alone: 64 hexadecimal digits.")]
RUNS_SHOWN = 50


def status(address: Address = DEFAULT_ADDRESS, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Show the schema, the rows of each table, findings and coverage by policy, and the runs."""
    chosen = None if tenant is None else _parse_tenant(tenant)
    with database_at(address) as database:
        require_current(database)
        record = {"address": database.describe(), **schema_record(database.status())}
        rows = {} if chosen else count_rows(database)  # counts are over all tenants
        tenants = [chosen] if chosen else list_tenants(database)
    with open_stores(address) as stores:
        policies = [row for one in tenants for row in _policies(stores, one)]
        runs = [row for one in tenants for row in _runs(stores.coordinator, one)]
    if as_json:
        print(to_json({**record, **({"rows": rows} if rows else {}), "policies": policies, "runs": runs}))
        return
    emit({**record, "pending": record["pending"] or "nothing", **rows}, as_json=False)
    emit_rows(policies, as_json=False, title="policies")
    emit_rows(runs[-RUNS_SHOWN:], as_json=False, title="runs")
    if len(runs) > RUNS_SHOWN:
        print(f"and {len(runs) - RUNS_SHOWN:,} older runs (--json lists them)")


def _parse_tenant(text: str) -> TenantId:
    try:
        return tenant_id(bytes.fromhex(text))
    except ValueError as error:
        raise typer.BadParameter("a tenant is 64 hexadecimal digits") from error


def _policies(stores: Stores, tenant: TenantId) -> Iterator[Record]:
    found = {counts.policy: counts for counts in stores.reads.counts_by_policy(tenant)}
    for policy in list_policies(stores.database, tenant):
        coverage = stores.reads.coverage(tenant, policy)
        counts = found.get(policy)
        yield {
            "tenant": tenant.hex(),
            "policy": policy.hex(),
            **{status.name.lower(): coverage.objects.get(status, 0) for status in DoneStatus},
            "incomplete": coverage.incomplete,
            "findings": counts.findings if counts else 0,
            "bytes_seen": coverage.bytes_seen,
        }


def _all_runs(coordinator: Coordinator, tenant: TenantId) -> Iterator[RunRecord]:
    after = None
    while page := coordinator.list_runs(tenant, after):
        yield from page
        after = page[-1].run


def _runs(coordinator: Coordinator, tenant: TenantId) -> Iterator[Record]:
    for run in sorted(_all_runs(coordinator, tenant), key=lambda run: run.created_at):
        progress = coordinator.progress(RunKey(tenant, run.run))
        yield {
            "tenant": tenant.hex(),
            "run": shown(run.run),
            "status": run.status.name.lower(),
            **progress._asdict(),
        }
