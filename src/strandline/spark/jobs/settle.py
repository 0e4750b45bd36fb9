"""The end of a scan: what the ledger says of everything that was listed, and what was found in it.

Invariants: nothing is taken from what workers said: only what is durable counts; an item that nobody looked at is
counted as such, never as clean. Settling again gives the same.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import ObservationId, OvidHash, PolicyHash
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.pages import Gaps
from strandline.pipeline.reads import Observed
from strandline.pipeline.stores import Stores
from strandline.spark.inputs import FileSource
from strandline.spark.jobs.aftermath import looked_again
from strandline.spark.jobs.inventory import (
    ITEMS,
    Inventory,
    find_inventory,
    source_facts,
    touch_inventory,
    write_inventory,
)
from strandline.spark.jobs.plan import Plan, Reason
from strandline.spark.jobs.progress import Progress
from strandline.spark.jobs.request import ScanRequest
from strandline.spark.jobs.totals import Totals
from strandline.spark.jobs.vouched import forget_notes, inventory_rows, read_notes, stat_cache

PROBLEMS_MAX = 1_000
_GAPS = ("members_skipped", "decodes_skipped", "findings_dropped")


@dataclass(frozen=True)
class ItemNote:
    """An item that was not looked at, or not wholly, and why."""

    path: str
    code: str


@dataclass(frozen=True)
class Outcome:
    """What a scan comes to: `unseen` items were listed and not looked at; `incomplete` ones have gaps."""

    policy: PolicyHash = field(repr=False)
    items: int
    statuses: Mapping[DoneStatus, int]
    codes: Mapping[str, int]
    unseen: int
    incomplete: int
    bytes_seen: int
    gaps: Gaps
    left_out: Mapping[str, int]
    reasons: Mapping[Reason, int]
    findings: Sequence[Observed] = field(repr=False)
    notes: Sequence[ItemNote] = field(repr=False)
    parked_shards: int = 0
    progress: Progress | None = None
    """How far the last run got, whoever worked on it."""
    worked: Totals = field(default_factory=Totals)
    """What workers of this scan did, times included."""

    @property
    def is_whole(self) -> bool:
        """Return whether everything that was listed was looked at, all of it."""
        seen = sum(count for status, count in self.statuses.items() if status.is_scanned)
        return seen == self.items and not self.incomplete


def settle(
    stores: Stores,
    request: ScanRequest,
    plan: Plan,
    *,
    run: Progress | None,
    run_id: int | None,
    parked_shards: int,
    started_ns: int,
    worked: Totals,
) -> Outcome:
    """Ask the ledger about everything that was listed, keep the inventory, and return what the scan comes to."""
    notes = read_notes(stores.state, request.tenant, request.inputs_digest)
    before = find_inventory(stores.state, request.tenant, request.inputs_digest)
    cache = stat_cache(notes, lambda: inventory_rows(before, stores.state, request.tenant))
    listed, facts = looked_again(stores, request, plan, cache)
    when_ns = started_ns, time.time_ns()
    _keep_inventory(stores, request, listed, facts, run_id, when_ns, is_same=plan.is_same)
    forget_notes(stores, request, notes.keys)
    statuses = Counter(facts["status"].to_pylist() if len(facts) else [])
    unseen = statuses.pop(None, 0)
    sums = [pc.sum(facts[name]).as_py() or 0 for name in ("bytes_seen", *_GAPS)]
    with_gaps = _with_gaps(facts)
    codes = Counter(code for code in facts["code"].drop_null().to_pylist())
    found = listed["ovid"].filter(
        pc.coalesce(pc.equal(facts["status"], int(DoneStatus.SCANNED_WITH_FINDINGS)), pa.scalar(value=False))
    )
    return Outcome(
        policy=request.policy_hash,
        items=len(listed),
        statuses={DoneStatus(status): count for status, count in sorted(statuses.items())},
        codes=codes,
        unseen=unseen,
        incomplete=pc.sum(with_gaps).as_py() or 0,
        bytes_seen=sums[0],
        gaps=Gaps(*sums[1:]),
        left_out=plan.left_out,
        reasons=plan.counts,
        findings=_findings(stores, request, found),
        notes=_notes(request, listed, facts, with_gaps),
        parked_shards=parked_shards,
        progress=run,
        worked=worked,
    )


def _with_gaps(facts: pa.Table) -> pa.ChunkedArray:
    scanned = pc.greater_equal(facts["status"], int(DoneStatus.SCANNED_PARTIAL))
    gaps = pc.add(pc.add(facts[_GAPS[0]], facts[_GAPS[1]]), facts[_GAPS[2]])
    return pc.coalesce(pc.and_(scanned, pc.greater(gaps, 0)), pa.scalar(value=False))


def _findings(stores: Stores, request: ScanRequest, ovids: pa.ChunkedArray) -> list[Observed]:
    """Return what was seen in object versions."""
    found: list[Observed] = []
    for begin in range(0, len(ovids), BATCH_ROWS_MAX):
        part: list[OvidHash] = ovids.slice(begin, BATCH_ROWS_MAX).to_pylist()
        after: ObservationId | None = None
        while page := stores.reads.observed(request.tenant, request.policy_hash, part, after=after):
            found += page
            after = page[-1].observation.observation_id
            if len(page) < BATCH_ROWS_MAX:
                break
    return found


def _notes(request: ScanRequest, listed: pa.Table, facts: pa.Table, with_gaps: pa.ChunkedArray) -> list[ItemNote]:
    """Return the first items that were not looked at, or not wholly."""
    troubled = pc.or_(pc.or_(pc.is_null(facts["status"]), pc.is_valid(facts["code"])), with_gaps)
    places = pc.indices_nonzero(troubled).slice(0, PROBLEMS_MAX)
    rows = zip(
        *(listed[name].take(places).to_pylist() for name in ("source", "locator", "extra")),
        *(facts[name].take(places).to_pylist() for name in ("status", "code")),
        strict=True,
    )
    return [
        ItemNote(request.sources[number].display(locator, extra), code or ("NOT_SEEN" if status is None else "GAPS"))
        for number, locator, extra, status, code in rows
    ]


def _keep_inventory(
    stores: Stores,
    request: ScanRequest,
    listed: pa.Table,
    facts: pa.Table,
    run_id: int | None,
    when_ns: tuple[int, int],
    *,
    is_same: bool,
) -> None:
    """Keep what was listed and what became of it; `when_ns` is when the scan began and ended."""
    state, tenant = stores.state, request.tenant
    known = find_inventory(state, tenant, request.inputs_digest)
    head = Inventory(
        request.inputs_digest.hex(),
        request.policy_hash,
        when_ns[1],
        run_id,
        source_facts(request.sources),
        len(listed),
        known.stamp if known else 0,
        known.chunks if known else 0,
        when_ns[0],
    )
    if is_same and known is not None and known.policy == head.policy:  # nobody scanned under another one meanwhile
        touch_inventory(state, tenant, head)
        return
    stats = pc.if_else(listed["is_sure"], listed["stat"], pa.scalar(None, pa.binary()))
    columns = {"path": _paths(request, listed), "stat": stats}
    for table in (listed, facts):
        columns |= {name: table[name] for name in table.column_names if name in ITEMS.names and name not in columns}
    write_inventory(state, tenant, head, pa.table([columns[name] for name in ITEMS.names], schema=ITEMS))


def _paths(request: ScanRequest, listed: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return the display paths of items; those of files are their locators."""
    if all(isinstance(source, FileSource) for source in request.sources):
        return listed["locator"]
    names = (listed[name].to_pylist() for name in ("source", "locator", "extra"))
    paths = [
        request.sources[number].display(locator, extra).encode(errors="surrogateescape")
        for number, locator, extra in zip(*names, strict=True)
    ]
    return pa.array(paths, pa.binary())
