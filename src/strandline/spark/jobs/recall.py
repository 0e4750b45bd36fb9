"""What the last scan knew, recalled: items that look as they did, and were done under the same policy, are still done.

The ledger's rows only grow, and the inventory stands in the same database, so what the ledger said of a version then it
says now. An item is recalled if its stat data are the same and vouched for the version, or if the source itself names
the same version; nothing is hashed or looked up for it.

Invariants: only items that were done are recalled; a recalled item has the identities and the row that the long way
would give.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.ledger import DoneStatus
from strandline.spark.inputs.places import Places
from strandline.spark.jobs.facts import FACTS
from strandline.spark.jobs.versions import LISTED


class Recalled(NamedTuple):
    """Items of a batch that are recalled: which, as listed, and what the ledger says of them."""

    mask: pa.Array
    listed: pa.Table
    facts: pa.Table
    extra_is_same: bool


class Recall:
    """The inventory of the last scan of the same sources under the same policy."""

    def __init__(self, items: pa.Table) -> None:
        self.rows = len(items)
        numbers = pc.unique(items["source"]).to_pylist()
        items = items.combine_chunks()
        if len(numbers) == 1:
            whole = {numbers[0]: items}
        else:
            whole = {number: items.filter(pc.equal(items["source"], number)).combine_chunks() for number in numbers}
        self._items = {number: _done(table) for number, table in whole.items()}
        self._places = {number: Places(table["locator"].combine_chunks()) for number, table in self._items.items()}

    def recalled(self, number: int, batch: pa.RecordBatch) -> Recalled | None:
        """Return the items of a batch that are done as they were; None if none is."""
        known = self._items.get(number)
        if known is None or not len(known):
            return None
        places = self._places[number].find(batch["locator"])
        before = _taken(known, places)
        mask = pc.and_(pc.is_valid(places), _looks_the_same(batch, before))
        if not pc.any(mask).as_py():
            return None
        if pc.all(mask).as_py():
            now = pa.Table.from_batches([batch])
        else:
            now, before = pa.Table.from_batches([batch]).filter(mask), before.filter(mask)
        numbers = pa.repeat(pa.scalar(number, pa.int16()), len(now))
        sure = pa.repeat(pa.scalar(value=True), len(now))
        new = {"source": numbers, "is_sure": sure, **{name: now[name] for name in now.column_names}}
        new |= {name: before[name] for name in ("version", "item", "ovid", "weak")}
        listed = pa.table([new[name] for name in LISTED.names], schema=LISTED)
        same = pc.all(_equal(now["extra"], before["extra"])).as_py() is not False
        return Recalled(mask, listed, before.select(FACTS.names), same)


def _taken(known: pa.Table, places: pa.Array) -> pa.Table:
    """Return the rows at places; where there is no place, any."""
    if len(places) and not places.null_count and pc.all(pc.equal(pc.pairwise_diff(places)[1:], 1)).as_py() is not False:
        return known.slice(places[0].as_py(), len(places))
    return known.take(pc.fill_null(places, 0))


def _done(items: pa.Table) -> pa.Table:
    is_done = _is_done(items)
    return items if pc.all(is_done).as_py() else items.filter(is_done).combine_chunks()


def _is_done(items: pa.Table) -> pa.ChunkedArray:
    """Return which items need not be looked at if they are listed so again; see `facts.is_done`."""
    done = pc.and_(pc.is_valid(items["status"]), pc.not_equal(items["status"], int(DoneStatus.FAILED_RETRYABLE)))
    problem_is_known = pc.coalesce(pc.equal(items["code"], items["problem"]), pa.scalar(value=False))
    fits = pc.if_else(pc.is_valid(items["problem"]), problem_is_known, pc.invert(items["weak"]))
    return pc.coalesce(pc.and_(done, fits), pa.scalar(value=False))


def _looks_the_same(batch: pa.RecordBatch, before: pa.Table) -> pa.ChunkedArray:
    """Return which items have the version they had, as far as that can be told without reading."""
    by_stat = pc.coalesce(pc.equal(batch["stat"], before["stat"]), pa.scalar(value=False))
    by_version = pc.coalesce(pc.equal(batch["version"], before["version"]), pa.scalar(value=False))
    return pc.and_(pc.or_(by_stat, by_version), _equal(batch["problem"], before["problem"]))


def _equal(one: pa.Array | pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return where two columns are equal, nulls included."""
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both_null, pc.coalesce(pc.equal(one, other), pa.scalar(value=False)))
