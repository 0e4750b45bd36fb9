"""Invariants of every write in a simulation of coordination, and the error of a broken one.

    S1  mutual exclusion             one lease at a time; only its holder writes, before its deadline
    S2  fence monotonicity           a fence never goes back, and grows by one when a shard changes hands
    S3  terminal irreversibility     a shard that is done or split never changes
    S4  record invariant             every record keeps its own invariants
    S5  cursor monotonicity          a cursor never goes back
    S6  cursor bounds                a cursor is inside of its shard
    S7  split coverage               the shards of a run, without those that are split, are exactly all keys
    S8  run terminal irreversibility a run that is over never changes
    S9  cooldown violation           a worker that was told to wait gets no shard before

The oracle sees each write as the store commits it, and keeps its own copy of every record. It calls no decision.
"""

from itertools import pairwise
from typing import NamedTuple

from strandline.errors import Damaged
from strandline.pipeline.coordination import RecordStore
from strandline.pipeline.coordination.record_store import Plan, ShardChange
from strandline.protocol.runs import RunRecord, check_run_invariants
from strandline.protocol.shards import Lease, RunKey, ShardKey, ShardRecord, ShardSpec, ShardStatus, check_invariants

FINAL = {ShardStatus.DONE, ShardStatus.SPLIT}
TAKING = {"acquire_and_restore", "claim_next_available"}
"""The operations that give a worker a shard."""


class InvariantBroken(AssertionError):
    """An invariant does not hold; the message names it."""


class Asker(NamedTuple):
    """A request: the worker, the operation, and a lease if it needs one."""

    what: str
    now: int
    worker: int = 0
    lease: Lease | None = None

    def __str__(self) -> str:
        under = f" under fence {self.lease.fence} of shard {self.lease.shard}" if self.lease else ""
        return f"{self.what} by {self.worker}{under} at {self.now}"


class Oracle:
    """Checks every write."""

    def __init__(self) -> None:
        self.shards: dict[ShardKey, ShardRecord] = {}
        self.runs: dict[RunKey, RunRecord] = {}
        self._until: dict[tuple[RunKey, int], int] = {}

    def saw_write(self, asker: Asker, plan: Plan) -> None:
        """Check a committed plan and the records after it."""
        for change in plan.shards:
            before = self.shards.get(change.after.key)
            if before is not None:
                self._check_shard(asker, before, change.after)
            self._check_bounds(change.after)
        self._check_split(plan.shards)
        for change in plan.shards:
            self._check_record(change.after)
            self.shards[change.after.key] = change.after
        if plan.run:
            self._check_run(plan.run.after)
            self.runs[plan.run.after.key] = plan.run.after

    def saw_claim(self, run: RunKey, worker: int, now: int) -> None:
        """Check that a worker who was given a shard had not been told to wait."""
        _hold(now >= self._until.get((run, worker), 0), "S9", f"worker {worker} claimed before its pause was over")

    def saw_pause(self, run: RunKey, worker: int, until: int) -> None:
        """Remember that a worker was told to wait."""
        self._until[run, worker] = until

    def check_store(self, store: RecordStore, run: RunKey) -> None:
        """Check that a run's records are those that were written, and its shards all keys."""
        known = {key: shard for key, shard in self.shards.items() if key[:2] == run}
        stored = {shard.key: shard for shard in store.list_shards(run, None, len(known) + 1)}
        _hold(stored == known, "S4", "the store holds other records than were written")
        live = sorted((shard.spec for shard in stored.values() if shard.status != ShardStatus.SPLIT), key=_start)
        _hold(_covers(live, b"", b""), "S7", f"the {len(live)} shards of a run are not all keys")

    def _check_shard(self, asker: Asker, before: ShardRecord, after: ShardRecord) -> None:
        if asker.lease is not None:
            held = (before.fence, before.owner, before.key) == (asker.lease.fence, asker.worker, asker.lease.key)
            _hold(held and before.leased(asker.now), "S1", "a write without the latest lease")
        elif asker.what in TAKING:
            _hold(not before.leased(asker.now), "S1", "two leases at once")
        changes_hands = asker.lease is None
        _hold(after.fence == before.fence + changes_hands, "S2", f"fence {before.fence} became {after.fence}")
        _hold(before.status not in FINAL, "S3", f"a shard that is {before.status.name.lower()} changed")
        _hold(after.cursor.key >= before.cursor.key, "S5", "the cursor went back")

    def _check_bounds(self, after: ShardRecord) -> None:
        key, spec = after.cursor.key, after.spec
        inside = spec.start <= key and (not spec.end or key < spec.end)
        _hold(not key or inside, "S6", "the cursor is outside of its shard")

    def _check_split(self, changes: tuple[ShardChange, ...]) -> None:
        """Check that a shard and its new shards cover the range of the shard before."""
        parent = self.shards.get(changes[0].after.key) if changes else None
        if parent is None:
            return
        specs = [change.after.spec for change in changes if change.after.status != ShardStatus.SPLIT]
        covered = _covers(sorted(specs, key=_start), parent.spec.start, parent.spec.end)
        _hold(covered, "S7", f"{len(specs)} parts are not the shard they come from")

    def _check_record(self, after: ShardRecord) -> None:
        try:
            check_invariants(after)
        except Damaged as error:
            raise InvariantBroken(f"S4: {error}") from error

    def _check_run(self, after: RunRecord) -> None:
        before = self.runs.get(after.key)
        _hold(before is None or not before.over, "S8", "a run that is over changed")
        try:
            check_run_invariants(after)
        except Damaged as error:
            raise InvariantBroken(f"S4: {error}") from error


def _hold(holds: bool, name: str, problem: str) -> None:  # noqa: FBT001 - what is to hold comes first
    if not holds:
        raise InvariantBroken(f"{name}: {problem}")


def _start(spec: ShardSpec) -> bytes:
    return spec.start


def _covers(specs: list[ShardSpec], start: bytes, end: bytes) -> bool:
    """Return whether ranges, sorted, are exactly one range; an empty end is no bound."""
    if not specs or (specs[0].start, specs[-1].end) != (start, end):
        return False
    return all(left.end and left.end == right.start for left, right in pairwise(specs))
