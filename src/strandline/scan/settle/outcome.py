"""The outcome of a scan: the ledger rows and the findings of every listed item.

Invariants: only durable rows count, never messages of workers; an item without a row counts as not scanned, never as
clean. Settling again gives the same outcome.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import pyarrow as pa

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import ObservationId, OvidHash, PolicyHash
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.pages import Gaps
from strandline.pipeline.reads import Observed
from strandline.pipeline.stores import Stores
from strandline.scan.inventory import (
    Inventory,
    find_inventory,
    previous_finish,
    source_facts,
    touch_inventory,
    write_inventory,
)
from strandline.scan.owner_rules import keep_owner_rules
from strandline.scan.plan.planner import IsNew, Plan, Reason
from strandline.scan.plan.read_versions import delete_read_versions, inventory_index, load_read_versions, stat_cache
from strandline.scan.request import ScanRequest
from strandline.scan.run.progress import Progress
from strandline.scan.run.totals import Totals
from strandline.scan.settle.sums import ItemNote, Summing, Sums
from strandline.scan.source_visibility import Unread

PROBLEMS_MAX = 1_000
_GAPS = ("members_skipped", "decodes_skipped", "findings_dropped")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a scan: `unseen` items were listed and not scanned; `incomplete` ones have gaps."""

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
    notes: Sequence[ItemNote] = field(repr=False)
    read_findings: Callable[[], Sequence[Observed]] = field(repr=False)
    parked_shards: int = 0
    progress: Progress | None = None
    """Progress of the last run, of all its workers."""
    worked: Totals = field(default_factory=Totals)
    """Counts and times of the runs of this scan, from their cursors."""
    new_items: int = 0
    new_bytes: int = 0
    """Items and bytes in the ledger that runs of this scan wrote since it began."""
    unread: Mapping[int, Unread] = field(default_factory=dict, repr=False)

    @cached_property
    def findings(self) -> Sequence[Observed]:
        """Findings in all listed items; read at first use."""
        return self.read_findings()

    @property
    def is_whole(self) -> bool:
        """Return whether every listed item was scanned completely."""
        seen = sum(count for status, count in self.statuses.items() if status.is_scanned)
        return seen == self.items and not self.incomplete


def settle(
    stores: Stores,
    request: ScanRequest,
    plan: Plan,
    *,
    run_id: int | None,
    started_ns: int,
    is_new: IsNew,
) -> Outcome:
    """Ask the ledger about every listed item, store the inventory, and return the outcome."""
    notes = load_read_versions(stores.state, request.tenant, request.inputs_digest)
    before = find_inventory(stores.state, request.tenant, request.inputs_digest)
    cache = stat_cache(notes, inventory_index(before, stores.state, request.tenant))
    summing = Summing(stores, request, cache, is_new)
    keep_owner_rules(stores.state, request.tenant, request.sources)
    _keep_inventory(stores, request, plan, summing.added(plan.planned), run_id, started_ns)
    delete_read_versions(stores, request, notes.keys)
    return outcome_of(request, plan, summing.sums)


def outcome_of(request: ScanRequest, plan: Plan, sums: Sums) -> Outcome:
    """Return the outcome of a scan from its sums."""
    return Outcome(
        policy=request.policy_hash,
        items=plan.items,
        statuses={DoneStatus(status): count for status, count in sorted(sums.statuses.items())},
        codes=sums.codes,
        unseen=sums.unseen,
        incomplete=sums.incomplete,
        bytes_seen=sums.bytes_seen,
        gaps=Gaps(*sums.gaps),
        left_out=plan.left_out,
        reasons=plan.counts,
        notes=sums.notes,
        read_findings=partial(_read_findings, request, sums.found),
        new_items=sums.new_items,
        new_bytes=sums.new_bytes,
        unread=sums.unread,
    )


def _read_findings(request: ScanRequest, ovids: Sequence[pa.Array]) -> list[Observed]:
    """Return the observations in object versions."""
    if not ovids:
        return []
    found: list[Observed] = []
    with request.open_stores() as stores:
        for some in ovids:
            for begin in range(0, len(some), BATCH_ROWS_MAX):
                found += _observed(stores, request, some.slice(begin, BATCH_ROWS_MAX).to_pylist())
    return found


def _observed(stores: Stores, request: ScanRequest, ovids: list[OvidHash]) -> Iterator[Observed]:
    after: ObservationId | None = None
    while page := stores.reads.observed(request.tenant, request.policy_hash, ovids, after=after):
        yield from page
        after = page[-1].observation.observation_id
        if len(page) < BATCH_ROWS_MAX:
            break


def _keep_inventory(
    stores: Stores,
    request: ScanRequest,
    plan: Plan,
    items: Iterator[pa.RecordBatch],
    run_id: int | None,
    started_ns: int,
) -> None:
    """Store the listing and the outcome of each item; consumes `items`."""
    state, tenant = stores.state, request.tenant
    known = find_inventory(state, tenant, request.inputs_digest)
    head = inventory_head(stores, request, plan, known, run_id, started_ns)
    if plan.is_same and known is not None and known.policy == head.policy:  # no scan ran under another one meanwhile
        deque(items, maxlen=0)
        touch_inventory(state, tenant, head)
        return
    write_inventory(state, tenant, head, items)


def inventory_head(
    stores: Stores, request: ScanRequest, plan: Plan, known: Inventory | None, run_id: int | None, started_ns: int
) -> Inventory:
    """Return the head of a scan's inventory, with the chunks of the last one."""
    sources = source_facts(request.sources)
    return Inventory(
        request.inputs_digest.hex(),
        request.policy_hash,
        time.time_ns(),
        run_id,
        sources,
        plan.items,
        known.stamp if known else 0,
        known.chunks if known else 0,
        started_ns,
        previous_finish(stores.state, request.tenant, request.inputs_digest, sources),
        known.parts if known else (),
    )
