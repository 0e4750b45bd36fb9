"""A store of coordination records with a hook around each commit, over any other store.

The hook may raise before a commit, like an unreachable store, or let another writer commit first; and raise after a
commit, like a store whose answer is lost.
"""

from collections.abc import Sequence

from strandline.pipeline.coordination import CommitHook, RecordStore
from strandline.pipeline.coordination.record_store import Claimable, Plan, Result, Versioned
from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import RunKey, ShardKey, ShardRecord


class HookedRecords:
    """A `RecordStore` that calls a hook, and another store for everything else."""

    def __init__(self, store: RecordStore, hook: CommitHook) -> None:
        self._store = store
        self._hook = hook
        self.records_per_commit_max = store.records_per_commit_max
        self.registers_in_one_commit = store.registers_in_one_commit

    def commit(self, plan: Plan) -> Result:
        """Write a plan between the two calls of the hook."""
        self._hook.before(plan)
        result = self._store.commit(plan)
        if result is Result.DONE:
            self._hook.after(plan)
        return result

    def load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        """Return a run, or None."""
        return self._store.load_run(key)

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        """Return shards in the order asked for, None for those that do not exist."""
        return self._store.load_shards(keys)

    def claimable(self, run: RunKey, now: int, shards_max: int) -> Claimable:
        """Return active shards without a lease."""
        return self._store.claimable(run, now, shards_max)

    def progress(self, run: RunKey) -> Progress:
        """Return the number of shards of a run in each state."""
        return self._store.progress(run)

    def list_shards(self, run: RunKey, after: int | None, shards_max: int) -> list[ShardRecord]:
        """Return shards of a run by id, beginning after one."""
        return self._store.list_shards(run, after, shards_max)

    def list_runs(self, tenant: bytes, after: int | None, runs_max: int) -> list[RunRecord]:
        """Return runs of a tenant by id, beginning after one."""
        return self._store.list_runs(tenant, after, runs_max)

    def close(self) -> None:
        """Close the other store."""
        self._store.close()
