"""The previous scan: items that are unchanged since its inventory, under the same policy, are still done.

The ledger's rows only grow, and the inventory is in the same database, so a version that was done then is done now. An
item is unchanged if its stat data are the same and vouched for the version, or if the source itself names the same
version; nothing is hashed or looked up for it.

Invariants: only done items count as unchanged; an unchanged item has the identities and the ledger row that a lookup
would give.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.ledger import DoneStatus
from strandline.scan.plan.ledger_facts import FACTS
from strandline.scan.plan.versions import LISTED
from strandline.scan.sources.row_index import RowIndex


class UnchangedItems(NamedTuple):
    """The unchanged items of a batch: a mask, the items as listed, and their ledger columns."""

    mask: pa.Array
    listed: pa.RecordBatch
    facts: pa.RecordBatch
    extra_is_same: bool


class PreviousScan:
    """The inventory of the last scan of the same sources under the same policy."""

    def __init__(self, index: RowIndex) -> None:
        self._index = index

    @property
    def rows(self) -> int:
        """Return the number of items that the last scan listed."""
        return len(self._index)

    def unchanged(self, number: int, batch: pa.RecordBatch) -> UnchangedItems | None:
        """Return the unchanged items of a batch; None if there are none."""
        if not len(self._index):
            return None
        before = self._index.rows(number, batch["locator"])
        mask = pc.and_(_is_done(before), _looks_the_same(batch, before)).combine_chunks()
        if not mask.true_count:
            return None
        now, before = batch.filter(mask), before.filter(mask).combine_chunks()
        (known,) = before.to_batches()
        numbers = pa.repeat(pa.scalar(number, pa.int16()), len(now))
        sure = pa.repeat(pa.scalar(value=True), len(now))
        new = {"source": numbers, "is_sure": sure, **{name: now[name] for name in now.schema.names}}
        new |= {name: known[name] for name in ("version", "item", "ovid", "weak")}
        listed = pa.record_batch([new[name] for name in LISTED.names], LISTED)
        facts = pa.record_batch([known[name] for name in FACTS.names], FACTS)
        same = pc.all(_equal(now["extra"], known["extra"])).as_py() is not False
        return UnchangedItems(mask, listed, facts, same)


def _is_done(items: pa.Table) -> pa.ChunkedArray:
    """Return which items are done if they are listed so again; see `ledger_facts.is_done`."""
    done = pc.and_(pc.is_valid(items["status"]), pc.not_equal(items["status"], int(DoneStatus.FAILED_RETRYABLE)))
    problem_is_known = pc.coalesce(pc.equal(items["code"], items["problem"]), pa.scalar(value=False))
    fits = pc.if_else(pc.is_valid(items["problem"]), problem_is_known, pc.invert(items["weak"]))
    return pc.coalesce(pc.and_(done, fits), pa.scalar(value=False))


def _looks_the_same(batch: pa.RecordBatch, before: pa.Table) -> pa.ChunkedArray:
    """Return which items have the same version, as far as that is known without reading."""
    by_stat = pc.coalesce(pc.equal(batch["stat"], before["stat"]), pa.scalar(value=False))
    by_version = pc.coalesce(pc.equal(batch["version"], before["version"]), pa.scalar(value=False))
    return pc.and_(pc.or_(by_stat, by_version), _equal(batch["problem"], before["problem"]))


def _equal(one: pa.Array | pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return where two columns are equal, nulls included."""
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both_null, pc.coalesce(pc.equal(one, other), pa.scalar(value=False)))
