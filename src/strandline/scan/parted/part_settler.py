"""The task that settles a part: its planned items with what the run brought, as a part of the inventory and as sums.

Invariant: a part that is settled twice has the same rows under the same keys.
"""

from collections.abc import Iterator

import pyarrow as pa

from strandline.pipeline.state import GatheredPuts, Put
from strandline.pipeline.stores import Stores
from strandline.scan.arrow_chunks import parse_table, rechunked
from strandline.scan.errors import ManifestBroken
from strandline.scan.inventory import CHUNK_ROWS, ITEMS, format_items, format_part_key
from strandline.scan.parted.kept_stores import kept_stores
from strandline.scan.parted.part_planner import known_rows
from strandline.scan.parted.part_tasks import SettleTask
from strandline.scan.plan.planner import PLANNED
from strandline.scan.plan.read_versions import NoteRows, load_read_versions, stat_cache
from strandline.scan.request import ScanRequest
from strandline.scan.run.manifest import format_chunk_key
from strandline.scan.settle.sums import Summing, Sums


def settle_part(request: ScanRequest, task: SettleTask) -> Sums:
    """Settle a part; store its part of the inventory, and return its sums."""
    with kept_stores(request, task.part.task.plan, "settle") as stores:
        sums = _settled(stores, request, task, task.rows)
        if sums.unseen and task.rows is not None:  # what was read may stand in the notes of another run
            sums = _settled(stores, request, task, None)
        return sums


def _settled(stores: Stores, request: ScanRequest, task: SettleTask, rows: NoteRows | None) -> Sums:
    notes = load_read_versions(stores.state, request.tenant, request.inputs_digest, rows)
    cache = stat_cache(notes, known_rows(stores, request, task.part.task.known))
    summing = Summing(stores, request, cache, task.is_new)
    items = summing.added(_planned(stores, request, task))
    puts = GatheredPuts(stores.state, request.tenant)
    for at, chunk in enumerate(rechunked(items, ITEMS, CHUNK_ROWS)):
        puts.add(Put(format_part_key(request.inputs_digest, task.target, at), format_items(chunk)))
    puts.flush()
    return summing.sums


def _planned(stores: Stores, request: ScanRequest, task: SettleTask) -> Iterator[pa.RecordBatch]:
    for named in task.part.planned:
        (data,) = stores.state.multi_get(request.tenant, [format_chunk_key(task.part.task.plan, named)])
        if data is None:
            raise ManifestBroken("a chunk of the plan is gone")
        yield from parse_table(data, PLANNED).combine_chunks().to_batches()
