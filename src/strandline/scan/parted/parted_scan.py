"""The driver's side of a large scan: cuts the sources, lets tasks plan and settle, and adds up their answers.

Invariants: it holds counts, ids of chunks, and keys of items with findings, never items; the order of parts is that of
the plan; the head of an inventory is written after all its parts, and chunks are deleted after the head.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from strandline.errors import Conflict
from strandline.pipeline.stores import Stores
from strandline.scan.inventory import (
    CHUNK_ROWS,
    Inventory,
    InventoryPart,
    delete_chunks,
    find_inventory,
    touch_inventory,
)
from strandline.scan.owner_rules import keep_owner_rules
from strandline.scan.parted.part_planner import PART_ROWS_MAX, plan_part
from strandline.scan.parted.part_settler import settle_part
from strandline.scan.parted.part_tasks import (
    KnownParts,
    NewRows,
    PartedPlan,
    PlannedPart,
    PlanTask,
    SettleTask,
    bounds_of,
)
from strandline.scan.plan.packed_batches import PackedBatches
from strandline.scan.plan.planner import PLANNED, Reason
from strandline.scan.plan.read_versions import NoteRows, delete_read_versions, read_version_keys
from strandline.scan.policies import usable_bases
from strandline.scan.request import ScanRequest
from strandline.scan.run.manifest import delete_numbered, format_chunk_key, manifest_of
from strandline.scan.run.orphan_manifests import forget_manifest, record_manifest
from strandline.scan.settle.outcome import Outcome, inventory_head, outcome_of
from strandline.scan.settle.sums import Sums
from strandline.scan.sources import Source
from strandline.scan.sources.listing_parts import (
    ListingPart,
    PartedSource,
    SplitSource,
    cut_of,
    fit_together,
    listing_parts,
)
from strandline.scan.workers import PartWorkers

FIRST_PARTS = 256


def plan_parts(
    stores: Stores,
    request: ScanRequest,
    workers: PartWorkers,
    parked: frozenset[bytes],
    is_new: NewRows,
    tell: Callable[[int], None],
) -> PartedPlan:
    """Let tasks list the sources and find the items that are left."""
    manifest, number = secrets.randbits(63), secrets.randbits(63)
    for one in (manifest, number):
        record_manifest(stores.state, request.tenant, request.digest, one, time.time_ns())
    before = _last(stores, request)
    bases = tuple(usable_bases(stores, request.tenant, request.policy.record))
    cut = _cut(request, before)
    known = KnownParts(() if before is None else before.stored_parts)
    fits = [fit_together(source, _last_parts(before, at)) for at, source in enumerate(request.sources)]
    parts: list[PlannedPart] = []
    items, first = 0, len(cut)
    while cut:  # again with what was left of parts that were too large
        tasks = [
            PlanTask(
                source,
                part,
                known.of(source, part, are_like=fits[source]),
                manifest,
                number,
                bases,
                parked,
                is_new,
                first,
            )
            for source, part in cut
        ]
        cut = []
        for done in workers.map_parts(plan_part, request, tasks):
            parts.append(done)
            cut += [(done.task.source, part) for part in done.rest]
            items += done.items
            tell(items)
    parts.sort(key=lambda done: (done.task.source, done.task.part.start))
    return _together(parts, manifest, number)


class CutSource(NamedTuple):
    """A source's name, the number of parts of its listing, and how they are cut, or why there is one."""

    name: str
    parts: int
    cut: str


def cut_sources(stores: Stores, request: ScanRequest) -> list[CutSource]:
    """Return how tasks would list the sources of a large scan; some are asked for a few of their items."""
    counts = Counter(number for number, _ in _cut(request, _last(stores, request)))
    return [CutSource(source.name, counts[number], cut_of(source)) for number, source in enumerate(request.sources)]


def settle_parts(
    stores: Stores,
    request: ScanRequest,
    plan: PartedPlan,
    workers: PartWorkers,
    *,
    run_id: int | None,
    started_ns: int,
    is_new: NewRows,
) -> Outcome:
    """Let tasks settle the parts that have changed, store the inventory, and return the outcome."""
    notes = read_version_keys(stores.state, request.tenant, request.inputs_digest)
    known = find_inventory(stores.state, request.tenant, request.inputs_digest)
    targets = _targets(plan, known)
    tasks = _settle_tasks(plan, targets, is_new, run_id)
    settled = iter(workers.map_parts(settle_part, request, tasks))
    sums = Sums()
    for part in plan.parts:
        sums.merge(next(settled) if part.sums is None else part.sums)
    keep_owner_rules(stores.state, request.tenant, request.sources)
    known = find_inventory(stores.state, request.tenant, request.inputs_digest)
    _targets(plan, known)  # settling takes long, and another scan deletes the chunks of parts that it replaced
    head = inventory_head(stores, request, plan, known, run_id, started_ns)
    new = replace(head, stamp=plan.number, chunks=0, parts=tuple(targets))
    touch_inventory(stores.state, request.tenant, new)
    if known is not None:
        delete_chunks(stores.state, request.tenant, sorted(set(known.chunk_keys()) - set(new.chunk_keys())))
    delete_read_versions(stores, request, notes)
    discard_plan(stores, request, plan)
    return outcome_of(request, plan, sums)


