"""At most one holder, with a fence that only grows: a lease in object storage or in a bucket.

**Promise.** At most one process holds a lease, and every tenure has a greater epoch than any before it. A holder steps
down by itself in time, also when its store does not answer, its renewals hang, or the process was paused.

**Invariants.** No clock of another machine is ever compared, and no wall clock is read. A holder counts from before it
sent its last successful write, and gives up a margin early; others count on their own monotonic clock from when they
first saw that very record. Everything is a conditional write, releasing too: the record is never deleted, so the epoch
survives. A write without a plain answer is read back, and is ours if session and nonce are. Decisions are pure
functions (`strandline.protocol.leadership`), explored exhaustively with pauses, drifting clocks, lost answers and late
requests (`tests.models.LeadershipModel`).

**Format.** One JSON object: epoch, holder, address, session, nonce, ttl, released (docs/formats/lease.md).

**Parts.** `Lease` is kept by a thread of its own: `acquire`, `check`, `release`, `health`. `Claimant` is the same
without a thread. `LeaseStore` is where the record is: `ObjectLeaseStore` (ETag), `BucketLeaseStore` (revision), or what
`open_lease_store` finds at an address; over `MemoryObjects` it is the twin for tests.

**Trade-offs.** A lease alone never fences data: a process may be paused between `check` and its write. So the epoch
goes into what is written, under a name that two writers would both choose, and `Fence.check_over` refuses a lower one.
A record that cannot be read is not stolen, for its epoch is unknown; an operator decides. Who deletes the record by
hand takes the promise away for a moment: see docs/lease.md.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names
from strandline.lease.addresses import open_lease_store
from strandline.lease.claimant import Claimant, LeaseTiming, revoke
from strandline.lease.errors import (
    FenceStale,
    InvalidLease,
    LeaseDamaged,
    LeaseHeld,
    LeaseLost,
    LeaseUnanswered,
    LeaseWriteUnanswered,
)
from strandline.lease.holder import Fence, LeaderSeen, Lease, LeaseEnded, LeaseHealth, LeaseTaken, LeaseTrouble
from strandline.lease.records import format_record, parse_record
from strandline.lease.stores import LeaseStore, LimitedLeaseStore, ObjectLeaseStore, StoredRecord
from strandline.protocol.leadership import LeaseRecord

if _TYPE_CHECKING:
    from strandline.lease.buckets import BucketLeaseStore

__all__ = [
    "BucketLeaseStore",
    "Claimant",
    "Fence",
    "FenceStale",
    "InvalidLease",
    "LeaderSeen",
    "Lease",
    "LeaseDamaged",
    "LeaseEnded",
    "LeaseHealth",
    "LeaseHeld",
    "LeaseLost",
    "LeaseRecord",
    "LeaseStore",
    "LeaseTaken",
    "LeaseTiming",
    "LeaseTrouble",
    "LeaseUnanswered",
    "LeaseWriteUnanswered",
    "LimitedLeaseStore",
    "ObjectLeaseStore",
    "StoredRecord",
    "format_record",
    "open_lease_store",
    "parse_record",
    "revoke",
]

# Leases in object storage do not need the client of NATS.
__getattr__ = _lazy_names(__name__, {"buckets": ("BucketLeaseStore",)})
