"""Runs: their states, their initial shards, and their progress.

    (none)                 create_run        initializing
    initializing           register_shards   active, with its shards
    active, no shard left  complete_run      done
    not over               fail_run          failed
    not over               cancel_run        cancelled
    not over               unpark            the same; a parked shard is active again, fence + 1, cursor kept

Invariants: a run that is over stays so, and has the time it ended; shards come while a run is initializing, all under
one operation; a run remembers its latest eight operations. Parked shards do not keep a run from being done: `Progress`
tells how many there are. Where one commit cannot hold all shards, the registration is written down first (`pending`),
so that it can only be finished, by repeating it, or cancelled with the run.
"""

from typing import NamedTuple

from strandline.errors import InvalidInput
from strandline.protocol import guards
from strandline.protocol.canonical import prefixed, to_unsigned, u8, u32, u64
from strandline.protocol.errors import (
    RecordBroken,
    RegistrationPending,
    RunExists,
    RunNotActive,
    RunNotInitializing,
    RunTerminal,
    RunUnfinished,
    ShardNotParked,
    ShardTerminal,
    SpecInvalid,
    TenantMismatch,
    TooManyShards,
    shown,
)
from strandline.protocol.operations import payload_hash, remember, replay
from strandline.protocol.shards import (
    ID_BYTES,
    INITIAL_SHARDS_MAX,
    OPS_PER_RUN_MAX,
    Code,
    Cursor,
    CursorSemantics,
    OpEntry,
    OpKind,
    Outcome,
    RunKey,
    ShardRecord,
    ShardSpec,
    ShardStatus,
    check_invariants,
    is_id,
    ops_problem,
    spec_problem,
)


class RunStatus(Code):
    """The state of a run; the last three are final."""

    INITIALIZING = 0
    ACTIVE = 1
    DONE = 2
    FAILED = 3
    CANCELLED = 4


class InitialShard(NamedTuple):
    """An initial shard of a run; its id is not negative, unlike derived ids."""

    shard: int
    spec: ShardSpec


class Progress(NamedTuple):
    """The number of shards of a run in each state."""

    active: int = 0
    done: int = 0
    split: int = 0
    parked: int = 0


class RunRecord(NamedTuple):
    """A run as it is stored."""

    tenant: bytes
    run: int
    status: RunStatus
    semantics: CursorSemantics
    created_at: int
    completed_at: int | None = None
    pending: OpEntry | None = None
    ops: tuple[OpEntry, ...] = ()

    @property
    def key(self) -> RunKey:
        """The key of the record."""
        return RunKey(self.tenant, self.run)

    @property
    def over(self) -> bool:
        """Whether the run is done, failed or cancelled."""
        return self.status in _OVER


class RunDecided(NamedTuple):
    """The new record of a run, the shards that change with it, and the outcome; `replayed` changes nothing."""

    record: RunRecord
    outcome: Outcome
    shards: tuple[ShardRecord, ...] = ()
    replayed: bool = False


_OVER = frozenset({RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED})
_KINDS = {
    RunStatus.DONE: OpKind.COMPLETE_RUN,
    RunStatus.FAILED: OpKind.FAIL_RUN,
    RunStatus.CANCELLED: OpKind.CANCEL_RUN,
}


def create_run(existing: RunRecord | None, now: int, key: RunKey, semantics: CursorSemantics, op_id: int) -> RunDecided:
    """Create a run without shards."""
    hashed = payload_hash(OpKind.CREATE_RUN, u8(semantics))
    if existing is not None:
        check_run_tenant(existing, key.tenant)
        if outcome := replay(existing.ops, op_id, hashed):
            return RunDecided(existing, outcome, replayed=True)
        raise RunExists(key.run)
    if len(key.tenant) != ID_BYTES or not is_id(key.run) or not is_id(op_id):
        raise InvalidInput(f"a tenant has {ID_BYTES} bytes, and ids have 64 bits")
    run = RunRecord(*key, RunStatus.INITIALIZING, semantics, now)
    return _decide(run, op_id, hashed, Outcome(OpKind.CREATE_RUN, now))


def begin_registration(run: RunRecord, now: int, shards: tuple[InitialShard, ...], op_id: int) -> RunDecided:
    """Record that a registration has begun, before the first of several commits."""
    entry, outcome = _registration(run, now, shards, op_id)
    if outcome:
        return RunDecided(run, outcome, replayed=True)
    if run.pending is not None:
        return RunDecided(run, run.pending.outcome, _shards_of(run, shards), replayed=True)
    pending = check_run_invariants(run._replace(pending=entry))
    return RunDecided(pending, entry.outcome, _shards_of(run, shards))


def register_shards(run: RunRecord, now: int, shards: tuple[InitialShard, ...], op_id: int) -> RunDecided:
    """Register the shards of a run, which makes it active."""
    entry, outcome = _registration(run, now, shards, op_id)
    if outcome:
        return RunDecided(run, outcome, replayed=True)
    active = run._replace(status=RunStatus.ACTIVE, pending=None)
    return _decide(active, op_id, entry.payload_hash, entry.outcome, _shards_of(run, shards))


def complete_run(run: RunRecord, now: int, op_id: int, active_shards: int) -> RunDecided:
    """End a run whose shards are all done, split or parked."""
    hashed = payload_hash(OpKind.COMPLETE_RUN, b"")
    if outcome := replay(run.ops, op_id, hashed):
        return RunDecided(run, outcome, replayed=True)
    check_run_active(run)
    check_run_finished(run, active_shards)
    return _end(run, now, op_id, RunStatus.DONE)


def fail_run(run: RunRecord, now: int, op_id: int) -> RunDecided:
    """End a run as failed."""
    return _give_up(run, now, op_id, RunStatus.FAILED)


