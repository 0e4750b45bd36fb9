"""Small worlds for the explorer, in which every decision is made by the functions that production calls.

Of coordination and pipelines:
`LeaseModel`: one shard, several workers, and every request that any lease ever allowed, early, late and twice.
`LeadershipModel`: candidates for one lease in a shared store, paused, restarted, told late or never.
`PageCommitModel`: workers that commit pages and crash anywhere, between the writes and inside of them.
`RunModel`: a run whose orchestrators stop half-way, repeat, and contradict each other.
`SplitModel`: a shard that is split, and its parts again, by every plan that fits and some that do not.
`ObjectModel`: production code over a store of objects, request by request; `object_coordination` is coordination.

Of folds:
`CursorModel`: batches that a store takes, refuses, tears, or takes without saying so.
`FleetModel`: exporters, removals and newcomers over one bucket that evicts, request by request.
`LiveWatchModel`: a watcher that falls behind a log which evicts; with a sentinel if it watches some keys only.
`AgedGapModel`: a hole after a cursor that is too young for evictions, by clocks that disagree.
`EvictionModel`: what retention, deletes, a time to live and a purge remove, and what a mirror or an archive follows.
`RepairOrderModel`: a repair step by step, cut off anywhere, while the bucket goes on.
`RepairPlanModel`: buckets that evict in every way, with settings that are edited, and what a fold is repaired from.
"""

from tests.models.aged_gap import AgedBounds, AgedGapModel
from tests.models.cursors import CursorBounds, CursorModel
from tests.models.evictions import EvictionBounds, EvictionModel
from tests.models.fleet import FleetBounds, FleetModel
from tests.models.leadership import LeadershipBounds, LeadershipModel
from tests.models.leases import LeaseBounds, LeaseModel
from tests.models.live_watch import LiveBounds, LiveWatchModel
from tests.models.page_commit import PageBounds, PageCommitModel
from tests.models.repair_order import OrderBounds, RepairOrderModel
from tests.models.repair_planning import PlanBounds, RepairPlanModel
from tests.models.runs import RunModel
from tests.models.splits import SplitBounds, SplitModel

__all__ = [
    "AgedBounds",
    "AgedGapModel",
    "CursorBounds",
    "CursorModel",
    "EvictionBounds",
    "EvictionModel",
    "FleetBounds",
    "FleetModel",
    "LeadershipBounds",
    "LeadershipModel",
    "LeaseBounds",
    "LeaseModel",
    "LiveBounds",
    "LiveWatchModel",
    "OrderBounds",
    "PageBounds",
    "PageCommitModel",
    "PlanBounds",
    "RepairOrderModel",
    "RepairPlanModel",
    "RunModel",
    "SplitBounds",
    "SplitModel",
]
