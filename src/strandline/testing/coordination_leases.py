"""The contract of coordination, first part: leases, fences, and operations that are repeated."""

from strandline.errors import InvalidInput
from strandline.protocol.errors import (
    AlreadyLeased,
    CursorRegression,
    LeaseExpired,
    OpIdConflict,
    ShardNotFound,
    ShardTerminal,
    StaleFence,
)
from strandline.protocol.shards import Cursor, CursorSemantics, OpKind, ParkReason, ShardKey, ShardStatus
from strandline.testing.contract import expect, refuses, same
from strandline.testing.coordination_helpers import (
    CUT,
    EXPIRED,
    LEASE_TTL_NS,
    NOW,
    OPERATIONS,
    OTHER_CONTENT,
    RUN,
    WHOLE,
    CheckedCoordinator,
    CoordinationCheck,
    begin,
    every_operation,
    take,
)


def fence_monotonicity_across_full_lifecycle(coordinator: CheckedCoordinator) -> None:
    """Each acquisition and each unparking has the next fence; nothing else changes it."""
    (key,) = begin(coordinator, WHOLE)
    fences = [coordinator.get_shard(key).fence]
    fences.append(take(coordinator, key).fence)
    lease = take(coordinator, key, EXPIRED)
    fences.append(lease.fence)
    coordinator.renew(EXPIRED, lease)
    coordinator.checkpoint(EXPIRED, lease, Cursor(b"c"), 10)
    coordinator.park_shard(EXPIRED, lease, ParkReason.OTHER, 11)
    fences.append(coordinator.get_shard(key).fence)
    coordinator.unpark_shard(EXPIRED, key, 12)
    fences.append(coordinator.get_shard(key).fence)
    lease = take(coordinator, key, EXPIRED)
    fences.append(lease.fence)
    coordinator.split_residual(EXPIRED, lease, CUT, 13)
    coordinator.complete(EXPIRED, lease, Cursor(b"d"), 14)
    fences.append(coordinator.get_shard(key).fence)
    same("the fences", fences, [0, 1, 2, 2, 3, 4, 4])


def idempotency_before_terminal_state_rejection(coordinator: CheckedCoordinator) -> None:
    """An operation that is repeated gets its first answer, although the shard is done, split, parked or long lost."""
    for name, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        first = operation(coordinator, NOW, lease, 10)
        before = coordinator.get_shard(key)
        same(f"{name} repeated", operation(coordinator, EXPIRED + 1, lease, 10), first)
        same(f"the shard after {name} was repeated", coordinator.get_shard(key), before)
        if before.status is not ShardStatus.ACTIVE:
            refuses(f"{name} as another operation", ShardTerminal, operation, coordinator, NOW, lease, 11)


def an_operation_id_with_other_content_is_refused(coordinator: CheckedCoordinator) -> None:
    """Before anything else is looked at, and nothing changes."""
    for name, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        operation(coordinator, NOW, lease, 10)
        before = coordinator.get_shard(key)
        refuses(f"{name} with other content", OpIdConflict, OTHER_CONTENT[name], coordinator, NOW, lease, 10)
        same(f"the shard after {name} was refused", coordinator.get_shard(key), before)
    (key,) = begin(coordinator, WHOLE, run=RUN._replace(run=8))
    lease = take(coordinator, key)
    coordinator.checkpoint(NOW, lease, Cursor(b"c"), 10)
    refuses("another kind of operation", OpIdConflict, coordinator.complete, NOW, lease, Cursor(b"c"), 10)


def owner_divergence_with_matching_fence(coordinator: CheckedCoordinator) -> None:
    """A fence belongs to one worker; another one that presents it is refused."""
    for name, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        before = coordinator.get_shard(key)
        forged = lease._replace(worker=lease.worker + 1)
        refuses(f"{name} of another worker", StaleFence, operation, coordinator, NOW, forged, 10)
        refuses("renewal of another worker", StaleFence, coordinator.renew, NOW, forged)
        same("the shard", coordinator.get_shard(key), before)


