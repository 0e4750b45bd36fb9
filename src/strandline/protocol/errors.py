"""Errors of coordination; part of the one tree of `strandline.errors`.

    InvalidInput
    ├── ShardNotFound            no such shard of this tenant and run
    ├── RunNotFound              no such run of this tenant
    ├── TenantMismatch           the record belongs to another tenant
    ├── CursorOutOfBounds        the cursor's key is outside of the shard
    ├── CursorKeyTooLarge
    ├── CursorTokenTooLarge
    ├── CheckpointMissingKey     a cursor without a key says nothing
    ├── SpecInvalid              the range or the metadata of a shard is not possible
    ├── SplitInvalid             the parts do not cover the shard, or are too many
    └── TooManyShards
    Conflict
    ├── LeaseLost                stop: no checkpoint, split, complete or park may follow
    │   ├── StaleFence           another worker has it by now
    │   └── LeaseExpired         it ran out, taken over or not
    ├── AlreadyLeased            another worker has it until `deadline`
    ├── ShardTerminal            the shard is done, split or parked
    ├── ShardNotParked           only a parked shard can be unparked
    ├── ShardExists              the id is taken by another shard
    ├── OpIdConflict             the operation id was used for something else
    ├── CursorRegression         the cursor would move back
    ├── RunExists                the run was created by another operation
    ├── RunTerminal              the run is over
    ├── RunNotActive             the run has no shards yet
    ├── RunNotInitializing       the run has its shards already
    ├── RegistrationPending      another registration was begun and not finished
    └── RunUnfinished            the run has active shards
    Unavailable
    └── Contended                the record changed during each attempt
    Damaged
    └── RecordBroken             a record breaks its own invariants

Invariants: no key, cursor, token or hash in a message; ids are shown as the 16 hex digits of their bits.
"""

from strandline.errors import Conflict, Damaged, InvalidInput, Unavailable
from strandline.protocol.canonical import to_unsigned

STOP = "stop working on the shard; its new holder goes on from the last checkpoint"


def shown(number: int) -> str:
    """Return an id for display: the 16 hex digits of its bits."""
    return f"{to_unsigned(number):016x}"


class ShardNotFound(InvalidInput):
    """The tenant has no such shard in that run."""

    def __init__(self, run: int, shard: int) -> None:
        super().__init__(f"shard {shown(shard)} of run {shown(run)} does not exist", hint="check tenant, run and shard")
        self.run = run
        self.shard = shard


class RunNotFound(InvalidInput):
    """The tenant has no such run."""

    def __init__(self, run: int) -> None:
        super().__init__(f"run {shown(run)} does not exist", hint="create it, or check tenant and run")
        self.run = run


class TenantMismatch(InvalidInput):
    """The record belongs to another tenant, whose id is not shown."""

    def __init__(self, run: int) -> None:
        super().__init__(f"a record of run {shown(run)} belongs to another tenant")
        self.run = run


class CursorOutOfBounds(InvalidInput):
    """The key of a cursor lies before the shard's start, or at or after its end."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"the cursor's key is outside of shard {shown(shard)}", hint="the shard may have been split")
        self.shard = shard


class CursorKeyTooLarge(InvalidInput):
    """The key of a cursor is longer than keys may be."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a cursor's key of {size:,} bytes is larger than the limit of {limit:,}")
        self.size = size
        self.limit = limit


class CursorTokenTooLarge(InvalidInput):
    """The token of a cursor is longer than tokens may be."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a cursor's token of {size:,} bytes is larger than the limit of {limit:,}")
        self.size = size
        self.limit = limit


class CheckpointMissingKey(InvalidInput):
    """A checkpoint has no key; a token alone has no order."""

    def __init__(self, shard: int) -> None:
        super().__init__(
            f"a checkpoint of shard {shown(shard)} has no key",
            hint="for an empty shard give the shard's start, or one zero byte if it has none",
        )
        self.shard = shard


class SpecInvalid(InvalidInput):
    """The range or the metadata of a shard is not possible."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"not a shard: {problem}")
        self.problem = problem


class SplitInvalid(InvalidInput):
    """The parts of a split do not make up the shard, or are too few or too many."""

    def __init__(self, shard: int, problem: str) -> None:
        super().__init__(f"shard {shown(shard)} cannot be split: {problem}", hint="plan the split from a fresh lease")
        self.shard = shard
        self.problem = problem


