"""The listing of a plan, looked at again after its run: which versions were read, and what the ledger says of them.

Invariants: what was done before the run is not asked for again; the order is that of the plan; work is done in batches,
so that memory grows with the columns alone.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.identity import VersionKind
from strandline.pipeline.ledger import LedgerRecord
from strandline.pipeline.stores import Stores
from strandline.spark.inputs import StatCache
from strandline.spark.jobs.facts import FACTS, facts_of, ledger_rows
from strandline.spark.jobs.plan import Plan
from strandline.spark.jobs.request import ScanRequest
from strandline.spark.jobs.versions import LISTED, identified_again, late_ovids, late_versions, listed_as

_ROWS_AT_ONCE = 100_000


def looked_again(stores: Stores, request: ScanRequest, plan: Plan, cache: StatCache) -> tuple[pa.Table, pa.Table]:
    """Return a plan's listing and facts with what is known now of the items that were to be done."""
    if not pc.any(plan.pending).as_py():
        return plan.listed, plan.facts
    listed, facts = [], []
    for batch in _by_source(plan.listed.filter(plan.pending)):
        named = identified_again(batch, cache)
        rows = ledger_rows(stores.ledger, request.tenant, request.policy_hash, named["ovid"].to_pylist())
        listed.append(_with_late(stores, request, named, rows, cache))
        facts.append(facts_of(rows))
    now = pa.Table.from_batches(listed, LISTED), pa.Table.from_batches(facts, FACTS)
    return _merged(plan.listed, plan.pending, now[0]), _merged(plan.facts, plan.pending, now[1])


def _by_source(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield rows in order, in batches of one source each; the rows of a source stand together."""
    for batch in table.combine_chunks().to_batches(_ROWS_AT_ONCE):
        numbers = pc.unique(batch["source"])
        yield from [batch] if len(numbers) == 1 else (batch.filter(pc.equal(batch["source"], one)) for one in numbers)


def _merged(whole: pa.Table, mask: pa.Array, part: pa.Table) -> pa.Table:
    """Return a table in which the masked rows are those of another."""
    if len(part) == len(whole):
        return part
    at = pc.cumulative_sum(pc.cast(mask, pa.int64()))
    kept = pa.array(range(len(whole)), pa.int64())
    order = pc.if_else(mask, pc.add(at, len(whole) - 1), kept)
    return pa.concat_tables([whole, part]).take(order)


def _with_late(
    stores: Stores, request: ScanRequest, named: pa.RecordBatch, rows: list[LedgerRecord | None], cache: StatCache
) -> pa.RecordBatch:
    """Return items with the versions that only reading told, for those without a row; `rows` gets theirs.

    Stat data that came after the listing, and vouch for such a version, take the place of those that were listed.
    """
    unseen = [place for place, row in enumerate(rows) if row is None]
    if not unseen:
        return named
    chosen = named.take(pa.array(unseen))
    items, stats, versions = (chosen[name].to_pylist() for name in ("item", "stat", "version"))
    late = late_versions(stores.state, request.tenant, items, list(map(listed_as, stats, versions)))
    ovids = late_ovids(items, late)
    found = ledger_rows(stores.ledger, request.tenant, request.policy_hash, ovids)
    vouched = cache.vouched(named["source"][0].as_py(), chosen["locator"]).select(["stat", "version"]).to_pylist()
    columns = {name: named[name].to_pylist() for name in ("version", "ovid", "weak", "is_sure", "stat")}
    for place, row, one, ovid, known in zip(unseen, found, late, ovids, vouched, strict=True):
        if row is not None and one is not None:
            rows[place] = row
            is_sure = known["version"] == one.version
            cells = {"version": one.version, "ovid": ovid, "weak": one.kind is VersionKind.WEAK, "is_sure": is_sure}
            for name, cell in (cells | ({"stat": known["stat"]} if is_sure else {})).items():
                columns[name][place] = cell
    arrays = [
        pa.array(columns[name], LISTED.field(name).type) if name in columns else named[name] for name in LISTED.names
    ]
    return pa.record_batch(arrays, LISTED)
