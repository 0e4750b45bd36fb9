"""The task that plans a part: lists it, joins it with the last inventory, asks the ledger, and writes chunks.

Invariants: an item is decided as `plan.planner` decides it; a chunk is durable before its id is answered.
"""

import secrets
from collections import deque

from strandline.pipeline.state import Put
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
from strandline.scan.sources.listing_parts import list_part
from strandline.scan.sources.row_index import RowIndex


def plan_part(request: ScanRequest, task: PlanTask) -> PlannedPart:
    """List a part and decide about its items."""
    with kept_stores(request, task.plan) as stores:
        known = known_rows(stores, request, task.known)
        planner = Planner(
            stores, request, task.parked, task.is_new, known=known, bases=task.bases, probes_share=task.tasks
        )
        source = request.sources[task.source]
        for batch in list_part(source, task.part, lambda _: None):
            planner.add(task.source, source, batch)
        plan = planner.plan()
        done = PlannedPart(task, plan.items, plan.todo_items, plan.todo_bytes, dict(plan.counts), dict(plan.left_out))
        if plan.is_same and task.is_aligned:
            return _with(done, sums=_sums(stores, request, task, plan, known))
        chunks = tuple(write_chunks(stores.state, request.tenant, task.manifest, plan.todo()))
        return _with(done, manifest=chunks, planned=_written(stores, request, task, plan))


def known_rows(stores: Stores, request: ScanRequest, parts: tuple[InventoryPart, ...]) -> RowIndex:
    """Return the rows of parts of the last inventory; chunks that were replaced meanwhile have none."""
    head = find_inventory(stores.state, request.tenant, request.inputs_digest)
    chunks = [] if head is None else [c for part in parts for c in head.chunks_of(part, stores.state, request.tenant)]
    return RowIndex(ITEMS, chunks, is_unique=True)


def _sums(stores: Stores, request: ScanRequest, task: PlanTask, plan: Plan, known: RowIndex) -> Sums:
    summing = Summing(stores, request, stat_cache(ReadVersions((), ()), known), task.is_new)
    deque(summing.added(plan.planned), maxlen=0)
    return summing.sums


def _written(stores: Stores, request: ScanRequest, task: PlanTask, plan: Plan) -> tuple[int, ...]:
    ids: list[int] = []
    for table in rechunked(plan.planned, PLANNED, CHUNK_ROWS):
        ids.append(secrets.randbits(63))
        stores.state.apply_batch(request.tenant, [Put(format_chunk_key(task.plan, ids[-1]), format_table(table))])
    return tuple(ids)


def _with(part: PlannedPart, **fields: object) -> PlannedPart:
    return PlannedPart(**{**vars(part), **fields})
