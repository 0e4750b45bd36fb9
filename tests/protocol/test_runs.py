"""Runs: every status against every operation, registrations in steps, and their invariants."""

import pytest

from strandline.protocol import runs
from strandline.protocol.errors import (
    OpIdConflict,
    RecordBroken,
    RegistrationPending,
    RunExists,
    RunNotActive,
    RunNotInitializing,
    RunTerminal,
    TenantMismatch,
)
from strandline.protocol.runs import InitialShard, RunRecord, RunStatus, check_run_invariants
from strandline.protocol.shards import (
    CursorSemantics,
    OpEntry,
    OpKind,
    Outcome,
    ParkReason,
    RunKey,
    ShardSpec,
    ShardStatus,
)

KEY = RunKey(b"t" * 32, 7)
SHARDS = (InitialShard(1, ShardSpec(b"b", b"m")), InitialShard(2, ShardSpec(b"m")))


def new() -> RunRecord:
    return runs.create_run(None, 100, KEY, CursorSemantics.DISPATCHED, 1).record


def active() -> RunRecord:
    return runs.register_shards(new(), 101, SHARDS, 2).record


def test_a_run_lives_from_initializing_to_done() -> None:
    decided = runs.register_shards(new(), 101, SHARDS, 2)
    assert [shard.semantics for shard in decided.shards] == [CursorSemantics.DISPATCHED] * 2
    done = runs.complete_run(decided.record, 105, 3, 0).record
    assert (new().status, decided.record.status, done.status) == (0, 1, 2)
    assert (done.created_at, done.completed_at) == (100, 105)
    assert [entry.outcome.kind for entry in done.ops] == [
        OpKind.CREATE_RUN,
        OpKind.REGISTER_SHARDS,
        OpKind.COMPLETE_RUN,
    ]


@pytest.mark.parametrize("status", [RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED])
def test_a_run_that_is_over_takes_nothing_but_what_it_remembers(status: RunStatus) -> None:
    over = active()._replace(status=status, completed_at=105)
    for call in (runs.fail_run, runs.cancel_run):
        with pytest.raises(RunTerminal):
            call(over, 106, 9)
    with pytest.raises(RunTerminal):
        runs.complete_run(over, 106, 9, 0)
    with pytest.raises(RunNotInitializing):
        runs.register_shards(over, 106, SHARDS, 9)
    assert runs.register_shards(over, 106, SHARDS, 2).replayed


def test_eight_operations_are_remembered() -> None:
    parked = (
        runs.register_shards(new(), 101, SHARDS, 2)
        .shards[0]
        ._replace(status=ShardStatus.PARKED, park_reason=ParkReason.OTHER)
    )
    run = active()
    for number in range(8):
        run = runs.unpark(run, parked, 102, 10 + number).record
    assert [entry.op_id for entry in run.ops] == list(range(10, 18))
    with pytest.raises(RunExists):
        runs.create_run(run, 103, KEY, CursorSemantics.DISPATCHED, 1)


def test_an_operation_id_is_for_one_thing() -> None:
    with pytest.raises(OpIdConflict):
        runs.fail_run(active(), 102, 2)
    with pytest.raises(OpIdConflict):
        runs.create_run(active(), 102, KEY, CursorSemantics.COMPLETED, 1)


def test_a_registration_in_steps_is_finished_by_the_same_operation_only() -> None:
    begun = runs.begin_registration(new(), 101, SHARDS, 2)
    assert begun.record.pending is not None
    assert len(begun.shards) == 2
    again = runs.begin_registration(begun.record, 150, SHARDS, 2)
    assert (again.record, again.outcome, again.replayed) == (begun.record, begun.outcome, True)
    assert again.shards == begun.shards
    with pytest.raises(RegistrationPending):
        runs.begin_registration(begun.record, 102, SHARDS, 3)
    with pytest.raises(RegistrationPending):
        runs.register_shards(begun.record, 102, SHARDS, 3)
    with pytest.raises(OpIdConflict):
        runs.register_shards(begun.record, 102, SHARDS[:1], 2)
    with pytest.raises(RunNotActive):
        runs.complete_run(begun.record, 102, 4, 0)
    done = runs.register_shards(begun.record, 103, SHARDS, 2).record
    assert (done.status, done.pending) == (RunStatus.ACTIVE, None)
    assert runs.begin_registration(done, 104, SHARDS, 2).shards == ()
    assert runs.cancel_run(begun.record, 103, 5).record.pending is None


def test_another_tenants_run_or_shard_is_refused() -> None:
    with pytest.raises(TenantMismatch):
        runs.create_run(active(), 102, RunKey(b"o" * 32, 7), CursorSemantics.DISPATCHED, 1)
    (shard, _) = runs.register_shards(new(), 101, SHARDS, 2).shards
    with pytest.raises(TenantMismatch):
        runs.unpark(active(), shard._replace(tenant=b"o" * 32), 102, 3)


OP = OpEntry(1, 7, Outcome(OpKind.REGISTER_SHARDS, 5))


@pytest.mark.parametrize(
    "broken",
    [
        active()._replace(tenant=b"short"),
        active()._replace(run=2**63),
        active()._replace(completed_at=5),
        active()._replace(status=RunStatus.DONE),
        active()._replace(pending=OP),
        active()._replace(ops=tuple(OP._replace(op_id=number) for number in range(9))),
    ],
)
def test_a_run_that_breaks_an_invariant_is_refused(broken: RunRecord) -> None:
    with pytest.raises(RecordBroken):
        check_run_invariants(broken)
