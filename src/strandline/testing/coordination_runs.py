"""The contract of coordination, third part: runs, claims, and tenants that do not see one another."""

import threading
from collections.abc import Callable
from contextlib import suppress

from strandline.errors import InvalidInput, StrandlineError
from strandline.pipeline.coordination import NoneAvailable, Throttled
from strandline.protocol.errors import (
    AlreadyLeased,
    Contended,
    OpIdConflict,
    RunExists,
    RunNotActive,
    RunNotFound,
    RunNotInitializing,
    RunTerminal,
    RunUnfinished,
    ShardNotFound,
    SpecInvalid,
    TenantMismatch,
    TooManyShards,
)
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard, Progress, RunStatus
from strandline.protocol.shards import (
    INITIAL_SHARDS_MAX,
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    Cursor,
    Lease,
    Outcome,
    ParkReason,
    RunKey,
    ShardKey,
    ShardSpec,
)
from strandline.protocol.splits import ResidualPlan
from strandline.testing.contract import expect, refuses, same
from strandline.testing.coordination_helpers import (
    EXPIRED,
    LEASE_TTL_NS,
    NOW,
    OPERATIONS,
    OTHER,
    RUN,
    WHOLE,
    CheckedCoordinator,
    CoordinationCheck,
    begin,
    every_operation,
    take,
)

UNKNOWN = (ShardNotFound, TenantMismatch)
MANY = 100
"""More shards than one transaction of etcd can hold."""
THREADS = 4


def run_terminal_irreversibility_done(coordinator: CheckedCoordinator) -> None:
    """A run that is done stays so, and nothing is claimed from it any more."""
    (key,) = begin(coordinator, WHOLE)
    coordinator.complete(NOW, take(coordinator, key), Cursor(b"c"), 10)
    _stays(coordinator, RunStatus.DONE, coordinator.complete_run)


def run_terminal_irreversibility_failed(coordinator: CheckedCoordinator) -> None:
    """The same of one that failed."""
    begin(coordinator, WHOLE)
    _stays(coordinator, RunStatus.FAILED, coordinator.fail_run)


def run_terminal_irreversibility_cancelled(coordinator: CheckedCoordinator) -> None:
    """The same of one that was cancelled."""
    begin(coordinator, WHOLE)
    _stays(coordinator, RunStatus.CANCELLED, coordinator.cancel_run)


def _stays(coordinator: CheckedCoordinator, status: RunStatus, end: Callable[[int, RunKey, int], Outcome]) -> None:
    outcome = end(NOW + 5, RUN, 20)
    before = coordinator.get_run(RUN)
    same("the run", (before.status, before.completed_at), (status, NOW + 5))
    same("the end repeated", end(NOW + 9, RUN, 20), outcome)
    for other in (coordinator.complete_run, coordinator.fail_run, coordinator.cancel_run):
        refuses("another end", RunTerminal, other, NOW + 6, RUN, 21)
    refuses("claiming", RunTerminal, coordinator.claim_next_available, EXPIRED, RUN, 9)
    refuses("acquiring", RunTerminal, take, coordinator, ShardKey(*RUN, 1), EXPIRED)
    refuses("shards", RunNotInitializing, coordinator.register_shards, NOW, RUN, [InitialShard(5, WHOLE)], 22)
    refuses("creating it again", RunExists, coordinator.create_run, NOW, RUN, 23)
    same("the run in the end", coordinator.get_run(RUN), before)


def run_completed_at_consistency(coordinator: CheckedCoordinator) -> None:
    """A run has a time it ended if and only if it ended, and not before it was created."""
    coordinator.create_run(NOW, RUN, 1)
    same("a new run", coordinator.get_run(RUN)[2:6:3], (RunStatus.INITIALIZING, None))
    coordinator.register_shards(NOW, RUN, [], 2)
    same("an active run", coordinator.get_run(RUN)[2:6:3], (RunStatus.ACTIVE, None))
    coordinator.complete_run(NOW - 5, RUN, 3)
    run = coordinator.get_run(RUN)
    same("the times", (run.created_at, run.completed_at), (NOW, NOW))


