"""The plan of a scan: everything is listed, the ledger is asked, and what is left to do is named, with the reason.

Invariants: planning writes nothing, so that a plan can be shown instead of run; an item is left out only if the ledger
has its very version done under the policy, or the problem it has; the order is that of the sources and their listings.
What a former look left in doubt (a file too fresh to trust its timestamps, or one that could not be read) is read here,
within bounds, so that a scan with nothing to do needs no workers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.identity import OvidHash
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.stores import Stores
from strandline.spark.inputs import Source, left_out
from strandline.spark.jobs.deltas import Base, may_be_carried
from strandline.spark.jobs.facts import FACTS, facts_of, is_done, ledger_rows
from strandline.spark.jobs.inventory import ITEMS, find_inventory
from strandline.spark.jobs.manifest import ROWS
from strandline.spark.jobs.policies import usable_bases
from strandline.spark.jobs.probes import Probes
from strandline.spark.jobs.recall import Recall
from strandline.spark.jobs.request import ScanRequest
from strandline.spark.jobs.versions import LISTED, identified
from strandline.spark.jobs.vouched import inventory_rows, read_notes, stat_cache

Listing = Callable[[int], None]


class Reason(StrEnum):
    """Why an item is looked at, or is not."""

    NEW = "new"
    CHANGED = "changed"
    RETRY = "failed before"
    RULES = "rules changed"
    PROBLEM = "cannot be read"
    DONE = "done already"
    PARKED = "parked"


@dataclass(frozen=True)
class Plan:
    """What was listed, what the ledger says of it, and what is left to do, row for row."""

    listed: pa.Table = field(repr=False)
    facts: pa.Table = field(repr=False)
    pending: pa.Array = field(repr=False)
    todo: pa.Table = field(repr=False)
    counts: Mapping[Reason, int]
    left_out: Mapping[str, int]
    bases: tuple[Base, ...] = field(repr=False)
    is_same: bool
    """Whether the listing, and what the ledger says of it, is that of the last scan."""

    @property
    def items(self) -> int:
        """Return how many items were listed."""
        return len(self.listed)

    @property
    def todo_bytes(self) -> int:
        """Return how many bytes the items to look at have, as far as that is known."""
        total: int = pc.sum(self.todo["size"]).as_py() or 0
        return total


def plan(stores: Stores, request: ScanRequest, tell: Listing, parked: frozenset[bytes] = frozenset()) -> Plan:
    """List the sources and decide what is left to do; `parked` are items that wait for somebody to look at them."""
    planner = _Planner(stores, request, parked)
    for number, source in enumerate(request.sources):
        before = planner.items
        for batch in source.list_items(lambda listed, before=before: tell(before + listed)):  # type: ignore[misc]
            planner.add(number, source, batch)
    return planner.plan()


class _Planner:
    """Gathers batches; one for each plan."""

    def __init__(self, stores: Stores, request: ScanRequest, parked: frozenset[bytes]) -> None:
        self._stores = stores
        self._request = request
        self._parked = parked
        self._bases = usable_bases(stores, request.tenant, request.policy.record)
        self._probes = Probes(stores, request)
        notes = read_notes(stores.state, request.tenant, request.inputs_digest)
        before = find_inventory(stores.state, request.tenant, request.inputs_digest)
        known = inventory_rows(before, stores.state, request.tenant)
        self._is_first = known is None and not notes.keys
        self._known = ITEMS.empty_table() if known is None else known
        self._cache = stat_cache(notes, lambda: known)
        is_same_policy = before is not None and before.policy == request.policy_hash
        self._recall = Recall(self._known) if is_same_policy else None
        self._is_same = True
        self._listed: list[pa.Table] = []
        self._facts: list[pa.Table] = []
        self._pending: list[pa.Array] = []
        self._todo: list[pa.RecordBatch] = []
        self._counts: Counter[Reason] = Counter()
        self._left_out: Counter[str] = Counter()
        self.items = 0

    def add(self, number: int, source: Source, batch: pa.RecordBatch) -> None:
        """Decide about a batch of a listing."""
        self._left_out.update(left_out(batch))
        if not len(batch):
            return
        self.items += len(batch)
        recalled = self._recall.recalled(number, batch) if self._recall else None
        if recalled is None:
            self._is_same = False
            self._decide(number, source, batch)
            return
        self._is_same &= recalled.extra_is_same
        self._keep(recalled.listed, recalled.facts, len(recalled.listed))
        if len(recalled.listed) < len(batch):
            self._is_same = False
            self._decide(number, source, batch.filter(pc.invert(recalled.mask)))

    def _decide(self, number: int, source: Source, batch: pa.RecordBatch) -> None:
        """Decide about items that are not recalled."""
        listed = identified(number, source, batch, self._cache)
        rows = self._rows(listed)
        if not self._is_first:
            listed, rows = self._probes.resolved(source, listed, rows)
        problems = listed["problem"].to_pylist()
        done = pa.array(map(is_done, rows, problems), pa.bool_())
        pending = pc.invert(done)
        self._keep(pa.Table.from_batches([listed]), pa.Table.from_batches([facts_of(rows)]), done.true_count, pending)
        if done.true_count < len(done):
            left = [row for row, is_over in zip(rows, done.to_pylist(), strict=True) if not is_over]
            self._leave(listed.filter(pending), left)

    def _keep(self, listed: pa.Table, facts: pa.Table, done: int, pending: pa.Array | None = None) -> None:
        self._listed.append(listed)
        self._facts.append(facts)
        self._pending.append(pa.repeat(pa.scalar(value=False), len(listed)) if pending is None else pending)
        if done:
            self._counts[Reason.DONE] += done

    def plan(self) -> Plan:
        """Return what all batches come to."""
        return Plan(
            pa.concat_tables([LISTED.empty_table(), *self._listed]),
            pa.concat_tables([FACTS.empty_table(), *self._facts]),
            pa.concat_arrays(self._pending) if self._pending else pa.array([], pa.bool_()),
            pa.Table.from_batches(self._todo, ROWS),
            self._counts,
            self._left_out,
            tuple(self._bases),
            self._is_same and self._recall is not None and self._recall.rows == self.items,
        )

    def _rows(self, listed: pa.RecordBatch) -> list[LedgerRecord | None]:
        request = self._request
        return ledger_rows(self._stores.ledger, request.tenant, request.policy_hash, listed["ovid"].to_pylist())

    def _leave(self, listed: pa.RecordBatch, rows: list[LedgerRecord | None]) -> None:
        """Put what is not done into the manifest, with its base; count why."""
        bases = self._bases_of(listed)
        seen_before = pc.is_in(listed["item"], self._known["item"].combine_chunks()).to_pylist()
        parked = [item in self._parked for item in listed["item"].to_pylist()] if self._parked else [False] * len(rows)
        problems = listed["problem"].to_pylist()
        reasons = list(map(_reason, rows, problems, bases, seen_before, parked))
        self._counts.update(reasons)
        columns = [listed[name] for name in ROWS.names[:-1]]
        todo = pa.record_batch([*columns, pa.array(bases, pa.int8())], ROWS)
        self._todo.append(todo.filter(pa.array([not one for one in parked], pa.bool_())))

    def _bases_of(self, listed: pa.RecordBatch) -> list[int]:
        """Return for each item the first older policy that saw all of it, or -1."""
        found = [-1] * len(listed)
        strong = pc.if_else(listed["weak"], pa.scalar(None, listed["ovid"].type), listed["ovid"])
        ovids: list[OvidHash | None] = strong.to_pylist()
        for number, base in enumerate(self._bases):
            rows = ledger_rows(self._stores.ledger, self._request.tenant, base.policy, ovids)
            for at, row in enumerate(rows):
                if may_be_carried(row):
                    found[at], ovids[at] = number, None
        return found


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
    """Yield why items are looked at and why not, in a fixed order, without reasons that no item has."""
    return ((reason, plan.counts[reason]) for reason in Reason if plan.counts.get(reason))
