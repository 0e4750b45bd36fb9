"""Many workers, faults and zombies over the coordinator: the invariants hold, and when one does not it is seen."""

import os
from collections import Counter
from collections.abc import Callable

import pytest

from strandline.protocol import leases
from strandline.protocol.cooldown import Cooldown
from strandline.protocol.errors import OpIdConflict, RunUnfinished
from strandline.protocol.runs import RunRecord
from strandline.protocol.shards import Lease, OpEntry, ParkReason, ShardRecord
from strandline.sim.coordination import RADIOACTIVE, STORMY, SUNNY_DAY, FaultLevel, simulate
from strandline.sim.coordination_invariants import InvariantBroken
from tests.pipeline.coordination.backends import BACKENDS

LEVELS = [SUNNY_DAY, STORMY, RADIOACTIVE]
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "40"))
acquire, park = leases.acquire, leases.park


def allow(*_: object) -> None:
    """Refuse nothing."""


def unchecked(record: ShardRecord) -> ShardRecord:
    return record


def never_paused(*_: object) -> Cooldown:
    return Cooldown()


def acquire_under_the_same_fence(record: ShardRecord, now: int, tenant: bytes, worker: int, ttl_ns: int) -> ShardRecord:
    return acquire(record, now, tenant, worker, ttl_ns)._replace(fence=max(1, record.fence))


def park_and_keep_the_lease(
    record: ShardRecord, lease: Lease, now: int, reason: ParkReason, op_id: int
) -> leases.Decided:
    decided = park(record, lease, now, reason, op_id)
    return decided._replace(record=decided.record._replace(owner=record.owner, deadline=record.deadline))


def never_finished(run: RunRecord, _: int) -> None:
    raise RunUnfinished(run.run, 1)


def refuse_repeats(ops: tuple[OpEntry, ...], op_id: int, _: int) -> None:
    if any(entry.op_id == op_id for entry in ops):
        raise OpIdConflict(op_id)


def simulate_some() -> None:
    for seed in range(10):
        simulate(seed, RADIOACTIVE, 2_000)


MUTATIONS: list[tuple[str, dict[str, Callable[..., object]]]] = [
    ("S1", {"protocol.guards.check_lease": allow}),
    ("S1", {"protocol.guards.check_fence": allow}),
    ("S1", {"protocol.guards.check_not_expired": allow}),
    ("S1", {"protocol.guards.check_not_leased": allow}),
    ("S2", {"protocol.leases.acquire": acquire_under_the_same_fence}),
    ("S3", {"protocol.runs.check_parked": allow}),
    ("S4", {"protocol.leases.park": park_and_keep_the_lease}),
    ("S5", {"protocol.guards.check_no_regression": allow}),
    ("S6", {"protocol.guards.check_in_bounds": allow, "protocol.leases.check_invariants": unchecked}),
    ("S7", {"protocol.guards.check_parts": allow}),
    ("S8", {"protocol.runs.check_run_not_over": allow}),
    ("S9", {"pipeline.coordination.coordinator.Coordinator._cooldown": never_paused}),
    ("S4", {"protocol.leases.replay": allow}),
    ("liveness", {"protocol.runs.check_run_finished": never_finished}),
    ("an honest worker was refused", {"protocol.leases.replay": refuse_repeats}),
]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_the_invariants_hold(seed: int, level: FaultLevel) -> None:
    simulate(seed, level, 2_000)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_invariants_hold_over_every_store(backend: str, request: pytest.FixtureRequest) -> None:
    with BACKENDS[backend](request) as store:
        simulate(1, STORMY, 200, store=store)


def test_a_seed_is_a_simulation() -> None:
    assert simulate(5, RADIOACTIVE, 500) == simulate(5, RADIOACTIVE, 500)
    assert simulate(5, RADIOACTIVE, 500) != simulate(6, RADIOACTIVE, 500)


def test_everything_that_can_be_answered_is_answered() -> None:
    answers: Counter[str] = Counter()
    for seed in range(4):
        answers += simulate(seed, STORMY, 2_000)
    given = {answer.split(": ")[1] for answer in answers}
    assert given >= {
        "Acquired",
        "AlreadyLeased",
        "CheckpointMissingKey",
        "CursorOutOfBounds",
        "CursorRegression",
        "Lease",
        "LeaseExpired",
        "NoneAvailable",
        "OpIdConflict",
        "Outcome",
        "RunTerminal",
        "RunUnfinished",
        "ShardTerminal",
        "SplitInvalid",
        "StaleFence",
        "Throttled",
        "Unavailable",
        "UnknownOutcome",
    }


@pytest.mark.parametrize(
    ("invariant", "broken"), MUTATIONS, ids=lambda value: "" if isinstance(value, str) else ", ".join(value)
)
def test_a_broken_guard_is_noticed(
    invariant: str, broken: dict[str, Callable[..., object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, function in broken.items():
        monkeypatch.setattr(f"strandline.{name}", function)
    with pytest.raises(InvariantBroken) as caught:
        simulate_some()
    print(caught.value)  # noqa: T201 - pytest shows it on demand
    assert str(caught.value).startswith(invariant), caught.value
    assert ", Radioactive, 2000, 8)" in str(caught.value)


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("seed", range(1000, 1000 + SEEDS))
def test_the_invariants_hold_for_long(seed: int, level: FaultLevel) -> None:
    simulate(seed, level, 10_000)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_the_invariants_hold_for_long_over_every_store(
    level: FaultLevel, backend: str, request: pytest.FixtureRequest
) -> None:
    with BACKENDS[backend](request) as store:
        simulate(2, level, 3_000, store=store)