def register_shards_on_non_initializing_rejected(coordinator: CheckedCoordinator) -> None:
    """A run gets its shards once; the same registration may be repeated."""
    begin(coordinator, WHOLE)
    before = coordinator.list_shards(RUN)
    more = [InitialShard(5, WHOLE)]
    refuses("more shards", RunNotInitializing, coordinator.register_shards, NOW, RUN, more, 10)
    refuses("other shards under the same id", OpIdConflict, coordinator.register_shards, NOW, RUN, more, 2)
    coordinator.register_shards(NOW, RUN, [InitialShard(1, WHOLE)], 2)
    same("the shards", coordinator.list_shards(RUN), before)
    refuses("shards of no run", RunNotFound, coordinator.register_shards, NOW, RUN._replace(run=99), more, 11)


def unpark_after_run_terminal_rejected(coordinator: CheckedCoordinator) -> None:
    """A parked shard does not keep its run from being done, and stays parked after it."""
    (key,) = begin(coordinator, WHOLE)
    coordinator.park_shard(NOW, take(coordinator, key), ParkReason.POISONED, 10)
    coordinator.complete_run(NOW, RUN, 11)
    refuses("unparking", RunTerminal, coordinator.unpark_shard, NOW, key, 12)
    same("the progress", coordinator.progress(RUN), Progress(parked=1))


def a_run_is_created_once(coordinator: CheckedCoordinator) -> None:
    """Repeating the same creation is harmless; another one is refused; nothing is claimed before there are shards."""
    outcome = coordinator.create_run(NOW, RUN, 1)
    same("creating it again", coordinator.create_run(NOW + 1, RUN, 1), outcome)
    refuses("another creation", RunExists, coordinator.create_run, NOW, RUN, 2)
    refuses("claiming too early", RunNotActive, coordinator.claim_next_available, NOW, RUN, 1)
    refuses("completing it too early", RunNotActive, coordinator.complete_run, NOW, RUN, 3)
    refuses("a tenant of another size", InvalidInput, coordinator.create_run, NOW, RunKey(b"short", 1), 1)
    missing = RUN._replace(run=99)
    for call in (coordinator.progress, coordinator.get_run, coordinator.list_shards):
        refuses("looking at another", RunNotFound, call, missing)
    for end in (coordinator.complete_run, coordinator.fail_run, coordinator.cancel_run):
        refuses("ending another", RunNotFound, end, NOW, missing, 1)
    refuses("claiming from another", RunNotFound, coordinator.claim_next_available, NOW, missing, 1)
    coordinator.cancel_run(NOW, RUN, 4)
    same("a run cancelled early", coordinator.get_run(RUN).status, RunStatus.CANCELLED)


def shards_that_cannot_be_are_refused(coordinator: CheckedCoordinator) -> None:
    """Too many, too large, empty, twice, or with an id that is kept for parts; and none is registered."""
    coordinator.create_run(NOW, RUN, 1)
    too_many = [InitialShard(number, WHOLE) for number in range(INITIAL_SHARDS_MAX + 1)]
    refuses("too many shards", TooManyShards, coordinator.register_shards, NOW, RUN, too_many, 2)
    wrong = {
        "an empty range": [InitialShard(1, WHOLE), InitialShard(2, ShardSpec(b"c", b"c"))],
        "a bound too large": [InitialShard(1, ShardSpec(b"c" * (KEY_BYTES_MAX + 1)))],
        "metadata too large": [InitialShard(1, ShardSpec(metadata=b"m" * (METADATA_BYTES_MAX + 1)))],
        "an id twice": [InitialShard(1, WHOLE), InitialShard(1, WHOLE)],
        "a negative id": [InitialShard(-1, WHOLE)],
        "an id too large": [InitialShard(2**63, WHOLE)],
    }
    for problem, shards in wrong.items():
        refuses(problem, SpecInvalid, coordinator.register_shards, NOW, RUN, shards, 2)
    same("the shards", coordinator.list_shards(RUN), [])
    largest = ShardSpec(b"c" * KEY_BYTES_MAX, b"d" * KEY_BYTES_MAX, b"m" * METADATA_BYTES_MAX)
    coordinator.register_shards(NOW, RUN, [InitialShard(2**63 - 1, largest)], 2)
    same("the largest shard", coordinator.list_shards(RUN)[0].spec, largest)


