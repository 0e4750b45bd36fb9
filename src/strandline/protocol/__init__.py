"""The decisions of the system as pure functions, shared by production code and the exhaustive model.

**Promise.** A decision takes values, the time among them, and returns values or raises; it reads no clock, file or
socket, and production makes it with the same function. So what the explorer (`strandline.sim.explore`) shows of these
functions holds for the code that runs.

**Parts.** `shards` and `runs` are records and their invariants; `leases`, `splits` and `runs` decide what becomes of
them; `guards` are the checks, one promise each, and `operations` the memory that makes repeating safe. `keyspace` is
the algebra of ranges, `cooldown` when to claim again, `canonical` one encoding for everything that is hashed. Folds
ask `windows` whether a log still reaches back, `flushes` what a cursor may name, `fold_modes` what leaves them with the
bucket, and `repairs` what to do when a cursor named too little. `leadership` decides who holds a lease in a shared
store.

**Trade-offs.** Records are tuples, compared and hashed as such: a model holds millions of them. Guards are called as
attributes of their module, so that a test can take one away and show what it was for.
"""

from strandline.protocol.leases import Acquired, Decided
from strandline.protocol.runs import InitialShard, Progress, RunRecord, RunStatus
from strandline.protocol.shards import (
    Cursor,
    CursorSemantics,
    Lease,
    OpKind,
    Outcome,
    ParkReason,
    RunKey,
    ShardKey,
    ShardRecord,
    ShardSpec,
    ShardStatus,
)
from strandline.protocol.splits import ResidualPlan

__all__ = [
    "Acquired",
    "Cursor",
    "CursorSemantics",
    "Decided",
    "InitialShard",
    "Lease",
    "OpKind",
    "Outcome",
    "ParkReason",
    "Progress",
    "ResidualPlan",
    "RunKey",
    "RunRecord",
    "RunStatus",
    "ShardKey",
    "ShardRecord",
    "ShardSpec",
    "ShardStatus",
]
