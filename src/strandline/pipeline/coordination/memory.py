"""Coordination records in memory: the twin of the durable stores, for tests, simulations and runs of one process.

It keeps the same contract but for durability, and is safe to use from several threads. A `CommitHook` may raise before
a commit, like a store that is unreachable, or after it, like a store whose answer is lost.
"""

import threading
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Protocol

from strandline.pipeline.coordination.record_store import Claimable, Plan, Result, RunChange, ShardChange, Versioned
from strandline.protocol.runs import Progress, RunRecord
from strandline.protocol.shards import RunKey, ShardKey, ShardRecord, ShardStatus


class CommitHook(Protocol):
    """Hooks around each commit; their errors reach the caller."""

    def before(self, plan: Plan) -> None:
        """Nothing is written yet; raising writes nothing."""
        ...

    def after(self, plan: Plan) -> None:
        """The plan is written; raising loses only the answer."""
        ...


class MemoryRecords:
    """Records in dictionaries, and an index of the active shards of each run."""

    records_per_commit_max = 10_000
    registers_in_one_commit = True

    def __init__(self, hook: CommitHook | None = None) -> None:
        self._runs: dict[RunKey, Versioned[RunRecord]] = {}
        self._shards: dict[ShardKey, Versioned[ShardRecord]] = {}
        self._by_run: dict[RunKey, dict[ShardStatus, set[int]]] = {}
        self._free: dict[RunKey, dict[int, None]] = {}
        self._deadlines: dict[RunKey, list[tuple[int, int]]] = {}
        self._hook = hook
        self._lock = threading.RLock()

    def load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        """Return a run, or None."""
        with self._lock:
            return self._runs.get(key)

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        """Return shards in the order asked for, None for those that do not exist."""
        with self._lock:
            return [self._shards.get(key) for key in keys]

    def commit(self, plan: Plan) -> Result:
        """Write a plan: everything or nothing."""
        with self._lock:
            if self._hook:
                self._hook.before(plan)
            if not self._unchanged(plan):
                return Result.CHANGED
            for change in plan.shards:
                self._put_shard(change)
            if plan.run:
                self._put_run(plan.run)
            if self._hook:
                self._hook.after(plan)
            return Result.DONE

    def claimable(self, run: RunKey, now: int, shards_max: int) -> Claimable:
        """Return active shards without a valid lease."""
        with self._lock:
            chosen = list(islice(self._free.get(run, ()), shards_max))
            ended, earliest = self._ended(run, now, shards_max - len(chosen))
            keys = tuple(ShardKey(*run, shard) for shard in chosen + ended)
            return Claimable(keys, None if keys else earliest)

    def progress(self, run: RunKey) -> Progress:
        """Return the number of shards of a run in each state."""
        with self._lock:
            statuses = self._by_run.get(run, {})
            return Progress(*(len(statuses.get(status, ())) for status in ShardStatus))

    def list_shards(self, run: RunKey, after: int | None, shards_max: int) -> list[ShardRecord]:
        """Return shards of a run by id, beginning after one."""
        with self._lock:
            ids = sorted(shard for shards in self._by_run.get(run, {}).values() for shard in shards)
            chosen = [shard for shard in ids if after is None or shard > after][:shards_max]
            return [self._shards[ShardKey(*run, shard)].record for shard in chosen]

    def list_runs(self, tenant: bytes, after: int | None, runs_max: int) -> list[RunRecord]:
        """Return runs of a tenant by id, beginning after one."""
        with self._lock:
            keys = sorted(key for key in self._runs if key.tenant == tenant and (after is None or key.run > after))
            return [self._runs[key].record for key in keys[:runs_max]]

    def close(self) -> None:
        """Nothing is held."""

    def _ended(self, run: RunKey, now: int, shards_max: int) -> tuple[list[int], int | None]:
        """Return shards whose lease ended, and the first deadline that is still to come."""
        heap = self._deadlines.get(run, [])
        ended: list[tuple[int, int]] = []
        while heap and len(ended) < shards_max:
            deadline, shard = heap[0]
            if self._shards[ShardKey(*run, shard)].record.deadline == deadline and (deadline, shard) not in ended:
                if deadline > now:
                    break
                ended.append((deadline, shard))
            heappop(heap)  # drop outdated entries
        earliest = heap[0][0] if heap else None
        for entry in ended:
            heappush(heap, entry)
        return [shard for _, shard in ended], earliest

    def _unchanged(self, plan: Plan) -> bool:
        runs = [plan.unchanged_run] if plan.unchanged_run else []
        if plan.run and not _is_current(self._runs.get(plan.run.after.key), plan.run.before):
            return False
        return all(_is_current(self._runs.get(run.record.key), run) for run in runs) and all(
            _is_current(self._shards.get(change.after.key), change.before) for change in plan.shards
        )

    def _put_shard(self, change: ShardChange) -> None:
        after = change.after
        run = RunKey(after.tenant, after.run)
        statuses = self._by_run.setdefault(run, {})
        if change.before:
            statuses[change.before.record.status].discard(after.shard)
        statuses.setdefault(after.status, set()).add(after.shard)
        free = self._free.setdefault(run, {})
        free.pop(after.shard, None)
        if after.deadline is not None:
            heappush(self._deadlines.setdefault(run, []), (after.deadline, after.shard))
        elif after.status == ShardStatus.ACTIVE:
            free[after.shard] = None
        self._shards[after.key] = Versioned(after, change.before.version + 1 if change.before else 1)

    def _put_run(self, change: RunChange) -> None:
        self._runs[change.after.key] = Versioned(change.after, change.before.version + 1 if change.before else 1)


def _is_current(
    stored: Versioned[RunRecord] | Versioned[ShardRecord] | None,
    read: Versioned[RunRecord] | Versioned[ShardRecord] | None,
) -> bool:
    return (stored.version if stored else None) == (read.version if read else None)
