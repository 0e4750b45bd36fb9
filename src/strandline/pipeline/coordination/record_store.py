"""The storage interface of coordination: records with versions, and an index of claimable shards.

Records are values of `strandline.protocol`; the store reads only their status and deadline, for its index. Decisions
are made outside of it, on what it returned, and written back only if that is unchanged.

Every store keeps this contract, which `strandline.testing.check_coordination` checks through a coordinator:

- `commit` writes all changes of a plan or none, and only if each record that the plan names still has its version;
- a commit that returned `DONE` is durable, and is seen by every later `load_…`, `claimable` and `progress`;
- a tenant's records are found under that tenant only.

A store with owners of its own (etcd: a key on a lease) derives their changes from `owner_change`, and answers
`OWNER_LOST` when the owner of a `HELD` or `RELEASED` shard is gone. A store without owners ignores it: the version of
the record has the same effect.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import RunKey, ShardKey, ShardRecord

Record_co = TypeVar("Record_co", RunRecord, ShardRecord, covariant=True)


class Versioned(NamedTuple, Generic[Record_co]):
    """A record and its version in the store; a key never gets the same version twice."""

    record: Record_co
    version: int


class ShardChange(NamedTuple):
    """A shard before (None if it must not exist yet) and after the change."""

    before: Versioned[ShardRecord] | None
    after: ShardRecord


class RunChange(NamedTuple):
    """A run before (None if it must not exist yet) and after the change."""

    before: Versioned[RunRecord] | None
    after: RunRecord


class Plan(NamedTuple):
    """Changes to commit, all or none."""

    now: int
    shards: tuple[ShardChange, ...] = ()
    run: RunChange | None = None
    unchanged_run: Versioned[RunRecord] | None = None
    """A run that was only read, and must be unchanged at the commit."""


class Result(Enum):
    """The outcome of a plan; a store that does not know it raises `UnknownOutcome`."""

    DONE = "done"
    CHANGED = "changed"
    """Nothing was written: a record has changed since the read. Read and decide again."""
    OWNER_LOST = "owner lost"
    """Nothing was written: the lease was lost outside of the record."""


class OwnerChange(Enum):
    """The effect of a change on the owner of a shard."""

    NONE = "none"
    TAKEN = "taken"
    HELD = "held"
    RELEASED = "released"


class Claimable(NamedTuple):
    """Shards without a valid lease; if there are none, the first deadline."""

    shards: tuple[ShardKey, ...]
    earliest_deadline: int | None


class RecordStore(Protocol):
    """The store of runs and shards. Thread-safe; several processes may share the storage behind it.

    Errors of a driver are mapped: `Unavailable` where nothing was done, `UnknownOutcome` where a commit may have been.
    """

    records_per_commit_max: int
    """The number of shards that one plan may change, beside its run; at least 3."""
    registers_in_one_commit: bool
    """Whether one plan may make a run active and add its shards; otherwise the run is written before and after them."""

    def load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        """Return a run, or None."""
        ...

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        """Return shards in the order asked for, None for those that do not exist."""
        ...

    def commit(self, plan: Plan) -> Result:
        """Write a plan: everything, durably, or nothing."""
        ...

    def claimable(self, run: RunKey, now: int, shards_max: int) -> Claimable:
        """Return active shards without a lease, or with one that ended (`deadline <= now`), from an index.

        The store chooses which, and how many of several; a shard that alone is claimable is always returned, with one
        exception: one that became free before the deadline it had when the store last read it (it was parked and
        unparked, or a claim of it was undone) may be left out until that deadline, at most a lease.

        Only if there is none, `earliest_deadline` is the smallest deadline of an active shard, or None where none is
        active; where many were renewed it may be one of before. A store whose owners can vanish before the deadline
        still goes by the deadline.
        """
        ...

    def progress(self, run: RunKey) -> Progress:
        """Return the number of shards of a run in each state, as of one moment."""
        ...

    def list_shards(self, run: RunKey, after: int | None, shards_max: int) -> list[ShardRecord]:
        """Return shards of a run by id, signed, beginning after one."""
        ...

    def list_runs(self, tenant: bytes, after: int | None, runs_max: int) -> list[RunRecord]:
        """Return runs of a tenant by id, signed, beginning after one."""
        ...

    def close(self) -> None:
        """Close connections; calling it twice is harmless."""
        ...


def owner_change(change: ShardChange) -> OwnerChange:
    """Return the effect of a change on the shard's owner."""
    before = change.before.record if change.before else None
    if change.after.owner is not None:
        same = before is not None and before.owner is not None and before.fence == change.after.fence
        return OwnerChange.HELD if same else OwnerChange.TAKEN
    return OwnerChange.RELEASED if before is not None and before.owner is not None else OwnerChange.NONE
