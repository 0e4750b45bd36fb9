"""The planner: lists the sources, asks the ledger, and finds the items that are left to scan, each with the reason.

Invariants: planning writes nothing, so that a plan can be shown instead of run; an item is left out only if the ledger
has its very version done under the policy, or the problem it has; the order is that of the sources and their listings.
The planner itself reads doubtful items (a file too fresh to trust its timestamps, or one that could not be read),
within bounds, so that a scan without new items needs no workers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.identity import OvidHash
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.stores import Stores
from strandline.scan.inventory import find_inventory
from strandline.scan.plan.ledger_facts import FACTS, RowWriter, is_done, ledger_columns, ledger_rows, no_facts, with_row
from strandline.scan.plan.packed_batches import CountedBatches, PackedBatches
from strandline.scan.plan.previous_scan import PreviousScan
from strandline.scan.plan.probes import Probes
from strandline.scan.plan.read_versions import inventory_index, load_read_versions, stat_cache
from strandline.scan.plan.rule_deltas import Base, may_be_carried
from strandline.scan.plan.versions import LISTED, identified, listed_key
from strandline.scan.policies import usable_bases
from strandline.scan.request import ScanRequest
from strandline.scan.run.manifest import ROWS
from strandline.scan.sources import Source, left_out
from strandline.scan.sources.row_index import RowIndex

Listing = Callable[[int], None]
_NO_BASE = -1


class Reason(StrEnum):
    """The reason for scanning an item, or for skipping it."""

    NEW = "new"
    CHANGED = "changed"
    RETRY = "failed before"
    RULES = "rules changed"
    PROBLEM = "cannot be read"
    DONE = "done already"
    PARKED = "parked"


PLANNED = pa.schema(
    [
        *LISTED,
        *FACTS,
        pa.field("pending", pa.bool_(), nullable=False),
        pa.field("parked", pa.bool_(), nullable=False),
        pa.field("base", pa.int8(), nullable=False),
        pa.field("is_new", pa.bool_(), nullable=False),
    ]
)
"""A listed item with its ledger row; `pending` items are scanned unless `parked`; `base` is as in the manifest;
`is_new` items were done since this scan began, by its own runs."""

IsNew: TypeAlias = Callable[[LedgerRecord | RowWriter], bool]
"""Tells whether a row of the ledger was written since a scan began, by its writer."""


@dataclass(frozen=True)
class Plan:
    """Listed items with their ledger rows, and the number that is left to scan."""

    planned: PackedBatches = field(repr=False)
    """Batches of `PLANNED`, each of one source."""
    todo_items: int
    todo_bytes: int
    """Bytes of the items to scan, as far as sizes are known."""
    counts: Mapping[Reason, int]
    left_out: Mapping[str, int]
    bases: tuple[Base, ...] = field(repr=False)
    is_same: bool
    """Whether listing and ledger rows are those of the last scan."""

    @property
    def items(self) -> int:
        """Return the number of listed items."""
        return len(self.planned)

    def todo(self) -> Iterator[pa.RecordBatch]:
        """Yield the items to scan, as rows of a manifest."""
        for batch in self.planned:
            wanted = pc.and_(batch["pending"], pc.invert(batch["parked"]))
            if wanted.true_count:
                yield pa.record_batch([batch[name] for name in ROWS.names], ROWS).filter(wanted)


def _nothing_is_new(_: LedgerRecord | RowWriter) -> bool:
    return False


def plan(
    stores: Stores,
    request: ScanRequest,
    tell: Listing,
    parked: frozenset[bytes] = frozenset(),
    is_new: IsNew = _nothing_is_new,
    *,
    items_max: int | None = None,
) -> Plan | None:
    """List the sources and find the items that are left; items of parked shards are not among them.

    None if there are more items than `items_max`.
    """
    planner = Planner(stores, request, parked, is_new)
    return planner.plan() if _list(request, planner, tell, items_max) else None


def counted(stores: Stores, request: ScanRequest, tell: Listing, parked: frozenset[bytes]) -> Plan:
    """Return the counts of a plan, however many items there are, without its items."""
    planner = Planner(stores, request, parked, _nothing_is_new, planned=CountedBatches(PLANNED))
    _list(request, planner, tell)
    return planner.plan()


def _list(request: ScanRequest, planner: "Planner", tell: Listing, items_max: int | None = None) -> bool:
    """Let a planner decide about all items; return False if there are more than `items_max`."""
    for number, source in enumerate(request.sources):
        before = planner.items
        for batch in source.list_items(lambda listed, before=before: tell(before + listed)):  # type: ignore[misc]
            planner.add(number, source, batch)
            if items_max is not None and planner.items > items_max:
                return False
    return True


class Planner:
    """Builds one plan, batch by batch; of a part of a listing with what the last inventory knows of it.

    `planned` is where decided batches go, and `probes_share` the number of plans that share the bounds of probes.
    """

    def __init__(
        self,
        stores: Stores,
        request: ScanRequest,
        parked: frozenset[bytes],
        is_new: IsNew,
        *,
        known: RowIndex | None = None,
        bases: Sequence[Base] | None = None,
        planned: PackedBatches | None = None,
        probes_share: int = 1,
    ) -> None:
        self._stores = stores
        self._request = request
        self._parked = parked
        self._is_new = is_new
        self._bases = usable_bases(stores, request.tenant, request.policy.record) if bases is None else bases
        self._probes = Probes(stores, request, probes_share)
        notes = load_read_versions(stores.state, request.tenant, request.inputs_digest)
        before = find_inventory(stores.state, request.tenant, request.inputs_digest)
        self._is_first = before is None and not notes.keys
        self._known = inventory_index(before, stores.state, request.tenant) if known is None else known
        self._cache = stat_cache(notes, self._known)
        is_same_policy = before is not None and before.policy == request.policy_hash
        self._previous = PreviousScan(self._known) if is_same_policy else None
        self._is_same = True
        self._planned = PackedBatches(PLANNED) if planned is None else planned
        self._counts: Counter[Reason] = Counter()
        self._left_out: Counter[str] = Counter()
        self._todo_items = self._todo_bytes = 0
        self.items = 0

    def add(self, number: int, source: Source, batch: pa.RecordBatch) -> None:
        """Decide about a batch of a listing."""
        self._left_out.update(left_out(batch))
        if not len(batch):
            return
        self.items += len(batch)
        unchanged = self._previous.unchanged(number, batch) if self._previous else None
        if unchanged is None:
            self._is_same = False
            self._planned.append(self._decided(number, source, batch))
            return
        self._is_same &= unchanged.extra_is_same
        self._counts[Reason.DONE] += len(unchanged.listed)
        done = _planned(unchanged.listed, unchanged.facts)
        if len(done) < len(batch):
            self._is_same = False
            others = self._decided(number, source, batch.filter(pc.invert(unchanged.mask)))
            done = _merged(unchanged.mask, done, others)
        self._planned.append(done)

    def _decided(self, number: int, source: Source, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decide about items that may have changed."""
        listed = identified(number, source, batch, self._cache)
        rows = self._rows(listed)
        if not self._is_first:
            listed, rows = self._probes.resolved(source, listed, rows)
        if not any(rows):
            pending, no = (pa.repeat(pa.scalar(value=value), len(listed)) for value in (True, False))
            return _planned(listed, no_facts(len(listed)), pending, *self._left(listed, rows, pending), no)
        problems = listed["problem"].to_pylist()
        done = pa.array(map(is_done, rows, problems), pa.bool_())
        pending = pc.invert(done)
        if done.true_count:
            self._counts[Reason.DONE] += done.true_count
        left = [row for row, is_over in zip(rows, done.to_pylist(), strict=True) if not is_over]
        new = pa.array([row is not None and self._is_new(row) for row in rows], pa.bool_())
        return _planned(listed, ledger_columns(rows), pending, *self._left(listed.filter(pending), left, pending), new)

    def plan(self) -> Plan:
        """Return the plan of all batches."""
        return Plan(
            self._planned,
            self._todo_items,
            self._todo_bytes,
            self._counts,
            self._left_out,
            tuple(self._bases),
            self._is_same and self._previous is not None and self._previous.rows == self.items,
        )

    def _rows(self, listed: pa.RecordBatch) -> list[LedgerRecord | None]:
        request, ledger = self._request, self._stores.ledger
        ovids = with_row(ledger, request.tenant, request.policy_hash, listed["ovid"])
        if ovids.null_count == len(ovids):
            return [None] * len(ovids)
        return ledger_rows(ledger, request.tenant, request.policy_hash, ovids.to_pylist())

    def _left(
        self, left: pa.RecordBatch, rows: list[LedgerRecord | None], pending: pa.Array
    ) -> tuple[pa.Array, pa.Array]:
        """Count what is not done, and why; return for all items of a batch whether they are parked, and their bases."""
        no, none = pa.scalar(value=False), pa.scalar(_NO_BASE, pa.int8())
        if not (self._parked or self._bases or any(rows)):
            self._count_unseen(left)
            return pa.repeat(no, len(pending)), pa.repeat(none, len(pending))
        bases = self._bases_of(left)
        seen_before = self._seen_before(left)
        parked = self._parked_of(left) if self._parked else [False] * len(rows)
        self._counts.update(map(_reason, rows, left["problem"].to_pylist(), bases, seen_before, parked))
        for size, is_parked in zip(left["size"].to_pylist(), parked, strict=True):
            self._todo_items += not is_parked
            self._todo_bytes += 0 if is_parked else size or 0
        return (
            pc.replace_with_mask(pa.repeat(no, len(pending)), pending, pa.array(parked, no.type)),
            pc.replace_with_mask(pa.repeat(none, len(pending)), pending, pa.array(bases, none.type)),
        )

    def _count_unseen(self, left: pa.RecordBatch) -> None:
        """Count items of which nothing is known but whether the last scan had listed them."""
        is_well = pc.is_null(left["problem"])
        seen = pc.and_(is_well, pa.array(self._seen_before(left), pa.bool_())).true_count
        counts = (
            (Reason.PROBLEM, len(left) - is_well.true_count),
            (Reason.CHANGED, seen),
            (Reason.NEW, is_well.true_count - seen),
        )
        self._counts.update({reason: count for reason, count in counts if count})
        self._todo_items += len(left)
        self._todo_bytes += pc.sum(left["size"]).as_py() or 0

    def _parked_of(self, left: pa.RecordBatch) -> list[bool]:
        columns = (left[name].to_pylist() for name in ("item", "version", "stat"))
        return [listed_key(*cells) in self._parked for cells in zip(*columns, strict=True)]

    def _seen_before(self, left: pa.RecordBatch) -> list[bool]:
        """Return which items the last scan of these sources had listed."""
        if not len(left) or not len(self._known):
            return [False] * len(left)
        seen: list[bool] = self._known.has(left["source"][0].as_py(), left["locator"]).to_pylist()
        return seen

    def _bases_of(self, listed: pa.RecordBatch) -> list[int]:
        """Return for each item the first older policy that saw all of it, or -1."""
        found = [_NO_BASE] * len(listed)
        if not self._bases:
            return found
        strong = pc.if_else(listed["weak"], pa.scalar(None, listed["ovid"].type), listed["ovid"])
        ovids: list[OvidHash | None] = strong.to_pylist()
        for number, base in enumerate(self._bases):
            rows = ledger_rows(self._stores.ledger, self._request.tenant, base.policy, ovids)
            for at, row in enumerate(rows):
                if may_be_carried(row):
                    found[at], ovids[at] = number, None
        return found


