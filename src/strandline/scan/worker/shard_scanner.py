"""One shard under a worker's lease: its pages are scanned and committed until it is done, lost or parked.

A shard whose cursor did not move under several fences kills its workers. Then its pages have one item; then the item at
the cursor is split off, so that other workers scan the rest; then that item is parked.

Invariants: no request follows the loss of the lease; the lease is renewed while items are read and scanned, and a page
ends before a third of it is over. A killed worker costs at most one page of repeated work.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, wait

from strandline.pipeline.held_shard import HeldShard
from strandline.pipeline.stores import Stores
from strandline.protocol.keyspace import cut_spec, parse_manifest_row
from strandline.protocol.shards import ParkReason
from strandline.protocol.splits import ResidualPlan
from strandline.scan.plan.read_versions import PAGE_ROWS_MAX
from strandline.scan.retries import retried
from strandline.scan.run.manifest import Manifest, Row, read_rows, rows_of
from strandline.scan.run.shard_cuts import split_row
from strandline.scan.run.totals import Totals, parse_totals
from strandline.scan.worker.fetcher import FETCH_ITEMS_MAX, Fetched, Fetcher
from strandline.scan.worker.item_scanner import ItemScanner
from strandline.scan.worker.page_writer import PageWriter
from strandline.scan.workers import WorkerTask

ONE_BY_ONE_AFTER, SPLIT_AFTER, PARKED_AFTER = 3, 5, 8
"""Numbers of fences without a move of the cursor."""
SPLIT_LOOK_S, SPLIT_LOOK_SHARE = 0.5, 20
"""A worker looks for idle ones after this time, or after so many times what the last look took."""
PAGE_ITEMS_MAX = PAGE_ROWS_MAX
PAGE_S = 1.0
"""A page ends after this many items or seconds: a commit of any size waits for the disk three times."""


class ShardScanner:
    """Scans one shard."""

    def __init__(
        self,
        stores: Stores,
        task: WorkerTask,
        manifest: Manifest,
        shard: HeldShard,
        fetcher: Fetcher,
        item_scanner: ItemScanner,
        ahead: Executor,
    ) -> None:
        self._stores = stores
        self._task = task
        self._manifest = manifest
        self._shard = shard
        self._fetcher = fetcher
        self._ahead = ahead
        self._page = PageWriter(stores, task.request, shard, manifest, item_scanner, self.beat)
        self._ttl_s = task.request.lease_ttl_s
        self._renewed_s = time.monotonic()
        self._look_s = time.monotonic() + SPLIT_LOOK_S
        self._upcoming: Future[Fetched] | None = None
        self._next = parse_manifest_row(shard.cursor.key).row + 1 if shard.cursor.key else rows_of(shard.spec).start
        self._chunk: tuple[int, Sequence[Row]] = (0, ())

    @property
    def done(self) -> Totals:
        """Return the counts that this worker committed."""
        return self._page.done

    @property
    def end(self) -> int:
        """Return the row after the shard's last."""
        return rows_of(self._shard.spec).end

    def finish(self) -> None:
        """Scan and commit the shard to its end, or park it."""
        lease = self._shard.lease
        moved_at = max(parse_totals(self._shard.cursor.token).moved_at, self._task.forgiven.get(lease.shard, 0))
        stuck = lease.fence - moved_at - 1
        if stuck >= PARKED_AFTER:
            self._shard.park(ParkReason.POISONED)
            return
        if stuck >= SPLIT_AFTER and self.end - self._next > 1:
            self._split(self._next + 1)
        self._scan(1 if stuck >= ONE_BY_ONE_AFTER else PAGE_ITEMS_MAX)
        retried(self._shard.complete)

    def settle(self) -> None:
        """Wait for the read-ahead, so that the fetcher is free."""
        if self._upcoming is not None:
            wait([self._upcoming])

    def beat(self) -> None:
        """Renew the lease when a third of it is over."""
        if time.monotonic() - self._renewed_s > self._ttl_s / 3:
            retried(self._shard.renew)
            self._renewed_s = time.monotonic()

    def _scan(self, items_max: int) -> None:
        self._fetch(self._next, items_max)
        while self._next < self.end:
            fetched = self._fetched()
            after = self._next + len(fetched.entries)
            if not fetched.is_open:
                self._fetch(after, items_max)
            self._page.prescan(fetched.entries)
            for entry in fetched.entries[: self.end - self._next]:
                self.beat()
                self._page.add(entry)
                self._next += 1
                if self._page.is_due(items_max, min(PAGE_S, self._ttl_s / 3)):
                    self._page.flush(self._next)
            if fetched.is_open:
                self._fetch(after, items_max)
            self._share()
        self._page.flush(self._next)

    def _fetch(self, row: int, items_max: int) -> None:
        """Begin to read the page at a row, if there is one."""
        end = min(self.end, row + min(items_max, FETCH_ITEMS_MAX))
        self._upcoming = self._ahead.submit(self._read, row, end) if row < end else None

    def _fetched(self) -> Fetched:
        """Return the page that was read ahead, and renew the lease while waiting for it."""
        upcoming = self._upcoming
        if upcoming is None:
            raise AssertionError("a page is fetched before it is used")
        while not wait([upcoming], self._ttl_s / 6).done:
            self.beat()
        return upcoming.result()

    def _read(self, row: int, end: int) -> Fetched:
        return self._fetcher.fetch(self._rows(row, end))

    def _rows(self, row: int, end: int) -> Sequence[Row]:
        """Return rows of the manifest from one on: to the end, or as far as a chunk goes."""
        first, rows = self._chunk
        if not first <= row < first + len(rows):
            at = self._manifest.chunk_of(row)
            first = self._manifest.starts[at]
            after = self._manifest.starts[at + 1] if at + 1 < len(self._manifest.starts) else self._manifest.rows
            state, tenant = self._stores.state, self._task.request.tenant
            chunk = retried(lambda: list(read_rows(state, tenant, self._manifest, first, after)))
            rows = [row for _, table in chunk for row in map(Row, *table.to_pydict().values())]
            self._chunk = first, rows
        return rows[row - first : end - first]

    def _share(self) -> None:
        """Split off half of the rest if workers are idle."""
        if time.monotonic() < self._look_s or self._task.slots < 2:  # noqa: PLR2004 - no other worker
            return
        began = time.monotonic()
        cut = split_row(self._manifest, self._next, self.end, *self._chunk)
        if cut is not None and retried(self._are_others_idle):
            self._split(cut)
        took = time.monotonic() - began
        self._look_s = began + took + max(SPLIT_LOOK_S, SPLIT_LOOK_SHARE * took)

    def _are_others_idle(self) -> bool:
        coordinator, run = self._stores.coordinator, self._task.run
        return not coordinator.has_free(time.time_ns(), run) and coordinator.progress(run).active < self._task.slots

    def _split(self, row: int) -> None:
        kept, rest = cut_spec(self._shard.spec, [self._manifest.key(row)])
        retried(lambda: self._shard.split_residual(ResidualPlan(kept, rest)))
