"""A shard that a worker holds, until it is completed, parked, split or lost.

Invariants: once the lease is lost, or may be lost, nothing more is asked of the coordinator for this shard. The
worker's own stopwatch ends it: it runs from before the claim was sent, so that a wall clock that is set back does not
make the lease longer. A cursor moves only behind receipts of this shard's pages. Operation ids follow from shard, fence
and a count of what succeeded, so that a step which is repeated after an error is done once.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from strandline.clock import Clock
from strandline.pipeline.coordination import NoneAvailable, ShardCoordinator, Throttled
from strandline.pipeline.errors import ReceiptMismatch, ShardReleased
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.receipts import CheckpointReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary, WriteContext
from strandline.protocol.errors import LeaseExpired, LeaseLost, ShardTerminal
from strandline.protocol.leases import Acquired
from strandline.protocol.operations import op_id
from strandline.protocol.shards import Cursor, Lease, OpKind, Outcome, ParkReason, RunKey, ShardSpec
from strandline.protocol.splits import ResidualPlan

T = TypeVar("T")
Stopwatch = Callable[[], int]
"""Nanoseconds of a clock that only goes forward."""


def claim(
    coordinator: ShardCoordinator,
    run: RunKey,
    worker: int,
    clock: Clock,
    stopwatch: Stopwatch = time.monotonic_ns,
) -> "HeldShard | NoneAvailable | Throttled":
    """Acquire any shard of a run without a valid lease."""
    watched, now = stopwatch(), clock.now_ns()  # in this order: a pause between them shortens the lease
    found = coordinator.claim_next_available(now, run, worker)
    if isinstance(found, NoneAvailable | Throttled):
        return found
    return HeldShard(coordinator, found, clock, stopwatch, watched + found.lease.deadline - now)


class HeldShard:
    """The operations of a worker on a shard that it holds; one thread at a time. `claim` makes one."""

    def __init__(
        self, coordinator: ShardCoordinator, acquired: Acquired, clock: Clock, stopwatch: Stopwatch, ends_ns: int
    ) -> None:
        self._coordinator = coordinator
        self._acquired = acquired
        self._lease = acquired.lease
        self._clock = clock
        self._stopwatch = stopwatch
        self._ends_ns = ends_ns
        self._over: Exception | None = None
        self._sequence = 0

    def __repr__(self) -> str:
        return f"HeldShard(shard={self._lease.shard}, fence={self._lease.fence}, held={self.is_held})"

    @property
    def spec(self) -> ShardSpec:
        """Return the range to scan."""
        return self._acquired.spec

    @property
    def cursor(self) -> Cursor:
        """Return the cursor: work continues after it."""
        return self._acquired.cursor

    @property
    def lease(self) -> Lease:
        """Return the lease as it was last renewed."""
        return self._lease

    @property
    def is_held(self) -> bool:
        """Return whether the worker still holds the shard."""
        return self._over is None and self._stopwatch() < self._ends_ns

    def context(self, policy: PolicyHash) -> WriteContext:
        """Return the context that every row of this shard's pages carries."""
        lease = self._lease
        return WriteContext(TenantId(lease.tenant), policy, lease.run, lease.shard, lease.fence)

    def renew(self) -> None:
        """Extend the lease."""
        watched = self._stopwatch()
        now = self._clock.now_ns()
        self._lease = self._ask(lambda: self._coordinator.renew(now, self._lease))
        self._ends_ns = watched + self._lease.deadline - now

    def checkpoint(self, boundary: Boundary, *, after: LedgerReceipt) -> CheckpointReceipt:
        """Move the cursor to the end of the page that `after` proves done, and return once that is durable.

        After an error with an unknown outcome, commit the same page again: another one would be refused with
        `OpIdConflict` if the first did reach the coordinator.
        """
        self._check_receipt(boundary, after)
        outcome = self._step(
            OpKind.CHECKPOINT,
            lambda op: self._coordinator.checkpoint(self._clock.now_ns(), self._lease, boundary.cursor, op),
        )
        self._acquired = self._acquired._replace(cursor=boundary.cursor)
        return CheckpointReceipt(after, outcome.at)

    def complete(self) -> None:
        """End the shard where its last checkpoint is; at its beginning when there was nothing in it."""
        cursor = self.cursor if self.cursor.key else Cursor(self.spec.start or b"\x00")
        self._step(
            OpKind.COMPLETE, lambda op: self._coordinator.complete(self._clock.now_ns(), self._lease, cursor, op)
        )
        self._over = ShardReleased("completed")

    def park(self, reason: ParkReason) -> None:
        """Park the shard until an operator unparks it."""
        self._step(OpKind.PARK, lambda op: self._coordinator.park_shard(self._clock.now_ns(), self._lease, reason, op))
        self._over = ShardReleased("parked")

    def split_replace(self, parts: Sequence[ShardSpec]) -> tuple[int, ...]:
        """Replace the shard by its parts, and return their ids."""
        outcome = self._step(
            OpKind.SPLIT_REPLACE,
            lambda op: self._coordinator.split_replace(self._clock.now_ns(), self._lease, parts, op),
        )
        self._over = ShardReleased("split")
        return outcome.spawned

    def split_residual(self, plan: ResidualPlan) -> tuple[int, ...]:
        """Split off the rest of the shard, and return its id; the shard keeps its beginning."""
        outcome = self._step(
            OpKind.SPLIT_RESIDUAL,
            lambda op: self._coordinator.split_residual(self._clock.now_ns(), self._lease, plan, op),
        )
        self._acquired = self._acquired._replace(spec=plan.kept)
        return outcome.spawned

    def _step(self, kind: OpKind, ask: Callable[[int], Outcome]) -> Outcome:
        lease = self._lease
        op = op_id(lease.run, lease.shard, lease.fence, kind, self._sequence)
        outcome = self._ask(lambda: ask(op))
        self._sequence += 1
        return outcome

    def _ask(self, question: Callable[[], T]) -> T:
        if self._over is not None:
            raise self._over
        if self._stopwatch() >= self._ends_ns:
            self._over = LeaseExpired(self._lease.shard, self._lease.fence, self._lease.deadline)
            raise self._over
        try:
            return question()
        except (LeaseLost, ShardTerminal) as lost:
            self._over = lost
            raise

    def _check_receipt(self, boundary: Boundary, after: LedgerReceipt) -> None:
        scope = after.scope
        if scope.context != self.context(scope.context.policy):
            raise ReceiptMismatch("checkpoint", "tenant, run, shard or fence of the receipt")
        if scope.boundary != boundary:
            raise ReceiptMismatch("checkpoint", "boundary")