def many_shards_are_registered_all_or_none(coordinator: CheckedCoordinator) -> None:
    """In however many transactions; repeating it adds nothing."""
    coordinator.create_run(NOW, RUN, 1)
    shards = [InitialShard(number, ShardSpec(b"%04d" % number, b"%04d" % (number + 1))) for number in range(MANY)]
    outcome = coordinator.register_shards(NOW, RUN, shards, 2)
    same("registering them again", coordinator.register_shards(NOW, RUN, shards, 2), outcome)
    listed = coordinator.list_shards(RUN)
    same("the shards", [InitialShard(shard.shard, shard.spec) for shard in listed], shards)
    same("the run", coordinator.get_run(RUN).status, RunStatus.ACTIVE)
    claimed = {_claimed(coordinator, worker).shard for worker in range(MANY)}
    same("the shards that were claimed", claimed, {shard.shard for shard in shards})
    same("what is left", coordinator.claim_next_available(NOW, RUN, 1), NoneAvailable(EXPIRED))


def _claimed(coordinator: CheckedCoordinator, worker: int, now: int = NOW) -> Lease:
    taken = coordinator.claim_next_available(now, RUN, worker)
    expect(isinstance(taken, Acquired), f"a claim should find a shard, but returned {taken!r}")
    return taken.lease if isinstance(taken, Acquired) else Lease(*RUN, 0, 0, 0, 0)


def a_run_is_done_when_no_shard_is_active(coordinator: CheckedCoordinator) -> None:
    """Progress counts shards by status, and tells when there is nothing left to scan."""
    counts = [Progress(active=5)]
    for _, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        refuses("completing the run", RunUnfinished, coordinator.complete_run, NOW, RUN, 50)
        operation(coordinator, NOW, lease, 10)
        counts.append(coordinator.progress(RUN))
    same("the progress", counts[2:], [Progress(4, 1), Progress(3, 1, 0, 1), Progress(4, 1, 1, 1), Progress(5, 1, 1, 1)])
    for shard in coordinator.list_shards(RUN):
        if shard.park_reason is None and not shard.leased(NOW) and shard.key.shard not in range(1, 6):
            coordinator.park_shard(NOW, take(coordinator, shard.key), ParkReason.OTHER, 11)
    for number in (1, 5):
        lease = take(coordinator, ShardKey(*RUN, number), EXPIRED)
        coordinator.complete(EXPIRED, lease, Cursor(b"l"), 12)
    same("the last progress", coordinator.progress(RUN), Progress(0, 3, 1, 4))
    same("a claim", coordinator.claim_next_available(EXPIRED, RUN, 1), NoneAvailable(None))
    coordinator.complete_run(EXPIRED, RUN, 51)


