"""The items of a plan after its run: the versions that were read, and their ledger rows.

Invariants: items that were done before the run are not looked up again; the order is that of the plan; one batch is
in memory at a time.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.identity import VersionKind
from strandline.pipeline.ledger import LedgerRecord
from strandline.pipeline.stores import Stores
from strandline.scan.plan.ledger_facts import FACTS, ledger_columns, ledger_rows
from strandline.scan.plan.planner import IsNew
from strandline.scan.plan.versions import LISTED, identified_again, late_ovids, late_versions, listed_as
from strandline.scan.request import ScanRequest
from strandline.scan.sources import StatCache


class Rechecked(NamedTuple):
    """A batch of a plan after the run: listed items, ledger columns, and which rows are new."""

    listed: pa.RecordBatch
    facts: pa.RecordBatch
    is_new: pa.Array


def recheck(stores: Stores, request: ScanRequest, batch: pa.RecordBatch, cache: StatCache, is_new: IsNew) -> Rechecked:
    """Return a batch of `PLANNED`, of one source, with new versions and ledger rows for its pending items."""
    listed = pa.record_batch([batch[name] for name in LISTED.names], LISTED)
    facts = pa.record_batch([batch[name] for name in FACTS.names], FACTS)
    pending = batch["pending"]
    if not pending.true_count:
        return Rechecked(listed, facts, batch["is_new"])
    named = identified_again(listed.filter(pending), cache)
    rows = ledger_rows(stores.ledger, request.tenant, request.policy_hash, named["ovid"].to_pylist())
    now = _with_late(stores, request, named, rows, cache)
    new = pa.array([row is not None and is_new(row) for row in rows], pa.bool_())
    return Rechecked(
        _replaced(listed, pending, now),
        _replaced(facts, pending, ledger_columns(rows)),
        pc.replace_with_mask(batch["is_new"], pending, new),
    )


def _replaced(whole: pa.RecordBatch, mask: pa.Array, part: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in which the masked rows are those of another."""
    if len(part) == len(whole):
        return part
    chosen = mask.to_numpy(zero_copy_only=False)
    order = np.where(chosen, len(whole) + np.cumsum(chosen) - 1, np.arange(len(whole)))
    (batch,) = pa.Table.from_batches([whole, part]).combine_chunks().take(pa.array(order)).to_batches()
    return batch


def _with_late(
    stores: Stores, request: ScanRequest, named: pa.RecordBatch, rows: list[LedgerRecord | None], cache: StatCache
) -> pa.RecordBatch:
    """Return items without a row with their late versions; `rows` gets their rows.

    Newer stat data that vouch for such a version replace those of the listing.
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
