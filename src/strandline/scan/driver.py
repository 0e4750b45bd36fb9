"""The driver of a scan: resume, plan, run, settle.

Invariants: workers start only if items are left to scan; after any end of this process the same request resumes; two
drivers of one request work on one run.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from strandline.pipeline.identity import stable_item_id
from strandline.pipeline.stores import Stores
from strandline.protocol.keyspace import parse_manifest_row
from strandline.protocol.shards import ShardRecord, ShardStatus
from strandline.scan import workers as workers_module
from strandline.scan.errors import AGAIN, WorkersFailed
from strandline.scan.events import Event, Listed, Planned, Resumed, Tell, silent
from strandline.scan.gc_tuning import rare_collections
from strandline.scan.inventory import find_inventory
from strandline.scan.local_workers import LocalWorkers
from strandline.scan.parted.part_tasks import NewRows, PartedPlan
from strandline.scan.parted.parted_scan import CutSource, cut_sources, discard_plan, plan_parts, settle_parts
from strandline.scan.plan.planner import Plan, counted, plan
from strandline.scan.plan.versions import listed_key
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.scan.run.manifest import read_rows, rows_of
from strandline.scan.run.progress import Progress, progress_of, summed
from strandline.scan.run.scan_run import (
    ScanRun,
    all_shards,
    begin_run,
    begin_written_run,
    end_run,
    find_run,
    parked_runs,
    parked_shards,
    unpark,
)
from strandline.scan.run.totals import Totals
from strandline.scan.settle.outcome import Outcome, settle
from strandline.scan.source_visibility import check_listed, check_unread
from strandline.scan.unfinished import forget_unfinished, mark_unfinished
from strandline.scan.workers import PartWorkers, Workers, WorkerTask, is_large

REPLANS_MAX = 8
READY_AFTER_ITEMS = 10_000
LOOK_SHARE = 10
"""Between two looks at a run so many times the duration of one go by."""


def scan(request: ScanRequest, workers: Workers | None = None, tell: Tell = silent) -> Outcome:
    """Run a scan; without `workers`, in this process."""
    with rare_collections(), request.open_stores() as stores:
        return scan_with(stores, request, workers or LocalWorkers(), tell)


def scan_with(stores: Stores, request: ScanRequest, workers: Workers, tell: Tell) -> Outcome:
    """Run a scan over open stores."""
    workers.check(request)
    driver = _Driver(stores, request, workers, tell)
    mark_unfinished(stores, request, driver.started_ns)
    driver.resume()
    for _ in range(REPLANS_MAX):
        left = driver.plan()
        if not left.todo_items or driver.run(left):
            break
    return driver.settle(left)


def explain(request: ScanRequest, tell: Tell = silent) -> Plan:
    """Return the plan of a scan without running it: its counts, whose memory does not grow with the items."""
    with rare_collections(), request.open_stores() as stores:
        return counted(stores, request, lambda items: tell(Listed(items)), parked_items(stores, request))


def explain_parts(request: ScanRequest) -> list[CutSource]:
    """Return how tasks would list the sources of a large scan."""
    with request.open_stores() as stores:
        return cut_sources(stores, request)


def parked_items(stores: Stores, request: ScanRequest) -> frozenset[bytes]:
    """Return the keys (`listed_key`) of the items of parked shards."""
    items = set[bytes]()
    for run in parked_runs(stores, request):
        for shard in parked_shards(stores, run):
            items |= _items_left(stores, request, run, shard)
    return frozenset(items)


class _Driver:
    def __init__(self, stores: Stores, request: ScanRequest, workers: Workers, tell: Tell) -> None:
        self._stores = stores
        self._request = request
        self._workers = workers
        self._tell = tell
        self._last: ScanRun | None = None
        self._progress: Progress | None = None
        self.started_ns = time.time_ns()
        self._look_s = 0.0
        self._is_ready = False
        self._worked = Totals()
        self._parted: PartedPlan | None = None
        self._fences: dict[int, dict[int, int]] = {}
        """Runs of this scan, with the first fences of their shards: rows under later fences are new."""

    def resume(self) -> None:
        """Finish interrupted runs; with `retry_parked` also parked shards."""
        while (found := find_run(self._stores, self._request)) is not None:
            self._tell(Resumed(found.key.run))
            self._drive(found)
        if self._request.retry_parked:
            for run in parked_runs(self._stores, self._request):
                self._tell(Resumed(run.key.run))
                self._drive(run, unpark(self._stores, run))

    def plan(self) -> Plan:
        """List the sources, and find the items that are left; many by tasks, if the workers do that."""
        stores, request, tell = self._stores, self._request, self._listening()
        parked, is_new = parked_items(stores, request), NewRows(self._fences)
        can_part = isinstance(self._workers, PartWorkers)
        left: Plan | None = None
        if not (can_part and self._is_large()):
            most = workers_module.LARGE_ITEMS - 1 if can_part else None
            left = plan(stores, request, lambda items: tell(Listed(items)), parked, is_new, items_max=most)
        if left is None:
            left = self._plan_parts(tell, parked, is_new)
        self._tell(Planned(left))
        return left

    def _is_large(self) -> bool:
        known = find_inventory(self._stores.state, self._request.tenant, self._request.inputs_digest)
        return self._parted is not None or (known is not None and is_large(known.rows))

    def _plan_parts(self, tell: Tell, parked: frozenset[bytes], is_new: NewRows) -> PartedPlan:
        stores, request = self._stores, self._request
        if self._parted is not None:
            discard_plan(stores, request, self._parted)
        self._parted = plan_parts(
            stores, request, self._part_workers, parked, is_new, lambda items: tell(Listed(items))
        )
        if not self._workers.are_here:
            check_listed(request, ((one.task.source, one.task.part, one.items) for one in self._parted.parts))
        return self._parted

    @property
    def _part_workers(self) -> PartWorkers:
        if not isinstance(self._workers, PartWorkers):
            raise TypeError("these workers take no parts")
        return self._workers

    def _listening(self) -> Tell:
        """Return the receiver of listing events: a long first listing of some sources already prepares the workers."""
        request = self._request
        if self._is_ready or find_inventory(self._stores.state, request.tenant, request.inputs_digest) is not None:
            return self._tell

        def told(event: Event) -> None:
            if not self._is_ready and isinstance(event, Listed) and event.items >= READY_AFTER_ITEMS:
                self._is_ready = True
                self._workers.make_ready(request)
            self._tell(event)

        return told

    def run(self, left: Plan) -> bool:
        """Scan the items that are left; return whether this plan began the run, not another driver's."""
        if isinstance(left, PartedPlan):
            run, is_ours = begin_written_run(self._stores, self._request, left.manifest)
        else:
            run, is_ours = begin_run(self._stores, self._request, left)
        if is_ours:
            self._fences[run.key.run] = {}
        self._drive(run)
        return is_ours

    def settle(self, left: Plan) -> Outcome:
        """Return the outcome of the scan."""
        stores, request = self._stores, self._request
        aside = retried(lambda: sum(len(parked_shards(stores, run)) for run in parked_runs(stores, request)))
        run_id = self._last.key.run if self._last else None
        outcome = retried(lambda: self._settled(left, run_id))
        if not self._workers.are_here:
            for number, unread in outcome.unread.items():
                check_unread(request, number, unread)
        retried(lambda: forget_unfinished(stores, request))
        return replace(outcome, parked_shards=aside, progress=self._progress, worked=self._worked)

    def _settled(self, left: Plan, run_id: int | None) -> Outcome:
        stores, request, is_new, began = self._stores, self._request, NewRows(self._fences), self.started_ns
        if isinstance(left, PartedPlan):
            tasks = self._part_workers
            return settle_parts(stores, request, left, tasks, run_id=run_id, started_ns=began, is_new=is_new)
        return settle(stores, request, left, run_id=run_id, started_ns=began, is_new=is_new)

    def _drive(self, run: ScanRun, forgiven: Mapping[int, int] | None = None) -> None:
        """Let workers work on a run until no shard is active, and end it."""
        self._last = run
        retried(lambda: mark_unfinished(self._stores, self._request, self.started_ns, run))
        shards = retried(lambda: all_shards(self._stores.coordinator, run.key))
        self._fences.setdefault(run.key.run, {shard.shard: shard.fence for shard in shards})
        begun = summed(run.manifest, shards)
        self._tell(begun)  # what is counted from here on was done by this process
        active = [shard.shard for shard in shards if shard.status == ShardStatus.ACTIVE]
        if active:
            task = partial(self._task, run, forgiven or {})
            self._workers.run(task, active, lambda: self._look_at_leisure(run))
        self._look(run)
        if self._progress is not None:
            self._worked = self._worked.plus(self._progress.done.minus(begun.done))
        if not retried(lambda: end_run(self._stores, self._request, run)):
            raise WorkersFailed("WorkersFailed", "the workers ended, and shards are left", AGAIN)

    def _task(self, run: ScanRun, forgiven: Mapping[int, int], slots: int) -> WorkerTask:
        manifest = run.manifest
        weight = sum(manifest.weights)
        return WorkerTask(self._request, run.key, manifest.number, slots, forgiven, manifest.rows, weight)

    def _look_at_leisure(self, run: ScanRun) -> None:
        """Look, but a look that takes long only now and then: it reads every shard that has changed."""
        began = time.monotonic()
        if began >= self._look_s:
            self._look(run)
            self._look_s = time.monotonic() + LOOK_SHARE * (time.monotonic() - began)

    def _look(self, run: ScanRun) -> None:
        self._progress = retried(lambda: progress_of(self._stores.coordinator, run))
        self._tell(self._progress)


def _items_left(stores: Stores, request: ScanRequest, run: ScanRun, shard: ShardRecord) -> set[bytes]:
    """Return the keys of the items of a shard after its cursor."""
    hint = rows_of(shard.spec)
    start = parse_manifest_row(shard.cursor.key).row + 1 if shard.cursor.key else hint.start
    items = set[bytes]()
    for _, table in read_rows(stores.state, request.tenant, run.manifest, start, hint.end):
        columns = (table[name].to_pylist() for name in ("source", "locator", "version", "stat"))
        for number, locator, version, stat in zip(*columns, strict=True):
            source = request.sources[number]
            items.add(listed_key(stable_item_id(source.tag, source.instance, locator), version, stat))
    return items
