"""What `PageCommitModel` commits, and where: items, pages, and the stores of production on contents that are values.

The stores are `MemoryFindings` and `MemoryLedger`, and the shard is decided on by `strandline.protocol`, through a
`HeldShard`. Each call takes contents and returns contents, None if it was refused; what was answered once is kept.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from strandline.clock import ManualClock
from strandline.errors import Conflict, InvalidInput
from strandline.pipeline.commit import AwaitingFindings, FindingsDurable, ItemsDurable
from strandline.pipeline.findings import FindingRecord, FindingsBatch
from strandline.pipeline.held_shard import HeldShard
from strandline.pipeline.identity import (
    FindingId,
    OvidHash,
    PolicyHash,
    RuleFingerprint,
    SecretHash,
    StableItemId,
    TenantId,
)
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.memory import MemoryFindings, MemoryLedger, MemoryTables
from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary, BoundaryKind, CommitScope, Units, WriteContext
from strandline.protocol import leases
from strandline.protocol.leases import Acquired
from strandline.protocol.operations import op_id
from strandline.protocol.shards import Cursor, Lease, OpKind, Outcome, ShardRecord, ShardSpec

TENANT, POLICY = TenantId(b"t" * 32), PolicyHash(b"p" * 32)
RUN, SHARD = 1, 2
LEASE_TICKS = 1
FAR = 10**9
ResultT = TypeVar("ResultT")


class Item(NamedTuple):
    """Something to scan: its object version, and how many findings it has; a flaky one fails under the first fence."""

    ovid: int
    findings: int = 0
    flaky: bool = False


class PageOf(NamedTuple):
    """A page: who writes it, and its items, the last included; items count from 1."""

    fence: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"page {self.first}-{self.last} under {self.fence}"


class Contents(NamedTuple):
    """What is durable: which items have their findings, a row for each object version, and the shard."""

    findings: frozenset[int]
    ledger: tuple[LedgerRecord | None, ...]
    shard: ShardRecord

    @property
    def cursor(self) -> int:
        """Return the last item that the cursor is behind; 0 for none."""
        return self.shard.cursor.key[0] if self.shard.cursor.key else 0


class PageStores:
    """The stores. `fenced`: they know the shard's fence, and refuse older ones."""

    def __init__(self, items: tuple[Item, ...], *, fenced: bool) -> None:
        self.items = items
        self._fenced = fenced
        self._answers: dict[Hashable, Any] = {}
        self._scopes: dict[PageOf, CommitScope] = {}

    def start(self) -> Contents:
        """Return stores that are empty, and a shard that nobody has."""
        ovids = max(item.ovid for item in self.items) + 1
        spec = ShardSpec(end=bytes([len(self.items) + 1]))
        return Contents(frozenset(), (None,) * ovids, ShardRecord(TENANT, RUN, SHARD, spec))

    def scope(self, page: PageOf) -> CommitScope:
        """Return which page it is, as production says it."""
        if page not in self._scopes:
            context = WriteContext(TENANT, POLICY, RUN, SHARD, page.fence)
            units = Units.of(row.ovid for row in self.rows(page))
            self._scopes[page] = CommitScope(context, units, Boundary(BoundaryKind.ORDERED_CONTENT, _cursor(page.last)))
        return self._scopes[page]

    def rows(self, page: PageOf) -> list[LedgerRecord]:
        """Return the ledger's rows of a page."""
        return [_row(self.items[number - 1], page.fence) for number in range(page.first, page.last + 1)]

    def has_findings(self, number: int, fence: int) -> bool:
        """Return whether something is found in an item by whoever has that fence."""
        item = self.items[number - 1]
        return bool(item.findings) and not _fails(item, fence)

    # What a page's commit accepts as proof; `shown` is the page whose receipt is shown.

    def proves_findings(self, page: PageOf, shown: PageOf) -> bool:
        """Return whether the commit goes on with this receipt for findings."""

        def ask() -> bool:
            return bool(AwaitingFindings(self.scope(page)).record_findings(self._found(shown)))

        return bool(self._answer(("proves findings", page, shown), ask))

    def proves_items(self, page: PageOf, shown: PageOf, missing: int = 0) -> bool:
        """Return whether the commit goes on with this receipt for items, of which so many were not written."""

        def ask() -> bool:
            state = FindingsDurable(self.scope(page), self._found(page))
            return bool(state.record_done_ledger(self._listed(shown, missing)))

        return bool(self._answer(("proves items", page, shown, missing), ask))

    def proves_cursor(self, page: PageOf, shown: PageOf) -> bool:
        """Return whether the commit goes on with this receipt for a cursor."""

        def ask() -> bool:
            state = ItemsDurable(self.scope(page), self._listed(page))
            return bool(state.record_checkpoint(CheckpointReceipt(self._listed(shown), 0)))

        return bool(self._answer(("proves cursor", page, shown), ask))

    # What is written; `after` is the page whose receipt is shown.

    def write_findings(self, contents: Contents, page: PageOf, number: int) -> Contents | None:
        """Write the findings of one item of a page."""

        def ask() -> frozenset[int]:
            tables = self._tables(contents)
            rows = [_finding(number)] if self.has_findings(number, page.fence) else []
            MemoryFindings(tables).upsert_batch(FindingsBatch(self.scope(page), rows))
            return frozenset(row.item[0] for row in tables.findings.values())

        key = ("findings", contents.findings, contents.shard.fence, page, number)
        findings = self._answer(key, ask)
        return None if findings is None else contents._replace(findings=findings)

    def write_ledger(self, contents: Contents, page: PageOf, after: PageOf) -> Contents | None:
        """Write the rows of a page."""

        def ask() -> tuple[LedgerRecord | None, ...]:
            tables = self._tables(contents)
            MemoryLedger(tables).batch_upsert(self.rows(page), after=self._found(after))
            ovids = [_ovid(index) for index in range(len(contents.ledger))]
            return tuple(MemoryLedger(tables).batch_get(TENANT, POLICY, ovids))

        key = ("ledger", contents.ledger, contents.shard.fence, page, after)
        ledger = self._answer(key, ask)
        return None if ledger is None else contents._replace(ledger=ledger)

    def checkpoint(self, contents: Contents, page: PageOf, sequence: int, now: int, after: PageOf) -> Contents | None:
        """Move the cursor to the end of a page."""

        def ask() -> ShardRecord:
            asked = _Asked(contents.shard, page.fence, sequence, now)
            asked.held().checkpoint(self.scope(page).boundary, after=self._listed(after))
            return asked.shard

        shard = self._answer(("checkpoint", contents.shard, page, sequence, now, after), ask)
        return None if shard is None else contents._replace(shard=shard)

    def complete(self, contents: Contents, fence: int, now: int) -> Contents | None:
        """End the shard."""

        def ask() -> ShardRecord:
            identity = op_id(RUN, SHARD, fence, OpKind.COMPLETE)
            lease = _lease(fence)
            return leases.complete(contents.shard, lease, now, _cursor(len(self.items)), identity).record

        shard = self._answer(("complete", contents.shard, fence, now), ask)
        return None if shard is None else contents._replace(shard=shard)

    def acquire(self, contents: Contents, now: int) -> Contents | None:
        """Take the shard."""
        shard = self._answer(
            ("acquire", contents.shard, now),
            lambda: leases.acquire(contents.shard, now, TENANT, contents.shard.fence + 1, LEASE_TICKS),
        )
        return None if shard is None else contents._replace(shard=shard)

    def _found(self, page: PageOf) -> FindingsReceipt:
        return FindingsReceipt(self.scope(page))

    def _listed(self, page: PageOf, missing: int = 0) -> LedgerReceipt:
        return LedgerReceipt(self._found(page), self.scope(page).units.count - missing, 0, 0)

    def _tables(self, contents: Contents) -> MemoryTables:
        tables = MemoryTables(ManualClock(), lambda *_: contents.shard.fence if self._fenced else None)
        tables.findings.update({row[:2]: row for row in map(_finding, contents.findings)})
        tables.ledger.update({row.key: row for row in contents.ledger if row is not None})
        return tables

    def _answer(self, key: Hashable, ask: Callable[[], ResultT]) -> ResultT | None:
        if key not in self._answers:
            try:
                self._answers[key] = ask()
            except (Conflict, InvalidInput):
                self._answers[key] = None
        found: ResultT | None = self._answers[key]
        return found


