"""The decisions of the system as pure functions, shared by production code and the exhaustive model.

**Promise.** A decision takes values, the time among them, and returns values or raises; it reads no clock, file or
socket. Production calls the same functions that the explorer (`strandline.sim.explore`) checks, so its results hold for
the code that runs.

**Parts.** `shards` and `runs` are records and their invariants; `leases`, `splits` and `runs` decide their changes;
`guards` are the checks, one promise each; `operations` remembers results, so that a repeated operation is safe.
`keyspace` is the algebra of ranges, `cooldown` the backoff of claims, `canonical` the encoding of hashed values. For
folds, `windows` decides whether a log still covers a cursor, `flushes` which cursor may be stored, `fold_modes` which
entries leave with the bucket, and `repairs` how to repair a fold whose cursor has expired. `leadership` decides the
holder of a lease in a shared store, and `artifacts` when the pointer to one may move and what may be removed.

**Trade-offs.** Records are tuples, compared and hashed as such: a model holds millions of them. Guards are called as
attributes of their module, so that a test can remove one and show the failure that it prevents.
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
