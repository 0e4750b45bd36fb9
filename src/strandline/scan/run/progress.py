"""Progress of a run: the sum over its shards, from the coordinator alone; and its rates, from two such sums.

Invariants: counts are of what is committed; they are at most behind, by the pages in the making. Everything but
`progress_of` is pure.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from strandline.pipeline.coordination import Coordinator
from strandline.protocol.shards import ShardRecord, ShardStatus
from strandline.scan.run.manifest import Manifest
from strandline.scan.run.scan_run import ScanRun, all_shards
from strandline.scan.run.totals import Totals, parse_totals


class Progress(NamedTuple):
    """Counts of a run, its totals, and its shards by status; `bytes_todo` is from the listing."""

    done: Totals
    items_todo: int
    bytes_todo: int
    shards_active: int
    shards_done: int
    shards_parked: int


class Rates(NamedTuple):
    """Rates of a run, and the time left; None if that is unknown."""

    items_per_s: float
    bytes_per_s: float
    left_s: float | None


def progress_of(coordinator: Coordinator, run: ScanRun) -> Progress:
    """Return the progress of a run."""
    return summed(run.manifest, all_shards(coordinator, run.key))


def summed(manifest: Manifest, shards: Sequence[ShardRecord]) -> Progress:
    """Return the progress of a run from its shards."""
    done = reduce(Totals.plus, (parse_totals(shard.cursor.token) for shard in shards), Totals())
    states = [shard.status for shard in shards]
    counts = (states.count(state) for state in (ShardStatus.ACTIVE, ShardStatus.DONE, ShardStatus.PARKED))
    return Progress(done, manifest.rows, manifest.bytes_listed, *counts)


def rates(before: Progress, now: Progress, seconds: float) -> Rates:
    """Return the rates between two progresses, and the time left at these rates."""
    if seconds <= 0:
        return Rates(0.0, 0.0, None)
    items, size = (getattr(now.done, name) - getattr(before.done, name) for name in ("items", "bytes"))
    left_items = max(0, now.items_todo - now.done.items)
    left_bytes = max(0, now.bytes_todo - now.done.bytes)
    waits = [left * seconds / made for left, made in ((left_items, items), (left_bytes, size)) if made]
    left_s = (max(waits) if waits else None) if left_items else 0.0
    return Rates(items / seconds, size / seconds, left_s)