def cancel_run(run: RunRecord, now: int, op_id: int) -> RunDecided:
    """End a run as cancelled."""
    return _give_up(run, now, op_id, RunStatus.CANCELLED)


def unpark(run: RunRecord, shard: ShardRecord, now: int, op_id: int) -> RunDecided:
    """Make a parked shard active again, under a new fence and at its cursor."""
    hashed = payload_hash(OpKind.UNPARK, u64(to_unsigned(shard.shard)))
    if outcome := replay(run.ops, op_id, hashed):
        return RunDecided(run, outcome, replayed=True)
    guards.check_tenant(shard, run.tenant)
    check_run_not_over(run)
    check_parked(shard)
    back = shard._replace(status=ShardStatus.ACTIVE, park_reason=None, fence=shard.fence + 1)
    return _decide(run, op_id, hashed, Outcome(OpKind.UNPARK, now), (check_invariants(back),))


def check_run_tenant(run: RunRecord, tenant: bytes) -> None:
    """A tenant touches only its own runs."""
    if run.tenant != tenant:
        raise TenantMismatch(run.run)


def check_run_not_over(run: RunRecord) -> None:
    """A run that is over stays so."""
    if run.over:
        raise RunTerminal(run.run, run.status.name.lower())


def check_run_active(run: RunRecord) -> None:
    """A shard changes only while its run is active."""
    check_run_not_over(run)
    if run.status != RunStatus.ACTIVE:
        raise RunNotActive(run.run)


def check_run_initializing(run: RunRecord) -> None:
    """A run registers its shards once."""
    if run.status != RunStatus.INITIALIZING:
        raise RunNotInitializing(run.run, run.status.name.lower())


def check_run_finished(run: RunRecord, active_shards: int) -> None:
    """A run is done when it has no active shard."""
    if active_shards:
        raise RunUnfinished(run.run, active_shards)


def check_parked(shard: ShardRecord) -> None:
    """Only a parked shard can be unparked."""
    if shard.status in {ShardStatus.DONE, ShardStatus.SPLIT}:
        raise ShardTerminal(shard.shard, shard.status.name.lower())
    if shard.status != ShardStatus.PARKED:
        raise ShardNotParked(shard.shard)


def check_initial_shards(shards: tuple[InitialShard, ...]) -> None:
    """A run begins with a limited number of shards of distinct ids and possible ranges."""
    if len(shards) > INITIAL_SHARDS_MAX:
        raise TooManyShards(len(shards), INITIAL_SHARDS_MAX)
    if len({shard.shard for shard in shards}) != len(shards):
        raise SpecInvalid("its id is given twice")
    for shard, spec in shards:
        if shard < 0 or not is_id(shard):
            raise SpecInvalid("its id is not in [0, 2^63); negative ids are for parts of shards")
        if problem := spec_problem(spec):
            raise SpecInvalid(problem)


def check_run_invariants(run: RunRecord) -> RunRecord:
    """Return the record, or raise `RecordBroken` with the first invariant that it breaks."""
    problem = ops_problem(run.ops, OPS_PER_RUN_MAX)
    if len(run.tenant) != ID_BYTES or not is_id(run.run):
        problem = "its tenant or id is of the wrong size"
    elif (run.completed_at is not None) != run.over:
        problem = "it is over without the time it ended, or the other way round"
    elif run.pending is not None and run.status == RunStatus.ACTIVE:
        problem = "it is active and still being given its shards"
    if problem:
        raise RecordBroken(f"run {shown(run.run)}", problem)
    return run


def _registration(
    run: RunRecord, now: int, shards: tuple[InitialShard, ...], op_id: int
) -> tuple[OpEntry, Outcome | None]:
    rows = (u64(to_unsigned(shard)) + b"".join(map(prefixed, spec)) for shard, spec in shards)
    hashed = payload_hash(OpKind.REGISTER_SHARDS, u32(len(shards)) + b"".join(rows))
    entry = OpEntry(op_id, hashed, Outcome(OpKind.REGISTER_SHARDS, now))
    if outcome := replay(run.ops, op_id, hashed):
        return entry, outcome
    check_run_initializing(run)
    check_initial_shards(shards)
    if run.pending is not None and replay((run.pending,), op_id, hashed) is None:
        raise RegistrationPending(run.run, run.pending.op_id)
    return entry, None


def _shards_of(run: RunRecord, shards: tuple[InitialShard, ...]) -> tuple[ShardRecord, ...]:
    return tuple(
        check_invariants(ShardRecord(run.tenant, run.run, shard, spec, semantics=run.semantics, cursor=Cursor()))
        for shard, spec in shards
    )


def _give_up(run: RunRecord, now: int, op_id: int, status: RunStatus) -> RunDecided:
    hashed = payload_hash(_KINDS[status], b"")
    if outcome := replay(run.ops, op_id, hashed):
        return RunDecided(run, outcome, replayed=True)
    check_run_not_over(run)
    return _end(run, now, op_id, status)


def _end(run: RunRecord, now: int, op_id: int, status: RunStatus) -> RunDecided:
    ended = run._replace(status=status, completed_at=max(now, run.created_at), pending=None)
    kind = _KINDS[status]
    return _decide(ended, op_id, payload_hash(kind, b""), Outcome(kind, now))


def _decide(
    run: RunRecord, op_id: int, hashed: int, outcome: Outcome, shards: tuple[ShardRecord, ...] = ()
) -> RunDecided:
    ops = remember(run.ops, OpEntry(op_id, hashed, outcome), OPS_PER_RUN_MAX)
    return RunDecided(check_run_invariants(run._replace(ops=ops)), outcome, shards)
