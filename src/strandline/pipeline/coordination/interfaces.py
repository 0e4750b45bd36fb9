"""The interfaces of coordination: for workers, orchestrators and observers.

`Coordinator` implements all three over any `RecordStore`. Errors are those of `strandline.protocol.errors`,
`Unavailable` where the store cannot be reached, and `UnknownOutcome` where its answer was lost: then repeat the call
with the same operation id.
"""

from collections.abc import Sequence
from typing import Protocol

from strandline.pipeline.coordination.coordinator import NoneAvailable, Throttled
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard, Progress, RunRecord
from strandline.protocol.shards import (
    Cursor,
    CursorSemantics,
    Lease,
    Outcome,
    ParkReason,
    RunKey,
    ShardKey,
    ShardRecord,
    ShardSpec,
)
from strandline.protocol.splits import ResidualPlan


class ShardCoordinator(Protocol):
    """The operations of workers. After `LeaseLost` or `ShardTerminal` a worker stops: its later changes are refused."""

    def acquire_and_restore(self, now: int, key: ShardKey, worker: int) -> Acquired:
        """Acquire a shard under a new fence; raise `AlreadyLeased` or `ShardNotFound`."""
        ...

    def claim_next_available(self, now: int, run: RunKey, worker: int) -> Acquired | NoneAvailable | Throttled:
        """Acquire any shard of a run without a valid lease."""
        ...

    def renew(self, now: int, lease: Lease) -> Lease:
        """Extend a valid lease; it may be repeated."""
        ...

    def checkpoint(self, now: int, lease: Lease, cursor: Cursor, op_id: int) -> Outcome:
        """Move the cursor, never back."""
        ...

    def complete(self, now: int, lease: Lease, cursor: Cursor, op_id: int) -> Outcome:
        """Move the cursor for the last time; the shard is done and the lease over."""
        ...

    def park_shard(self, now: int, lease: Lease, reason: ParkReason, op_id: int) -> Outcome:
        """Put a shard aside until it is unparked; the lease is over."""
        ...

    def split_replace(self, now: int, lease: Lease, parts: Sequence[ShardSpec], op_id: int) -> Outcome:
        """Replace a shard by its parts, whose ids are in the outcome; the lease is over."""
        ...

    def split_residual(self, now: int, lease: Lease, plan: ResidualPlan, op_id: int) -> Outcome:
        """Split off the rest of a shard; the outcome has its id, and the shard keeps its beginning."""
        ...


class RunCoordinator(Protocol):
    """What orchestrators do."""

    def create_run(
        self, now: int, key: RunKey, op_id: int, semantics: CursorSemantics = CursorSemantics.COMPLETED
    ) -> Outcome:
        """Begin a run; `RunExists` if another operation did."""
        ...

    def register_shards(self, now: int, key: RunKey, shards: Sequence[InitialShard], op_id: int) -> Outcome:
        """Register the shards of a new run; workers can claim all of them or none. Repeat the call after an error."""
        ...

    def complete_run(self, now: int, key: RunKey, op_id: int) -> Outcome:
        """Complete a run whose shards are all done or parked, or raise `RunUnfinished`."""
        ...

    def fail_run(self, now: int, key: RunKey, op_id: int) -> Outcome:
        """End a run as failed."""
        ...

    def cancel_run(self, now: int, key: RunKey, op_id: int) -> Outcome:
        """End a run as cancelled."""
        ...

    def unpark_shard(self, now: int, key: ShardKey, op_id: int) -> Outcome:
        """Make a parked shard of an active run active again, under a new fence and at its cursor."""
        ...


class RunReader(Protocol):
    """Reads of runs and shards, which need no lease."""

    def get_run(self, key: RunKey) -> RunRecord:
        """Return a run; `RunNotFound` if there is none."""
        ...

    def get_shard(self, key: ShardKey) -> ShardRecord:
        """Return a shard; `ShardNotFound` if there is none."""
        ...

    def progress(self, key: RunKey) -> Progress:
        """Return the number of shards of a run in each state; `RunNotFound` if there is none."""
        ...

    def list_runs(self, tenant: bytes, after: int | None = None, runs_max: int = 1_000) -> list[RunRecord]:
        """Return runs of a tenant by id, signed, beginning after one."""
        ...

    def list_shards(self, key: RunKey, after: int | None = None, shards_max: int = 1_000) -> list[ShardRecord]:
        """Return shards of a run by id, signed, beginning after one; `RunNotFound` if there is none."""
        ...