class TooManyShards(InvalidInput):
    """A run begins with more shards than allowed."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(
            f"{count:,} initial shards are more than the limit of {limit:,}",
            hint="begin with larger shards; they can be split while they are scanned",
        )
        self.count = count
        self.limit = limit


class LeaseLost(Conflict):
    """The caller's lease is over; it must stop."""


class StaleFence(LeaseLost):
    """The fence is not the shard's current one."""

    def __init__(self, shard: int, fence: int, current: int) -> None:
        super().__init__(f"fence {fence} of shard {shown(shard)} is stale; the current one is {current}", hint=STOP)
        self.shard = shard
        self.fence = fence
        self.current = current


class LeaseExpired(LeaseLost):
    """The lease's deadline has passed, or its owner key is gone; `deadline` is None where none is recorded."""

    def __init__(self, shard: int, fence: int, deadline: int | None) -> None:
        super().__init__(f"lease {fence} of shard {shown(shard)} has expired", hint=STOP + "; renew earlier next time")
        self.shard = shard
        self.fence = fence
        self.deadline = deadline


class AlreadyLeased(Conflict):
    """Another worker has the shard until `deadline`."""

    retryable = True

    def __init__(self, shard: int, deadline: int) -> None:
        super().__init__(
            f"shard {shown(shard)} is leased until {deadline}",
            hint="take another shard, or try again after the deadline",
        )
        self.shard = shard
        self.deadline = deadline


class ShardTerminal(Conflict):
    """The shard is done, split or parked, and takes no further work."""

    def __init__(self, shard: int, status: str) -> None:
        super().__init__(
            f"shard {shown(shard)} is {status}",
            hint="stop working on it; a parked shard can be unparked while its run lasts",
        )
        self.shard = shard
        self.status = status


class ShardNotParked(Conflict):
    """The shard is not parked, so it cannot be unparked."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"shard {shown(shard)} is not parked")
        self.shard = shard


class ShardExists(Conflict):
    """A shard of that id exists with other content."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"shard {shown(shard)} exists already with other content", hint="give each shard its own id")
        self.shard = shard


class OpIdConflict(Conflict):
    """The operation id was used before, for an operation with other content."""

    def __init__(self, op_id: int) -> None:
        super().__init__(
            f"operation {shown(op_id)} was recorded with other content",
            hint="repeat an operation with exactly its first content, or use a new id",
        )
        self.op_id = op_id


class CursorRegression(Conflict):
    """The cursor would move back."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"the cursor of shard {shown(shard)} would move back", hint="go on from the shard's cursor")
        self.shard = shard


class RunExists(Conflict):
    """The run was created before, by another operation."""

    def __init__(self, run: int) -> None:
        super().__init__(f"run {shown(run)} exists already", hint="use it, or choose another id")
        self.run = run


class RunTerminal(Conflict):
    """The run is done, failed or cancelled."""

    def __init__(self, run: int, status: str) -> None:
        super().__init__(f"run {shown(run)} is {status}", hint="start a new run")
        self.run = run
        self.status = status


class RunNotActive(Conflict):
    """The run is still waiting for its shards."""

    retryable = True

    def __init__(self, run: int) -> None:
        super().__init__(f"run {shown(run)} has no shards yet", hint="register its shards first")
        self.run = run


class RunNotInitializing(Conflict):
    """The run has its shards already."""

    def __init__(self, run: int, status: str) -> None:
        super().__init__(f"run {shown(run)} is {status} and takes no more shards", hint="split a shard, or start a run")
        self.run = run
        self.status = status


class RegistrationPending(Conflict):
    """Another registration began and stopped half-way; some of its shards exist."""

    def __init__(self, run: int, op_id: int) -> None:
        super().__init__(
            f"registration {shown(op_id)} of run {shown(run)} is not finished",
            hint="repeat that registration, or cancel the run",
        )
        self.run = run
        self.op_id = op_id


class RunUnfinished(Conflict):
    """Shards of the run are still active."""

    retryable = True

    def __init__(self, run: int, active: int) -> None:
        super().__init__(
            f"run {shown(run)} has {active:,} active shards",
            hint="wait for its workers, or fail or cancel the run",
        )
        self.run = run
        self.active = active


class Contended(Unavailable):
    """Each attempt met a change by another writer; nothing was done."""

    def __init__(self, what: str, attempts: int) -> None:
        super().__init__(
            f"{what}: the record changed during each of {attempts} attempts", hint="try again a little later"
        )
        self.what = what
        self.attempts = attempts


class RecordBroken(Damaged):
    """A record breaks an invariant: the stored record is damaged, or a decision is wrong."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem, safe="nothing was written; compare the record with a backup")
        self.what = what
