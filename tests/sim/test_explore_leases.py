"""No worker, however late, harms a shard: every state of the lease model is fine, and no guard can be left out."""

import os
from collections.abc import Callable

import pytest

from strandline.protocol import guards, leases, operations
from strandline.protocol.leases import Decided
from strandline.protocol.shards import Cursor, Lease, OpEntry, Outcome, ShardRecord, ShardSpec
from tests.exploring import explore
from tests.models import LeaseBounds, LeaseModel

SMALL = LeaseBounds(workers=2, fence_max=2, time_max=3)
CORES = os.cpu_count() or 1
acquire, checkpoint, complete, renew = leases.acquire, leases.checkpoint, leases.complete, leases.renew


def allow(*_: object) -> None:
    """Refuse nothing, and remember nothing."""


def replay_whatever_the_content(ops: tuple[OpEntry, ...], op_id: int, _: int) -> Outcome | None:
    return next((entry.outcome for entry in ops if entry.op_id == op_id), None)


def replay_otherwise(ops: tuple[OpEntry, ...], op_id: int, payload_hash: int) -> Outcome | None:
    outcome = operations.replay(ops, op_id, payload_hash)
    return outcome and outcome._replace(at=outcome.at + 1)


def remember_the_last_only(_: tuple[OpEntry, ...], entry: OpEntry, __: int) -> tuple[OpEntry, ...]:
    return (entry,)


def remember_nothing(*_: object) -> tuple[OpEntry, ...]:
    return ()


def acquire_under_the_same_fence(record: ShardRecord, now: int, tenant: bytes, worker: int, ttl_ns: int) -> ShardRecord:
    return acquire(record, now, tenant, worker, ttl_ns)._replace(fence=max(1, record.fence))


def complete_checking_the_lease_first(
    record: ShardRecord, lease: Lease, now: int, cursor: Cursor, op_id: int
) -> Decided:
    guards.check_lease(record, lease, now)
    return complete(record, lease, now, cursor, op_id)


def checkpoint_and_shrink(record: ShardRecord, lease: Lease, now: int, cursor: Cursor, op_id: int) -> Decided:
    decided = checkpoint(record, lease, now, cursor, op_id)
    return decided._replace(record=decided.record._replace(spec=ShardSpec(end=b"\x09")))


def renew_from_now(record: ShardRecord, lease: Lease, now: int, ttl_ns: int) -> ShardRecord:
    return renew(record, lease, now, ttl_ns)._replace(deadline=now + ttl_ns)


def leased_at_the_deadline(record: ShardRecord, now: int) -> bool:
    return record.deadline is not None and now <= record.deadline


MUTATIONS: list[tuple[str, Callable[..., object], int, str]] = [
    ("guards.check_tenant", allow, 1, "a stranger was given a lease"),
    ("guards.check_not_terminal", allow, 3, "it is done and leased"),
    ("guards.check_fence", allow, 5, "a write under an old fence was accepted"),
    ("guards.check_not_expired", allow, 4, "a write at or after the deadline was accepted"),
    ("guards.check_owner", allow, 2, "a write of somebody without the lease was accepted"),
    ("guards.check_lease", allow, 1, "an owner without a deadline"),
    ("guards.check_not_leased", allow, 2, "two leases last at once"),
    ("guards.check_cursor_size", allow, 2, "a cursor that says nothing was accepted"),
    ("guards.check_no_regression", allow, 3, "the cursor went back"),
    ("guards.check_in_bounds", allow, 2, "its cursor is out of bounds"),
    ("leases.replay", allow, 3, "it remembers an operation twice"),
    ("leases.replay", replay_whatever_the_content, 3, "an operation's id was taken for other content"),
    ("leases.replay", replay_otherwise, 3, "a repeated operation was answered otherwise"),
    ("leases.remember", remember_the_last_only, 3, "what was done is not what is remembered"),
    ("leases.acquire", acquire_under_the_same_fence, 4, "a shard changed hands without a new fence"),
    ("leases.complete", complete_checking_the_lease_first, 3, "a repeated operation was refused"),
    ("leases.renew", renew_from_now, 3, "a lease became shorter by renewing it"),
    ("leases.checkpoint", checkpoint_and_shrink, 2, "something changed that no lease should change"),
    ("runs.replay", allow, 4, "a repeated operation was refused"),
    ("runs.remember", remember_nothing, 3, "what was done is not what is remembered"),
    ("runs.check_parked", allow, 1, "a shard was unparked that was not parked"),
    ("shards.ShardRecord.leased", leased_at_the_deadline, 4, "a write at or after the deadline was accepted"),
]


@pytest.mark.parametrize("bounds", [SMALL, SMALL._replace(lag_max=1)], ids=["clocks agree", "clocks lag"])
def test_no_step_breaks_a_law(bounds: LeaseBounds) -> None:
    found = explore(LeaseModel(bounds))
    assert found.complete, found
    assert found.states > 1000


@pytest.mark.parametrize(("guard", "broken", "steps", "problem"), MUTATIONS)
def test_without_a_guard_there_is_a_counterexample(
    guard: str, broken: Callable[..., object], steps: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"strandline.protocol.{guard}", broken)
    found = explore(LeaseModel(SMALL._replace(lag_max=1))).counterexample
    assert found is not None
    print(found)  # noqa: T201 - pytest shows it on demand
    assert (found.steps, problem in found.problem) == (steps, True), found


def test_cores_agree_on_the_model_and_on_a_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, together = (explore(LeaseModel(SMALL), cores=cores) for cores in (1, 2))
    assert (alone.states, alone.transitions, alone.depth) == (together.states, together.transitions, together.depth)
    monkeypatch.setattr(guards, "check_fence", allow)
    assert explore(LeaseModel(SMALL)).counterexample == explore(LeaseModel(SMALL), cores=2).counterexample


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lag_max", [0, 1, 2])
def test_no_step_breaks_a_law_with_three_workers_three_fences_and_six_ticks(lag_max: int) -> None:
    found = explore(LeaseModel(LeaseBounds(lag_max=lag_max)), cores=CORES)
    assert found.complete, found
    assert found.states > 100_000


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_step_breaks_a_law_with_a_fence_more() -> None:
    found = explore(LeaseModel(LeaseBounds(fence_max=4)), cores=CORES)
    assert found.complete, found
    assert found.states > 1_000_000