def discard_plan(stores: Stores, request: ScanRequest, plan: PartedPlan) -> None:
    """Delete the chunks of a plan; its manifest is its run's, if it has one."""
    planned = [format_chunk_key(plan.number, named) for part in plan.parts for named in part.planned]
    delete_chunks(stores.state, request.tenant, planned)
    numbers = [plan.number] if plan.todo_items else [plan.number, plan.manifest.number]
    for number in numbers:  # also what tasks wrote that were repeated
        delete_numbered(stores.state, request.tenant, number)
        forget_manifest(stores.state, request.tenant, request.digest, number)


def _last(stores: Stores, request: ScanRequest) -> Inventory | None:
    return find_inventory(stores.state, request.tenant, request.inputs_digest)


def _cut(request: ScanRequest, before: Inventory | None) -> list[tuple[int, ListingPart]]:
    """Return the parts of all sources, in order: those of the last inventory, unless one has grown too large."""
    cut: list[tuple[int, ListingPart]] = []
    for number, source in enumerate(request.sources):
        last = [] if before is None else [one for one in before.parts if one.source == number]
        parts = _last_parts(before, number)
        is_small = max((one.rows for one in last), default=0) <= _rows_max(source)
        if not (parts and fit_together(source, parts) and (is_small or not isinstance(source, PartedSource))):
            count = max(FIRST_PARTS, 2 * sum(one.rows for one in last) // PART_ROWS_MAX)
            parts = list(listing_parts(source, count))
        cut += [(number, part) for part in parts]
    return cut


def _rows_max(source: Source) -> int:
    """Return the rows with which a part stays as it is.

    One that its source ends while it is listed ends behind a group of items, with a few more than the bound: cutting
    all parts anew would bring it again, and each scan would write what has not changed.
    """
    return 2 * PART_ROWS_MAX if isinstance(source, SplitSource) else PART_ROWS_MAX


def _last_parts(before: Inventory | None, source: int) -> list[ListingPart]:
    return [] if before is None else [bounds_of(one)[1] for one in before.parts if one.source == source]


def _together(parts: Sequence[PlannedPart], manifest: int, number: int) -> PartedPlan:
    counts: Counter[Reason] = Counter()
    left_out: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
        left_out.update(part.left_out)
    bases = parts[0].task.bases
    return PartedPlan(
        planned=PackedBatches(PLANNED),
        todo_items=sum(part.todo_items for part in parts),
        todo_bytes=sum(part.todo_bytes for part in parts),
        counts=counts,
        left_out=left_out,
        bases=bases,
        is_same=all(part.sums is not None for part in parts),
        parts=tuple(parts),
        manifest=manifest_of(manifest, [one for part in parts for one in part.manifest], [b.policy for b in bases]),
        number=number,
    )


def _targets(plan: PartedPlan, known: Inventory | None) -> list[InventoryPart]:
    """Return the parts of the new inventory; those that are the same stay where they are."""
    stored = set() if known is None else set(known.parts)
    targets: list[InventoryPart] = []
    first = 0
    for part in plan.parts:
        if part.sums is not None:
            (kept,) = part.task.known
            if kept not in stored:
                raise Conflict(
                    "another scan of the same sources ended meanwhile",
                    hint="run the same command again: what was scanned is stored",
                )
            targets.append(kept)
            continue
        chunks = -(-part.items // CHUNK_ROWS)
        start, end = part.task.part
        ends = None if end is None else end.hex()
        targets.append(InventoryPart(part.task.source, start.hex(), ends, part.items, plan.number, first, chunks))
        first += chunks
    return targets


def _settle_tasks(
    plan: PartedPlan, targets: Sequence[InventoryPart], is_new: NewRows, run_id: int | None
) -> list[SettleTask]:
    ends = list(accumulate(sum(chunk.rows for chunk in part.manifest) for part in plan.parts))
    tasks = []
    for part, target, end in zip(plan.parts, targets, ends, strict=True):
        if part.sums is None:
            start = end - sum(chunk.rows for chunk in part.manifest)
            rows = None if run_id is None else NoteRows(run_id, start, end)
            tasks.append(SettleTask(part, target, is_new, rows))
    return tasks