def claims_take_what_is_free(coordinator: CheckedCoordinator) -> None:
    """New shards and those whose lease ended; otherwise they tell when the first lease will end."""
    begin(coordinator, WHOLE, WHOLE, WHOLE)
    first = _claimed(coordinator, 1)
    second = _claimed(coordinator, 2, NOW + 5)
    third = _claimed(coordinator, 3, NOW + 5)
    same("the shards", {first.shard, second.shard, third.shard}, {1, 2, 3})
    same("a claim of what is taken", coordinator.claim_next_available(NOW, RUN, 4), NoneAvailable(first.deadline))
    coordinator.renew(NOW + 10, first)
    same("the first deadline now", coordinator.claim_next_available(NOW + 10, RUN, 4), NoneAvailable(second.deadline))
    coordinator.complete(NOW + 10, second, Cursor(b"c"), 10)
    early = coordinator.claim_next_available(third.deadline - 1, RUN, 4)
    same("a claim just before the deadline", early, NoneAvailable(third.deadline))
    again = _claimed(coordinator, 4, third.deadline)
    same("the shard whose lease ended", (again.shard, again.fence), (third.shard, third.fence + 1))
    coordinator.park_shard(third.deadline, again, ParkReason.OTHER, 11)
    none = coordinator.claim_next_available(third.deadline, RUN, 5)
    same("a claim after a parking", none, NoneAvailable(NOW + 10 + LEASE_TTL_NS))
    coordinator.unpark_shard(third.deadline, ShardKey(*RUN, again.shard), 12)
    same("a claim after unparking", _claimed(coordinator, 5, third.deadline).shard, again.shard)


def exactly_one_worker_wins_a_shard(coordinator: CheckedCoordinator) -> None:
    """Of several that acquire the same one at once, whatever each of them sees of the others."""
    keys = begin(coordinator, *[WHOLE] * 5)
    for key in keys:
        won: list[Lease] = []

        def win(worker: int, key: ShardKey = key, won: list[Lease] = won) -> None:
            with suppress(AlreadyLeased, Contended):
                won.append(take(coordinator, key, worker=worker))

        _at_once(win)
        same("how many won", len(won), 1)
        shard = coordinator.get_shard(key)
        same("the owner", (shard.owner, shard.fence), (won[0].worker, 1))


def workers_that_claim_at_once_share_the_shards(coordinator: CheckedCoordinator) -> None:
    """Each shard goes to one worker, and none is left behind."""
    keys = begin(coordinator, *[WHOLE] * 12)
    leases: list[Lease] = []

    def claim_all(worker: int) -> None:
        now = NOW
        while not isinstance(taken := coordinator.claim_next_available(now, RUN, worker), NoneAvailable):
            if isinstance(taken, Throttled):
                now += taken.retry_after_ns
            else:
                leases.append(taken.lease)

    _at_once(claim_all)
    same("the shards", sorted(lease.shard for lease in leases), sorted(key.shard for key in keys))
    same("their fences", {lease.fence for lease in leases}, {1})


def changes_made_at_once_are_not_lost(coordinator: CheckedCoordinator) -> None:
    """A renewal does not undo a checkpoint that was made meanwhile, nor the other way round."""
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)

    def work(worker: int) -> None:
        for number in range(10):
            if worker % 2:
                coordinator.renew(NOW + number, lease)
            else:
                coordinator.split_residual(NOW, lease, _plan(coordinator, key), worker * 100 + number)

    _at_once(work, workers=2)
    shard = coordinator.get_shard(key)
    same("the deadline", shard.deadline, NOW + 9 + LEASE_TTL_NS)
    same("how many were split off", len(shard.spawned), 10)
    same("how many there are", coordinator.progress(RUN).active, 11)


def _plan(coordinator: CheckedCoordinator, key: ShardKey) -> ResidualPlan:
    spec = coordinator.get_shard(key).spec
    cut = bytes([spec.end[0] - 1])
    return ResidualPlan(spec._replace(end=cut), spec._replace(start=cut))


def _at_once(work: Callable[[int], None], workers: int = THREADS) -> None:
    failed: list[StrandlineError] = []
    ready = threading.Barrier(workers)

    def run(worker: int) -> None:
        ready.wait()
        try:
            work(worker)
        except StrandlineError as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same("what went wrong", failed, [])


