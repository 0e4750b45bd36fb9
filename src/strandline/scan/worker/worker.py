"""A worker: takes shards of a run, one after another, until none is active.

Invariants: a worker takes its own shard first, then any free one, and waits while other workers hold the rest, so that
the survivors finish a run; a worker that loses its lease drops the shard at once; retryable errors of a store are
retried for a minute, others end the worker.
"""

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from strandline.clock import Clock, SystemClock
from strandline.pipeline.coordination import NoneAvailable, Throttled
from strandline.pipeline.errors import ShardReleased
from strandline.pipeline.held_shard import HeldShard, claim
from strandline.pipeline.stores import Stores
from strandline.protocol.errors import AlreadyLeased, LeaseLost, RunTerminal, ShardNotFound, ShardTerminal
from strandline.protocol.shards import ShardKey
from strandline.scan.errors import ManifestBroken
from strandline.scan.gc_tuning import rare_collections
from strandline.scan.plan.rule_deltas import Base, base_of
from strandline.scan.retries import retried
from strandline.scan.run.manifest import Manifest, read_manifest
from strandline.scan.run.totals import Totals
from strandline.scan.worker.fetcher import Fetcher
from strandline.scan.worker.item_scanner import ItemScanner
from strandline.scan.worker.shard_scanner import ShardScanner
from strandline.scan.workers import WorkerTask

PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.5
IDLE_SHARE, IDLE_MAX_S = 10, 5.0
"""An idle worker waits at least so many times what it took to see that nothing is free, up to a bound."""


def work(task: WorkerTask, prefer: int | None = None) -> Totals:
    """Work on a run until no shard of it is active; return the totals of this worker."""
    with rare_collections(), retried(task.request.open_stores) as stores:
        return Worker(stores, task).run(prefer)


class Worker:
    """One worker of a run."""

    def __init__(self, stores: Stores, task: WorkerTask, clock: Clock | None = None) -> None:
        self._stores = stores
        self._task = task
        self._clock = clock or SystemClock()
        self._number = secrets.randbits(63)
        self._totals = Totals()

    def run(self, prefer: int | None = None) -> Totals:
        """Take shards until none is active, `prefer` first."""
        manifest = retried(lambda: read_manifest(self._stores.state, self._task.request.tenant, self._task.manifest))
        if manifest is None:
            if self._is_over():
                return self._totals
            raise ManifestBroken("it is gone, and its run is not over")
        bases = self._bases(manifest)
        fetcher = Fetcher(self._stores, self._task.request, self._task.run.run, bases)
        item_scanner = ItemScanner(self._task.request, bases, fetcher)
        with ThreadPoolExecutor(1, "strandline-read-ahead") as ahead:
            try:
                shard = self._own(prefer)
                while shard is not None or (shard := self._claimed()) is not None:
                    self._finish(ShardScanner(self._stores, self._task, manifest, shard, fetcher, item_scanner, ahead))
                    shard = None
            finally:
                fetcher.close()
        return self._totals

    def _finish(self, task: ShardScanner) -> None:
        try:
            task.finish()
        except (LeaseLost, ShardTerminal, ShardReleased):
            pass  # the next holder continues after the last checkpoint
        except ManifestBroken:
            if not self._is_over():  # a run that is over needs no rows
                raise
        finally:
            task.settle()
            self._totals = self._totals.plus(task.done)

    def _own(self, prefer: int | None) -> HeldShard | None:
        """Take the shard that this worker was started for, if it is free."""
        if prefer is None:
            return None
        key = ShardKey(*self._task.run, prefer)
        try:
            return retried(lambda: self._acquired(key))
        except (AlreadyLeased, ShardTerminal, ShardNotFound, RunTerminal):
            return None

    def _acquired(self, key: ShardKey) -> HeldShard:
        watched, now = time.monotonic_ns(), self._clock.now_ns()  # in this order, as `claim` does
        acquired = self._stores.coordinator.acquire_and_restore(now, key, self._number)
        ends_ns = watched + acquired.lease.deadline - now
        return HeldShard(self._stores.coordinator, acquired, self._clock, time.monotonic_ns, ends_ns)

    def _claimed(self) -> HeldShard | None:
        """Take any free shard; wait while other workers hold all; None if no shard is active."""
        pause_s = PAUSE_MIN_S
        while True:
            began_s = time.monotonic()
            try:
                found = retried(lambda: claim(self._stores.coordinator, self._task.run, self._number, self._clock))
            except RunTerminal:
                return None
            if isinstance(found, HeldShard):
                return found
            if isinstance(found, NoneAvailable) and found.earliest_deadline is None:
                return None
            wait_s = min(pause_s, found.retry_after_ns / 1e9) if isinstance(found, Throttled) else pause_s
            time.sleep(max(wait_s, min(IDLE_SHARE * (time.monotonic() - began_s), IDLE_MAX_S)))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _is_over(self) -> bool:
        return retried(lambda: self._stores.coordinator.get_run(self._task.run)).over

    def _bases(self, manifest: Manifest) -> list[Base | None]:
        """Return the older policies of the manifest; None for one whose results cannot be carried over."""
        request = self._task.request
        new = request.policy.record
        policies = self._stores.policies
        older = [retried(partial(policies.get_policy, request.tenant, base)) for base in manifest.bases]
        return [None if old is None else base_of(old, new) for old in older]