def stale_fences_are_refused_for_every_operation(coordinator: CheckedCoordinator) -> None:
    """A worker that lost its shard to another changes nothing in it, whatever it tries."""
    for name, operation, key in every_operation(coordinator):
        zombie = take(coordinator, key)
        now = NOW
        for worker in (2, zombie.worker):  # lost to another worker, then to its own next life
            now += LEASE_TTL_NS
            current = take(coordinator, key, now, worker)
            before = coordinator.get_shard(key)
            refuses(f"{name} of a zombie", StaleFence, operation, coordinator, now, zombie, 10)
            refuses(f"{name} of a zombie whose clock is behind", StaleFence, operation, coordinator, NOW, zombie, 10)
            refuses("renewal of a zombie", StaleFence, coordinator.renew, now, zombie)
            future = current._replace(fence=current.fence + 1)
            refuses(f"{name} under a fence to come", StaleFence, operation, coordinator, now, future, 10)
            same("the shard", coordinator.get_shard(key), before)


def lease_deadline_at_exact_boundary(coordinator: CheckedCoordinator) -> None:
    """A lease lasts until just before its deadline; from the deadline on the shard is free."""
    for name, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        same("the deadline", lease.deadline, NOW + LEASE_TTL_NS)
        refuses(f"{name} at the deadline", LeaseExpired, operation, coordinator, lease.deadline, lease, 10)
        refuses("renewal at the deadline", LeaseExpired, coordinator.renew, lease.deadline, lease)
        _refused_until(coordinator, key, lease.deadline)
        operation(coordinator, lease.deadline - 1, lease, 11)
    (key,) = begin(coordinator, WHOLE, run=RUN._replace(run=8))
    take(coordinator, key)
    same("the next owner's fence", take(coordinator, key, EXPIRED, worker=2).fence, 2)


def _refused_until(coordinator: CheckedCoordinator, key: ShardKey, deadline: int) -> None:
    try:
        take(coordinator, key, deadline - 1, worker=2)
    except AlreadyLeased as refused:
        same("the deadline that a refusal tells", refused.deadline, deadline)
    else:
        expect(condition=False, problem="a leased shard was given to another worker")


def renewal_extends_and_never_shortens(coordinator: CheckedCoordinator) -> None:
    """It may be repeated, keeps the fence, and does not take time away when clocks differ."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    later = NOW + 5
    renewed = coordinator.renew(later, lease)
    same("the renewed lease", renewed, lease._replace(deadline=later + LEASE_TTL_NS))
    same("the lease renewed twice", coordinator.renew(later, lease), renewed)
    same("the lease renewed by a clock that is behind", coordinator.renew(NOW, lease), renewed)
    coordinator.checkpoint(EXPIRED, lease, Cursor(b"c"), 10)
    refuses("a checkpoint after it", LeaseExpired, coordinator.checkpoint, renewed.deadline, lease, Cursor(b"d"), 11)


def same_worker_reacquire_bumps_fence(coordinator: CheckedCoordinator) -> None:
    """A worker has no privilege for its own lease: it waits for the end, and has a new fence after it."""
    (key,) = begin(coordinator, WHOLE)
    first = take(coordinator, key)
    refuses("acquiring one's own shard", AlreadyLeased, take, coordinator, key)
    second = take(coordinator, key, EXPIRED)
    same("the fences", (first.fence, second.fence), (1, 2))
    refuses("the first lease", StaleFence, coordinator.renew, EXPIRED, first)
    coordinator.renew(EXPIRED, second)


def terminal_clears_lease(coordinator: CheckedCoordinator) -> None:
    """A shard that is done, split or parked has no owner, and cannot be acquired or renewed."""
    for name, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        operation(coordinator, NOW, lease, 10)
        shard = coordinator.get_shard(key)
        if name in {"checkpoint", "split_residual"}:
            same(f"the owner after {name}", (shard.owner, shard.deadline), (lease.worker, lease.deadline))
            continue
        same(f"the owner after {name}", (shard.owner, shard.deadline), (None, None))
        refuses(f"renewal after {name}", ShardTerminal, coordinator.renew, NOW, lease)
        refuses(f"acquiring after {name}", ShardTerminal, take, coordinator, key, EXPIRED)


def oplog_eviction_then_replay(coordinator: CheckedCoordinator) -> None:
    """Sixteen operations are remembered, the oldest is forgotten first; a residual split is known even then."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    split = coordinator.split_residual(NOW, lease, CUT, 9)
    for number in range(16):
        coordinator.checkpoint(NOW, lease, _cursor(number), 10 + number)
    same("the first checkpoint repeated", coordinator.checkpoint(NOW, lease, _cursor(0), 10).kind, OpKind.CHECKPOINT)
    coordinator.checkpoint(NOW, lease, _cursor(16), 26)
    first = (NOW, lease, _cursor(0), 10)
    refuses("the first checkpoint once it is forgotten", CursorRegression, coordinator.checkpoint, *first)
    same("the second one repeated", coordinator.checkpoint(NOW, lease, _cursor(1), 11).kind, OpKind.CHECKPOINT)
    again = coordinator.split_residual(EXPIRED, lease, CUT, 9)
    same("the shard split off, asked for again", again.spawned, split.spawned)
    same("the cursor", coordinator.get_shard(key).cursor, _cursor(16))
    same("how many shards there are", coordinator.progress(RUN).active, 2)


