"""The coordinator: reads records, lets `strandline.protocol` decide, and writes the decision if nothing changed.

Invariants: a decision is written against exactly the records that it was made on, or not at all; what is answered is
durable; an operation may be repeated with its id after any error, and is done once. A worker that is told `LeaseLost`
stops. Every call takes `now`; the coordinator reads no clock.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from strandline.errors import InvalidInput
from strandline.pipeline.coordination.record_store import (
    Plan,
    RecordStore,
    Result,
    RunChange,
    ShardChange,
    Versioned,
)
from strandline.protocol import cooldown, leases, runs, splits
from strandline.protocol.canonical import to_unsigned
from strandline.protocol.errors import (
    AlreadyLeased,
    Contended,
    LeaseExpired,
    RunNotFound,
    ShardExists,
    ShardNotFound,
    ShardTerminal,
    SplitInvalid,
)
from strandline.protocol.leases import Acquired, Decided
from strandline.protocol.runs import InitialShard, Progress, RunDecided, RunRecord
from strandline.protocol.shards import (
    Cursor,
    CursorSemantics,
    Lease,
    Outcome,
    ParkReason,
    RunKey,
    ShardKey,
    ShardRecord,
    ShardSpec,
    check_number,
)
from strandline.protocol.splits import ResidualPlan

T = TypeVar("T")

LEASE_TTL_NS = 60_000_000_000
ATTEMPTS = 9
"""The first attempt and eight retries."""
PAUSE_FIRST_S, PAUSE_MAX_S = 0.005, 0.2
CANDIDATES_MAX = 64
CLAIMS_PER_CALL = 8
_COOLDOWNS_MAX = 10_000
_GOLDEN = 0x9E3779B97F4A7C15
"""An odd number whose multiples are spread evenly over 64 bits."""


class NoneAvailable(NamedTuple):
    """Nothing can be claimed now; no lease ends before `earliest_deadline`, which is None if no shard is active."""

    earliest_deadline: int | None


class Throttled(NamedTuple):
    """Other workers won each attempt; claim again after a pause."""

    retry_after_ns: int


class Coordinator:
    """Runs and shards over a store of records; `ShardCoordinator` and `RunCoordinator` state its promises."""

    def __init__(
        self, store: RecordStore, *, lease_ttl_ns: int = LEASE_TTL_NS, pause: Callable[[float], None] = time.sleep
    ) -> None:
        if lease_ttl_ns <= 0:
            raise InvalidInput(f"the duration of a lease must be positive, not {lease_ttl_ns} ns")
        self._store = store
        self._ttl_ns = lease_ttl_ns
        self._pause = pause
        self._cooldowns: dict[tuple[RunKey, int], cooldown.Cooldown] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    # Workers.

    def acquire_and_restore(self, now: int, key: ShardKey, worker: int) -> Acquired:
        """Acquire a shard without a valid lease, under a new fence."""

        def once() -> Acquired | None:
            return self._acquire(now, self._active_run(RunKey(key.tenant, key.run)), key, worker)

        return self._retry("acquire", once)

    def claim_next_available(self, now: int, run: RunKey, worker: int) -> Acquired | NoneAvailable | Throttled:
        """Acquire any shard of a run without a valid lease."""
        wait_ns = cooldown.remaining_ns(self._cooldown(run, worker), now)
        if wait_ns:
            return Throttled(wait_ns)
        active = self._active_run(run)
        found = self._store.claimable(run, now, CANDIDATES_MAX)
        if not found.shards:
            return NoneAvailable(found.earliest_deadline)
        for key in _spread(found.shards, worker)[:CLAIMS_PER_CALL]:
            try:
                taken = self._acquire(now, active, key, worker)
            except (AlreadyLeased, ShardTerminal, ShardNotFound):
                continue
            if taken:
                self._cool(run, worker, None)
                return taken
        paused = cooldown.after_failure(self._cooldown(run, worker), now)
        self._cool(run, worker, paused, now)
        return Throttled(cooldown.remaining_ns(paused, now))

    def has_free(self, now: int, run: RunKey) -> bool:
        """Return whether a shard of a run can be claimed, so that no worker is idle for long."""
        return bool(self._store.claimable(run, now, 1).shards)

    def renew(self, now: int, lease: Lease) -> Lease:
        """Extend a valid lease."""

        def once() -> Lease | None:
            stored = self._shard(lease.key)
            after = leases.renew(stored.record, lease, now, self._ttl_ns)
            written = self._written(Plan(now, (ShardChange(stored, after),)), lease)
            return leases.lease_of(after) if written else None

        return self._retry("renew", once)

    def checkpoint(self, now: int, lease: Lease, cursor: Cursor, op_id: int) -> Outcome:
        """Move the cursor."""
        return self._under_lease(now, lease, lambda shard: leases.checkpoint(shard, lease, now, cursor, op_id))

    def complete(self, now: int, lease: Lease, cursor: Cursor, op_id: int) -> Outcome:
        """Move the cursor for the last time; the shard is done."""
        return self._under_lease(now, lease, lambda shard: leases.complete(shard, lease, now, cursor, op_id))

    def park_shard(self, now: int, lease: Lease, reason: ParkReason, op_id: int) -> Outcome:
        """Park a shard."""
        return self._under_lease(now, lease, lambda shard: leases.park(shard, lease, now, reason, op_id))

    def split_replace(self, now: int, lease: Lease, parts: Sequence[ShardSpec], op_id: int) -> Outcome:
        """Replace a shard by its parts."""
        chosen = tuple(parts)
        return self._under_lease(now, lease, lambda shard: splits.split_replace(shard, lease, now, chosen, op_id))

    def split_residual(self, now: int, lease: Lease, plan: ResidualPlan, op_id: int) -> Outcome:
        """Split off the rest of a shard."""
        return self._under_lease(now, lease, lambda shard: splits.split_residual(shard, lease, now, plan, op_id))

    # Orchestrators.

    def create_run(
        self, now: int, key: RunKey, op_id: int, semantics: CursorSemantics = CursorSemantics.COMPLETED
    ) -> Outcome:
        """Begin a run."""

        def once() -> Outcome | None:
            stored = self._load_run(key)
            decided = runs.create_run(stored.record if stored else None, now, key, semantics, op_id)
            written = decided.replayed or self._written(Plan(now, run=RunChange(None, decided.record)))
            return decided.outcome if written else None

        return self._retry("create run", once)

    def register_shards(self, now: int, key: RunKey, shards: Sequence[InitialShard], op_id: int) -> Outcome:
        """Register the shards of a run, in as many commits as the store needs; the last commit makes the run active."""
        chosen = tuple(shards)
        several = len(chosen) > self._store.records_per_commit_max or not self._store.registers_in_one_commit
        if several:
            begun = self._on_run(now, key, lambda run: runs.begin_registration(run, now, chosen, op_id), alone=True)
            self._write_shards(now, begun.shards)
        return self._on_run(now, key, lambda run: runs.register_shards(run, now, chosen, op_id), alone=several).outcome

    def complete_run(self, now: int, key: RunKey, op_id: int) -> Outcome:
        """Complete a run whose shards are all done or parked."""

        def decide(run: RunRecord) -> RunDecided:
            return runs.complete_run(run, now, op_id, self._store.progress(key).active)

        return self._on_run(now, key, decide).outcome

    def fail_run(self, now: int, key: RunKey, op_id: int) -> Outcome:
        """End a run as failed."""
        return self._on_run(now, key, lambda run: runs.fail_run(run, now, op_id)).outcome

    def cancel_run(self, now: int, key: RunKey, op_id: int) -> Outcome:
        """End a run as cancelled."""
        return self._on_run(now, key, lambda run: runs.cancel_run(run, now, op_id)).outcome

    def unpark_shard(self, now: int, key: ShardKey, op_id: int) -> Outcome:
        """Make a parked shard active again."""

        def once() -> Outcome | None:
            run = self._run(RunKey(key.tenant, key.run))
            stored = self._shard(key)
            decided = runs.unpark(run.record, stored.record, now, op_id)
            changes = tuple(ShardChange(stored, after) for after in decided.shards)
            written = decided.replayed or self._written(Plan(now, changes, RunChange(run, decided.record)))
            return decided.outcome if written else None

        return self._retry("unpark", once)

    # Reads, which need no lease.

    def progress(self, key: RunKey) -> Progress:
        """Return the number of shards of a run in each state."""
        self._run(key)
        return self._store.progress(key)

    def get_run(self, key: RunKey) -> RunRecord:
        """Return a run."""
        return self._run(key).record

    def get_shard(self, key: ShardKey) -> ShardRecord:
        """Return a shard."""
        return self._shard(key).record

    def list_runs(self, tenant: bytes, after: int | None = None, runs_max: int = 1_000) -> list[RunRecord]:
        """Return runs of a tenant by id, beginning after one."""
        check_number("a run's id", after or 0)
        return self._store.list_runs(tenant, after, runs_max)

    def list_shards(self, key: RunKey, after: int | None = None, shards_max: int = 1_000) -> list[ShardRecord]:
        """Return shards of a run by id, beginning after one."""
        check_number("a shard's id", after or 0)
        return self._store.list_shards(self._run(key).record.key, after, shards_max)

    # Implementation.

    def _acquire(self, now: int, run: Versioned[RunRecord], key: ShardKey, worker: int) -> Acquired | None:
        stored = self._shard(key)
        after = leases.acquire(stored.record, now, key.tenant, worker, self._ttl_ns)
        if self._written(Plan(now, (ShardChange(stored, after),), unchanged_run=run)):
            return leases.acquired(after)
        return None

    def _under_lease(self, now: int, lease: Lease, decide: Callable[[ShardRecord], Decided]) -> Outcome:
        def once() -> Outcome | None:
            stored = self._shard(lease.key)
            decided = decide(stored.record)
            spawned = (ShardChange(None, shard) for shard in decided.spawned)
            changes = (ShardChange(stored, decided.record), *spawned)
            self._check_size(lease.shard, len(changes))
            written = decided.replayed or self._written(Plan(now, changes), lease)
            return decided.outcome if written else None

        return self._retry("change a shard", once)

    def _on_run(
        self, now: int, key: RunKey, decide: Callable[[RunRecord], RunDecided], *, alone: bool = False
    ) -> RunDecided:
        """Change a run, `alone` or together with its new shards."""

        def once() -> RunDecided | None:
            stored = self._run(key)
            decided = decide(stored.record)
            changes = () if alone else tuple(ShardChange(None, shard) for shard in decided.shards)
            written = decided.replayed or self._written(Plan(now, changes, RunChange(stored, decided.record)))
            return decided if written else None

        return self._retry("change a run", once)

    def _write_shards(self, now: int, shards: tuple[ShardRecord, ...]) -> None:
        size = self._store.records_per_commit_max
        for first in range(0, len(shards), size):
            batch = shards[first : first + size]
            self._retry("register shards", partial(self._write_missing, now, batch))

    def _write_missing(self, now: int, batch: tuple[ShardRecord, ...]) -> Result | None:
        found = self._store.load_shards([shard.key for shard in batch])
        missing = [shard for shard, stored in zip(batch, found, strict=True) if not _registered(shard, stored)]
        changes = tuple(ShardChange(None, shard) for shard in missing)
        return Result.DONE if not changes or self._written(Plan(now, changes)) else None

    def _check_size(self, shard: int, changes: int) -> None:
        if changes > self._store.records_per_commit_max:
            raise SplitInvalid(shard, f"this store takes {self._store.records_per_commit_max - 1} parts at once")

    def _written(self, plan: Plan, lease: Lease | None = None) -> bool:
        result = self._store.commit(plan)
        if result is Result.OWNER_LOST and lease:
            raise LeaseExpired(lease.shard, lease.fence, None)
        return result is Result.DONE

    def _retry(self, what: str, once: Callable[[], T | None]) -> T:
        """Read, decide and write until nothing changed in between."""
        pause_s = PAUSE_FIRST_S
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load, guards nothing
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            if (result := once()) is not None:
                return result
        raise Contended(what, ATTEMPTS)

    def _shard(self, key: ShardKey) -> Versioned[ShardRecord]:
        check_number("a run's id", key.run)
        check_number("a shard's id", key.shard)
        (stored,) = self._store.load_shards([key])
        if stored is None:
            raise ShardNotFound(key.run, key.shard)
        return stored

    def _run(self, key: RunKey) -> Versioned[RunRecord]:
        stored = self._load_run(key)
        if stored is None:
            raise RunNotFound(key.run)
        return stored

    def _load_run(self, key: RunKey) -> Versioned[RunRecord] | None:
        check_number("a run's id", key.run)
        return self._store.load_run(key)

    def _active_run(self, key: RunKey) -> Versioned[RunRecord]:
        run = self._run(key)
        runs.check_run_active(run.record)
        return run

    def _cooldown(self, run: RunKey, worker: int) -> cooldown.Cooldown:
        with self._lock:
            return self._cooldowns.get((run, worker), cooldown.Cooldown())

    def _cool(self, run: RunKey, worker: int, paused: cooldown.Cooldown | None, now: int = 0) -> None:
        with self._lock:
            if paused is None:
                self._cooldowns.pop((run, worker), None)
                return
            if len(self._cooldowns) >= _COOLDOWNS_MAX:
                self._cooldowns = {who: kept for who, kept in self._cooldowns.items() if kept.until > now}
            self._cooldowns[run, worker] = paused


def _spread(keys: tuple[ShardKey, ...], worker: int) -> tuple[ShardKey, ...]:
    """Let each worker begin at another shard, neighbours far apart, so that workers that claim at once do not meet."""
    first = (to_unsigned(worker) * _GOLDEN >> 32) % 2**32 % len(keys)
    return keys[first:] + keys[:first]


def _registered(shard: ShardRecord, stored: Versioned[ShardRecord] | None) -> bool:
    if stored is not None and stored.record != shard:
        raise ShardExists(shard.shard)
    return stored is not None