def tenants_do_not_see_one_another(coordinator: CheckedCoordinator) -> None:
    """Neither shards nor runs, whatever is asked, although ids are the same."""
    for name, operation, key in every_operation(coordinator):
        lease = take(coordinator, key)
        foreign = lease._replace(tenant=OTHER)
        operation(coordinator, NOW, lease, 10)
        before = coordinator.get_shard(key)
        refuses(f"{name} for another tenant", UNKNOWN, operation, coordinator, NOW, foreign, 11)
        refuses(f"{name} repeated for another tenant", UNKNOWN, operation, coordinator, NOW, foreign, 10)
        refuses("renewal for another tenant", UNKNOWN, coordinator.renew, NOW, foreign)
        same("the shard", coordinator.get_shard(key), before)
    foreign_run = RUN._replace(tenant=OTHER)
    refuses("its run", (RunNotFound, TenantMismatch), coordinator.get_run, foreign_run)
    same("its runs", coordinator.list_runs(OTHER), [])
    refuses("its shards", (RunNotFound, TenantMismatch), coordinator.list_shards, foreign_run)
    (theirs,) = begin(coordinator, ShardSpec(b"b", b"c"), run=foreign_run)
    same("a run of the same id", coordinator.progress(foreign_run), Progress(active=1))
    same("the first tenant's shard", coordinator.get_shard(theirs._replace(tenant=RUN.tenant)).spec, WHOLE)
    coordinator.cancel_run(NOW, foreign_run, 12)
    same("the first tenant's run", coordinator.get_run(RUN).status, RunStatus.ACTIVE)


def runs_of_a_tenant_do_not_see_one_another(coordinator: CheckedCoordinator) -> None:
    """Although their shards have the same ids, and one run's id is the beginning of the other's."""
    begin(coordinator, WHOLE)
    second = RUN._replace(run=RUN.run * 16)
    (key,) = begin(coordinator, ShardSpec(b"b", b"c"), run=second)
    coordinator.complete(NOW, take(coordinator, key), Cursor(b"b"), 10)
    same("the progress", (coordinator.progress(RUN), coordinator.progress(second)), (Progress(1), Progress(0, 1)))
    same("a claim", coordinator.claim_next_available(NOW, second, 1), NoneAvailable(None))
    coordinator.complete_run(NOW, second, 11)
    same("the shards of the first", [shard.spec for shard in coordinator.list_shards(RUN)], [WHOLE])


def lists_come_in_pages_by_signed_id(coordinator: CheckedCoordinator) -> None:
    """Beginning after the last id of the page before; negative ids come first."""
    (key,) = begin(coordinator, WHOLE)
    OPERATIONS["split_replace"](coordinator, NOW, take(coordinator, key), 10)
    whole = [shard.shard for shard in coordinator.list_shards(RUN)]
    same("the order", whole, sorted(whole))
    same("how many there are", len(whole), 3)
    pages: list[int] = []
    while page := coordinator.list_shards(RUN, pages[-1] if pages else None, 2):
        expect(len(page) <= 2, "a page is longer than asked for")  # noqa: PLR2004 - as asked above
        pages += [shard.shard for shard in page]
    same("the pages", pages, whole)
    for run in (-3, 5, -(2**63)):
        coordinator.create_run(NOW, RUN._replace(run=run), 1)
    same("the runs", [run.run for run in coordinator.list_runs(RUN.tenant)], [-(2**63), -3, 5, 7])
    same("a page of runs", [run.run for run in coordinator.list_runs(RUN.tenant, -3, 1)], [5])


RUN_CHECKS: tuple[CoordinationCheck, ...] = (
    run_terminal_irreversibility_done,
    run_terminal_irreversibility_failed,
    run_terminal_irreversibility_cancelled,
    run_completed_at_consistency,
    register_shards_on_non_initializing_rejected,
    unpark_after_run_terminal_rejected,
    a_run_is_created_once,
    shards_that_cannot_be_are_refused,
    many_shards_are_registered_all_or_none,
    a_run_is_done_when_no_shard_is_active,
    claims_take_what_is_free,
    exactly_one_worker_wins_a_shard,
    workers_that_claim_at_once_share_the_shards,
    changes_made_at_once_are_not_lost,
    tenants_do_not_see_one_another,
    runs_of_a_tenant_do_not_see_one_another,
    lists_come_in_pages_by_signed_id,
)