def _cursor(number: int) -> Cursor:
    return Cursor(b"c%03d" % number)


def cursor_semantics_dispatched_through_coordinator(coordinator: CheckedCoordinator) -> None:
    """What the cursors of a run mean is told with every shard, also with those that come from a split."""
    for number, semantics in enumerate(CursorSemantics):
        run = RUN._replace(run=20 + number)
        (key,) = begin(coordinator, WHOLE, run=run, semantics=semantics)
        taken = coordinator.acquire_and_restore(NOW, key, 1)
        same("the semantics", taken.semantics, semantics)
        (rest,) = coordinator.split_residual(NOW, taken.lease, CUT, 10).spawned
        split = coordinator.acquire_and_restore(NOW, key._replace(shard=rest), 2)
        same("the semantics of the rest", split.semantics, semantics)


def what_does_not_exist_is_not_found(coordinator: CheckedCoordinator) -> None:
    """A shard that was never registered, for every operation."""
    begin(coordinator, WHOLE)
    missing = ShardKey(*RUN, 99)
    refuses("acquiring it", ShardNotFound, take, coordinator, missing)
    refuses("looking at it", ShardNotFound, coordinator.get_shard, missing)
    refuses("unparking it", ShardNotFound, coordinator.unpark_shard, NOW, missing, 10)
    lease = take(coordinator, ShardKey(*RUN, 1))._replace(shard=99)
    refuses("renewing it", ShardNotFound, coordinator.renew, NOW, lease)
    for name, operation in OPERATIONS.items():
        refuses(name, ShardNotFound, operation, coordinator, NOW, lease, 10)


def numbers_that_do_not_fit_are_refused(coordinator: CheckedCoordinator) -> None:
    """Ids and times have 64 signed bits."""
    (key,) = begin(coordinator, WHOLE)
    refuses("a worker's id", InvalidInput, take, coordinator, key, NOW, 2**63)
    refuses("a time", InvalidInput, take, coordinator, key, 2**63)
    for number in (2**63, -(2**63) - 1):
        refuses("a shard's id", InvalidInput, take, coordinator, key._replace(shard=number))
        refuses("a run's id", InvalidInput, coordinator.get_run, RUN._replace(run=number))
        refuses("a new run's id", InvalidInput, coordinator.create_run, NOW, RUN._replace(run=number), 1)
        refuses("where a page begins", InvalidInput, coordinator.list_shards, RUN, number)
        refuses("where a page of runs begins", InvalidInput, coordinator.list_runs, RUN.tenant, number)
    lease = take(coordinator, key)
    refuses("an operation's id", InvalidInput, coordinator.checkpoint, NOW, lease, Cursor(b"c"), 2**63)
    coordinator.checkpoint(NOW, lease, Cursor(b"c"), -(2**63))


LEASE_CHECKS: tuple[CoordinationCheck, ...] = (
    fence_monotonicity_across_full_lifecycle,
    idempotency_before_terminal_state_rejection,
    an_operation_id_with_other_content_is_refused,
    owner_divergence_with_matching_fence,
    stale_fences_are_refused_for_every_operation,
    lease_deadline_at_exact_boundary,
    renewal_extends_and_never_shortens,
    same_worker_reacquire_bumps_fence,
    terminal_clears_lease,
    oplog_eviction_then_replay,
    cursor_semantics_dispatched_through_coordinator,
    what_does_not_exist_is_not_found,
    numbers_that_do_not_fit_are_refused,
)
