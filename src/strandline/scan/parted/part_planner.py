"""The task that plans a part: lists it, joins it with the last inventory, asks the ledger, and writes chunks.

Invariants: an item is decided as `plan.planner` decides it; a chunk is durable before its id is answered.
"""

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from strandline.pipeline.state import GatheredPuts, Put
from strandline.pipeline.stores import Stores
from strandline.scan.arrow_chunks import format_table, rechunked
from strandline.scan.inventory import CHUNK_ROWS, ITEMS, InventoryPart, find_inventory
from strandline.scan.parted.kept_stores import kept_stores
from strandline.scan.parted.part_tasks import PlannedPart, PlanTask
from strandline.scan.plan.planner import PLANNED, Plan, Planner
from strandline.scan.plan.read_versions import ReadVersions, stat_cache
from strandline.scan.request import ScanRequest
from strandline.scan.run.manifest import format_chunk_key, write_chunks
from strandline.scan.settle.sums import Summing, Sums
from strandline.scan.sources import Source
from strandline.scan.sources.listing_parts import ListingPart, SplitSource, list_part, rest_of
from strandline.scan.sources.row_index import RowIndex

PART_ROWS_MAX = 200_000
"""A part with more rows is cut again: at once, where its source can, or by the next scan."""
SPLITS = 8
"""Parts of what is left of a part that was too large."""


def plan_part(request: ScanRequest, task: PlanTask) -> PlannedPart:
    """List a part and decide about its items."""
    with kept_stores(request, task.plan, "plan") as stores:
        known = known_rows(stores, request, task.known)
        planner = Planner(
            stores, request, task.parked, task.is_new, known=known, bases=task.bases, probes_share=task.tasks
        )
        source = request.sources[task.source]
        end: bytes | None = None
        for batch in _listed(source, task.part):
            planner.add(task.source, source, batch)
            end = rest_of(batch)
        plan = planner.plan()
        rest: tuple[ListingPart, ...] = ()
        if end is not None and isinstance(source, SplitSource):
            rest = tuple(source.split(ListingPart(end, task.part.end), SPLITS))
            task = replace(task, part=ListingPart(task.part.start, end))
        done = PlannedPart(
            task, plan.items, plan.todo_items, plan.todo_bytes, dict(plan.counts), dict(plan.left_out), rest=rest
        )
        if plan.is_same and task.is_aligned:
            return replace(done, sums=_sums(stores, request, task, plan, known))
        puts = GatheredPuts(stores.state, request.tenant)
        chunks = tuple(write_chunks(puts, task.manifest, plan.todo()))
        planned = _written(puts, task, plan)
        puts.flush()
        return replace(done, manifest=chunks, planned=planned)


def _listed(source: Source, part: ListingPart) -> Iterator[pa.RecordBatch]:
    """List a part; one that has too many items may end sooner."""
    if isinstance(source, SplitSource):
        return source.list_some(part, lambda _: None, PART_ROWS_MAX)
    return list_part(source, part, lambda _: None)


def known_rows(stores: Stores, request: ScanRequest, parts: tuple[InventoryPart, ...]) -> RowIndex:
    """Return the rows of parts of the last inventory; chunks that were replaced meanwhile have none."""
    head = find_inventory(stores.state, request.tenant, request.inputs_digest)
    chunks = [] if head is None else [c for part in parts for c in head.chunks_of(part, stores.state, request.tenant)]
    return RowIndex(ITEMS, chunks, is_unique=True)


def _sums(stores: Stores, request: ScanRequest, task: PlanTask, plan: Plan, known: RowIndex) -> Sums:
    summing = Summing(stores, request, stat_cache(ReadVersions((), ()), known), task.is_new)
    for batch in plan.planned:
        summing.add(batch)
    return summing.sums


def _written(puts: GatheredPuts, task: PlanTask, plan: Plan) -> tuple[int, ...]:
    ids: list[int] = []
    for table in rechunked(plan.planned, PLANNED, CHUNK_ROWS):
        ids.append(secrets.randbits(63))
        puts.add(Put(format_chunk_key(task.plan, ids[-1]), format_table(table)))
    return tuple(ids)
