"""The items of a plan after its run: the versions that were read, and their ledger rows.

Invariants: items that were done before the run are not looked up again; the order is that of the plan; one batch is
in memory at a time.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.identity import VersionKind
from strandline.pipeline.stores import Stores
from strandline.scan.plan.ledger_facts import FACTS, answer_columns, ledger_answers, ledger_rows, written_by
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
    answers = ledger_answers(stores.ledger, request.tenant, request.policy_hash, named["ovid"])
    now, answers = _with_late(stores, request, named, answers, cache)
    return Rechecked(
        _replaced(listed, pending, now),
        _replaced(facts, pending, pa.record_batch([answers[name] for name in FACTS.names], FACTS)),
        pc.replace_with_mask(batch["is_new"], pending, written_by(answers, is_new)),
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
    stores: Stores, request: ScanRequest, named: pa.RecordBatch, answers: pa.RecordBatch, cache: StatCache
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return items without a row with their late versions, and the rows of those.

    Newer stat data that vouch for such a version replace those of the listing.
    """
    missing = pc.is_null(answers["status"])
    if not missing.true_count:
        return named, answers
    chosen = named.filter(missing)
    items, stats, versions = (chosen[name].to_pylist() for name in ("item", "stat", "version"))
    late = late_versions(stores.state, request.tenant, items, list(map(listed_as, stats, versions)))
    ovids = late_ovids(items, late)
    found = ledger_rows(stores.ledger, request.tenant, request.policy_hash, ovids)
    vouched = cache.vouched(named["source"][0].as_py(), chosen["locator"]).select(["stat", "version"]).to_pylist()
    columns = {name: chosen[name].to_pylist() for name in ("version", "ovid", "weak", "is_sure", "stat")}
    for place, (row, one, ovid, known) in enumerate(zip(found, late, ovids, vouched, strict=True)):
        if row is not None and one is not None:
            is_sure = known["version"] == one.version
            cells = {"version": one.version, "ovid": ovid, "weak": one.kind is VersionKind.WEAK, "is_sure": is_sure}
            for name, cell in (cells | ({"stat": known["stat"]} if is_sure else {})).items():
                columns[name][place] = cell
    arrays = [
        pa.array(columns[name], LISTED.field(name).type) if name in columns else chosen[name] for name in LISTED.names
    ]
    rows = [row if one is not None else None for row, one in zip(found, late, strict=True)]
    late_items = pa.record_batch(arrays, LISTED)
    return _replaced(named, missing, late_items), _replaced(answers, missing, answer_columns(rows))