def _planned(listed: pa.RecordBatch, facts: pa.RecordBatch, *flags: pa.Array) -> pa.RecordBatch:
    """Return a batch of `PLANNED`; without flags everything in it is done, and was before."""
    if not flags:
        no = pa.repeat(pa.scalar(value=False), len(listed))
        flags = (no, no, pa.repeat(pa.scalar(_NO_BASE, pa.int8()), len(listed)), no)
    return pa.record_batch([*listed.columns, *facts.columns, *flags], PLANNED)


def _merged(mask: pa.Array, chosen: pa.RecordBatch, others: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of two batches in the order of a mask that says which is from the first."""
    from_first = mask.to_numpy(zero_copy_only=False)
    order = np.where(from_first, np.cumsum(from_first) - 1, len(chosen) + np.cumsum(~from_first) - 1)
    (batch,) = pa.Table.from_batches([chosen, others]).combine_chunks().take(pa.array(order)).to_batches()
    return batch


def _reason(row: LedgerRecord | None, problem: str | None, base: int, seen_before: bool, parked: bool) -> Reason:  # noqa: FBT001
    if parked:
        return Reason.PARKED
    if problem is not None:
        return Reason.PROBLEM
    if row is not None and row.status == DoneStatus.FAILED_RETRYABLE:
        return Reason.RETRY
    if base >= 0:
        return Reason.RULES
    return Reason.CHANGED if seen_before else Reason.NEW


def explained(plan: Plan) -> Iterator[tuple[Reason, int]]:
    """Yield the reasons of a plan with their numbers of items, in a fixed order."""
    return ((reason, plan.counts[reason]) for reason in Reason if plan.counts.get(reason))
