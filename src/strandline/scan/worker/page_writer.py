"""The pages of a shard: items are scanned one by one, and committed together.

A page is committed as findings, ledger, checkpoint. One write before it stores what does not depend on the commit: read
versions (`read_versions`), late versions (`versions`), and marks of findings that comments allowed.

Invariants: the cursor's token counts exactly the items up to its key, those that were known already included; a page
without items of its own moves no cursor: the next one does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial

import pyarrow as pa

from strandline.pipeline.commit import commit_page
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.held_shard import HeldShard
from strandline.pipeline.identity import VersionKind, object_version_id, ovid_hash
from strandline.pipeline.pages import Failed, Item, PageBuilder, Scanned, is_clean
from strandline.pipeline.scope import Boundary, BoundaryKind
from strandline.pipeline.state import Put
from strandline.pipeline.stores import Stores
from strandline.protocol.shards import Cursor
from strandline.scan.plan.read_versions import read_version_puts
from strandline.scan.plan.rule_deltas import allowed_put
from strandline.scan.plan.versions import Late, late_put, listed_as
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.scan.run.manifest import Manifest
from strandline.scan.run.totals import Totals, format_totals, parse_totals
from strandline.scan.sources import VOUCHED
from strandline.scan.worker.fetcher import Entry
from strandline.scan.worker.item_scanner import ItemOutcome, ItemScanner


class PageWriter:
    """The pages of one lease of a shard."""

    def __init__(
        self,
        stores: Stores,
        request: ScanRequest,
        shard: HeldShard,
        manifest: Manifest,
        item_scanner: ItemScanner,
        beat: Callable[[], None],
    ) -> None:
        self._stores = stores
        self._request = request
        self._shard = shard
        self._manifest = manifest
        self._item_scanner = item_scanner
        self._beat = beat
        self._context = shard.context(request.policy_hash)
        self._builder = PageBuilder(self._context)
        self._puts: list[Put] = []
        self._vouched: list[tuple[int, bytes, bytes, bytes, bytes]] = []
        self._before = parse_totals(shard.cursor.token)
        self._page = _Tally()
        self._begun_s = time.monotonic()
        self.done = Totals()
        """Committed counts."""

    def prescan(self, entries: Sequence[Entry]) -> None:
        """Test items together before they are added, which finds most of those without a secret."""
        begun_ns = time.perf_counter_ns()
        self._item_scanner.prescan(entries)
        self._item_scanner.prescan_carried(entries)
        self._page.work_ns += time.perf_counter_ns() - begun_ns

    def add(self, entry: Entry) -> None:
        """Scan an item, and add it to the page."""
        if entry.is_known:
            self._remember_version(entry)
            self._page.items += 1
            self._page.known += 1
            return
        begun_ns = time.perf_counter_ns()
        if entry.is_clear and entry.content is not None:
            size = entry.content.size
            self._builder.add_clean(entry.ovid, size)
            self._page.items += 1
            self._page.bytes += size
        else:
            self._add_scanned(entry)
        self._remember_version(entry)
        self._page.work_ns += time.perf_counter_ns() - begun_ns
        entry.content = None

    def _add_scanned(self, entry: Entry) -> None:
        known = entry.problem
        scanned = self._item_scanner.scan(entry, self._beat)
        if entry.problem is not known and entry.problem is not None:
            entry.version, entry.kind = entry.problem.version, entry.problem.kind
            item = Item(entry.item, object_version_id(entry.version), entry.kind)
            entry.ovid = ovid_hash(*item)
            self._builder.add(item, scanned.outcome, entry.ovid)
        elif is_clean(scanned.outcome) and entry.kind is VersionKind.STRONG:
            self._builder.add_clean(entry.ovid, scanned.outcome.bytes_seen)
        else:
            item = Item(entry.item, object_version_id(entry.version), entry.kind)
            self._builder.add(item, scanned.outcome, entry.ovid)
        if scanned.allowed or (scanned.is_carried and entry.was_allowed):
            self._puts.append(allowed_put(self._request.policy_hash, entry.ovid))
        self._page.count(scanned)

    def is_due(self, items_max: int, seconds_max: float) -> bool:
        """Return whether the page has reached its size or age."""
        return len(self._builder) >= items_max or time.monotonic() - self._begun_s > seconds_max

    def flush(self, row: int) -> None:
        """Commit the page, which ends before a row."""
        begun_ns = time.perf_counter_ns()
        self._begun_s = time.monotonic()
        self._apply(row)
        if not len(self._builder):
            return
        done = self.done.plus(self._page.totals())
        after = self._before.plus(done)._replace(moved_at=self._context.fence)
        cursor = Cursor(self._manifest.key(row - 1), format_totals(after))
        page = self._builder.page(Boundary(BoundaryKind.ORDERED_CONTENT, cursor))
        retried(lambda: commit_page(page, self._stores.findings, self._stores.ledger, self._shard))
        # A token cannot count the time of its own commit: the next one does.
        self.done = done._replace(commit_ns=done.commit_ns + time.perf_counter_ns() - begun_ns)
        self._page = _Tally()

    def _apply(self, row: int) -> None:
        """Store the values that do not depend on the commit."""
        state, tenant = self._stores.state, self._request.tenant
        if self._vouched or self._puts:
            columns = list(zip(*self._vouched, strict=True)) or [()] * len(VOUCHED)
            arrays = [pa.array(cells, kind) for cells, kind in zip(columns, VOUCHED.types, strict=True)]
            files = pa.table(arrays, schema=VOUCHED)
            self._puts += read_version_puts(self._request.inputs_digest, self._context, row, files)
            self._vouched = []
        for begin in range(0, len(self._puts), BATCH_ROWS_MAX):
            puts = self._puts[begin : begin + BATCH_ROWS_MAX]
            retried(partial(state.apply_batch, tenant, puts, writer=self._context))
        self._puts = []

    def _remember_version(self, entry: Entry) -> None:
        """Store the late version of an item.

        Stat data that differ from the listing serve the next scan, and not this one.
        """
        row = entry.row
        if row.problem is not None or entry.version == row.version:
            return
        if entry.problem is None and entry.stat is not None:
            self._vouched.append((row.source, row.locator, entry.stat, entry.version, entry.ovid))
        if entry.problem is not None or entry.stat is None or entry.stat != row.stat:
            self._puts.append(late_put(entry.item, Late(entry.kind, listed_as(row.stat, row.version), entry.version)))


@dataclass(slots=True)
class _Tally:
    """The counts of a page, as it grows; see `Totals`."""

    items: int = 0
    bytes: int = 0
    findings: int = 0
    allowed: int = 0
    failed: int = 0
    skipped: int = 0
    known: int = 0
    carried: int = 0
    work_ns: int = 0
    commit_ns: int = 0

    def count(self, scanned: ItemOutcome) -> None:
        """Count an item."""
        self.items += 1
        self.allowed += scanned.allowed
        self.carried += scanned.is_carried
        match scanned.outcome:
            case Scanned(bytes_seen, found):
                self.bytes += bytes_seen
                self.findings += len(found)
            case Failed():
                self.failed += 1
            case _:
                self.skipped += 1

    def totals(self) -> Totals:
        """Return the counts as they stand."""
        return Totals(0, *astuple(self))