class _Asked:
    """A coordinator for one question: it decides on one record, and keeps what becomes of it."""

    def __init__(self, shard: ShardRecord, fence: int, sequence: int, now: int) -> None:
        self.shard = shard
        self._fence = fence
        self._sequence = sequence
        self._now = now

    def held(self) -> HeldShard:
        acquired = Acquired(_lease(self._fence), self.shard.spec, Cursor(), self.shard.semantics)
        return HeldShard(self, acquired, ManualClock(0), lambda: 0, FAR)  # type: ignore[arg-type]

    def checkpoint(self, _: int, lease: Lease, cursor: Cursor, __: int) -> Outcome:
        identity = op_id(RUN, SHARD, self._fence, OpKind.CHECKPOINT, self._sequence)
        decided = leases.checkpoint(self.shard, lease, self._now, cursor, identity)
        self.shard = decided.record
        return decided.outcome


def _cursor(number: int) -> Cursor:
    return Cursor(bytes([number]) if number else b"")


def _lease(fence: int) -> Lease:
    # Each fence has its own worker here, so that the holder of an old one is somebody else.
    return Lease(TENANT, RUN, SHARD, fence, fence, FAR)


def _ovid(index: int) -> OvidHash:
    return OvidHash(bytes([index]) * 32)


def _finding(number: int) -> FindingRecord:
    mark = bytes([number]) * 32
    return FindingRecord(TENANT, FindingId(mark), StableItemId(mark), RuleFingerprint(mark), SecretHash(mark))


def _fails(item: Item, fence: int) -> bool:
    return item.flaky and fence == 1


def _row(item: Item, fence: int) -> LedgerRecord:
    status = DoneStatus.SCANNED_WITH_FINDINGS if item.findings else DoneStatus.SCANNED_CLEAN
    failed = _fails(item, fence)
    return LedgerRecord(
        TENANT,
        POLICY,
        _ovid(item.ovid),
        weak=False,
        status=DoneStatus.FAILED_RETRYABLE if failed else status,
        bytes_seen=1,
        findings_count=0 if failed else item.findings,
        members_skipped=0,
        decodes_skipped=0,
        findings_dropped=0,
        run_id=RUN,
        shard_id=SHARD,
        fence=fence,
        started_at=fence,
        finished_at=fence,
        error_code="TIMEOUT" if failed else None,
    )
