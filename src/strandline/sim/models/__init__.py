"""Small worlds for the explorer, in which every decision is made by the functions that production calls.

`LeaseModel`: one shard, several workers, and every request that any lease ever allowed, early, late and twice.
`PageCommitModel`: workers that commit pages and crash anywhere, between the writes and inside of them.
`RunModel`: a run whose orchestrators stop half-way, repeat, and contradict each other.
`SplitModel`: a shard that is split, and its parts again, by every plan that fits and some that do not.
"""

from strandline.sim.models.leases import LeaseBounds, LeaseModel
from strandline.sim.models.page_commit import PageBounds, PageCommitModel
from strandline.sim.models.runs import RunModel
from strandline.sim.models.splits import SplitBounds, SplitModel

__all__ = ["LeaseBounds", "LeaseModel", "PageBounds", "PageCommitModel", "RunModel", "SplitBounds", "SplitModel"]
