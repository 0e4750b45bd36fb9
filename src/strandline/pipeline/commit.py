"""The commit of a page: findings, then the ledger, then the checkpoint, each only after the one before is durable.

    AwaitingFindings ─ record_findings ─► FindingsDurable ─ record_done_ledger ─► ItemsDurable
                                                  ─ record_checkpoint ─► CheckpointDurable

A state is used once, also if its step fails: then the commit begins again at `AwaitingFindings`, which is safe because
every write is idempotent. The type checker rejects the wrong order, since no state has the method of another; each
step rejects the receipt of another page.

Invariants: wherever a commit is interrupted, a cursor never passes an item whose row is not durable, and no row says
"scanned" whose findings are not. Committing a page again is the same as committing it once.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol

from strandline.pipeline.errors import BATCH_ROWS_MAX, CommitUsed, ReceiptMismatch
from strandline.pipeline.findings import FindingsBatch, FindingsSink
from strandline.pipeline.ledger import DoneLedger, LedgerRecord, validate_all
from strandline.pipeline.page_rows import PageRows
from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary, CommitScope, Units, WriteContext


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a shard after a worker's scan: its finished items and their findings."""

    findings: FindingsBatch
    items: Sequence[LedgerRecord]

    @property
    def scope(self) -> CommitScope:
        """Return the scope of the page."""
        return self.findings.scope


class Checkpoints(Protocol):
    """The store of a shard's cursor."""

    def checkpoint(self, boundary: Boundary, *, after: LedgerReceipt) -> CheckpointReceipt:
        """Move the cursor to the end of the page that `after` proves done, and return once that is durable."""
        ...


class _Once:
    """A guard that passes once; every later call raises."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self, state: str) -> None:
        if not self._lock.acquire(blocking=False):
            raise CommitUsed(state)


@dataclass(frozen=True, slots=True)
class _State:
    scope: CommitScope
    _once: _Once = field(default_factory=_Once, init=False, repr=False, compare=False)

    def _use(self) -> None:
        self._once.take(type(self).__name__)


@dataclass(frozen=True, slots=True)
class CheckpointDurable(_State):
    """All three stages are durable; `receipt` proves it."""

    receipt: CheckpointReceipt


@dataclass(frozen=True, slots=True)
class ItemsDurable(_State):
    """Findings and ledger are durable; the cursor may follow."""

    receipt: LedgerReceipt

    def record_checkpoint(self, receipt: CheckpointReceipt) -> CheckpointDurable:
        """Continue with the receipt of the cursor."""
        self._use()
        check_checkpoint(self.scope, receipt)
        return CheckpointDurable(self.scope, receipt)


@dataclass(frozen=True, slots=True)
class FindingsDurable(_State):
    """Findings are durable; the ledger is next."""

    receipt: FindingsReceipt

    def record_done_ledger(self, receipt: LedgerReceipt) -> ItemsDurable:
        """Continue with the receipt of the items."""
        self._use()
        check_done_ledger(self.scope, receipt)
        return ItemsDurable(self.scope, receipt)


@dataclass(frozen=True, slots=True)
class AwaitingFindings(_State):
    """Nothing is durable yet."""

    def record_findings(self, receipt: FindingsReceipt) -> FindingsDurable:
        """Continue with the receipt of the findings."""
        self._use()
        check_findings(self.scope, receipt)
        return FindingsDurable(self.scope, receipt)


def check_findings(scope: CommitScope, receipt: FindingsReceipt) -> None:
    """Refuse a receipt for the findings of another page."""
    if receipt.scope != scope:
        raise ReceiptMismatch("findings", "receipt's scope")


def check_done_ledger(scope: CommitScope, receipt: LedgerReceipt) -> None:
    """Refuse a receipt for the items of another page, or for fewer or more than its distinct keys."""
    if receipt.scope != scope:
        raise ReceiptMismatch("ledger", "receipt's scope")
    if receipt.record_count != scope.units.count:
        raise ReceiptMismatch("ledger", "number of distinct keys")


def check_checkpoint(scope: CommitScope, receipt: CheckpointReceipt) -> None:
    """Refuse a receipt for the cursor of another page."""
    if receipt.scope != scope:
        raise ReceiptMismatch("checkpoint", "receipt's scope")


def commit_page(page: Page, sink: FindingsSink, ledger: DoneLedger, coordinator: Checkpoints) -> CheckpointReceipt:
    """Commit a page, and return the proof that all of it is durable."""
    check_valid(page.items)  # before anything is written
    findings = AwaitingFindings(page.scope).record_findings(write_findings(page.findings, sink))
    items = findings.record_done_ledger(ledger.batch_upsert(page.items, after=findings.receipt))
    return items.record_checkpoint(coordinator.checkpoint(page.scope.boundary, after=items.receipt)).receipt


def write_findings(batch: FindingsBatch, sink: FindingsSink) -> FindingsReceipt:
    """Write a page's findings in as many batches as they need, parents first; return one receipt for all of them."""
    receipts = [sink.upsert_batch(part) for part in _parts(batch)]
    if len(receipts) == 1:
        return receipts[0]
    for receipt in receipts:
        if receipt.scope != batch.scope:
            raise ReceiptMismatch("findings", "receipt's scope")
    return FindingsReceipt(
        batch.scope,
        sum(receipt.finding_count for receipt in receipts),
        sum(receipt.occurrence_count for receipt in receipts),
        sum(receipt.observation_count for receipt in receipts),
    )


def check_valid(records: Sequence[LedgerRecord]) -> None:
    """Refuse a batch with an invalid row; rows that a builder made are valid."""
    if not isinstance(records, PageRows):
        validate_all(records)


def check_items(records: Sequence[LedgerRecord], after: FindingsReceipt) -> None:
    """Refuse rows that are not those of the page whose findings are durable."""
    if isinstance(records, PageRows) and records.scope == after.scope:
        return
    if {_context(row) for row in records} != {tuple(after.scope.context)}:
        raise ReceiptMismatch("ledger", "tenant, policy, run, shard or fence of a row")
    if Units.of(row.ovid for row in records) != after.scope.units:
        raise ReceiptMismatch("ledger", "set of keys")


_context = itemgetter(*map(LedgerRecord._fields.index, WriteContext._fields))


def _parts(batch: FindingsBatch) -> Iterator[FindingsBatch]:
    layers = batch.findings, batch.occurrences, batch.observations
    if max(map(len, layers)) <= BATCH_ROWS_MAX:
        yield batch
        return
    for at in range(0, len(batch.findings), BATCH_ROWS_MAX):
        yield FindingsBatch(batch.scope, findings=batch.findings[at : at + BATCH_ROWS_MAX])
    for at in range(0, len(batch.occurrences), BATCH_ROWS_MAX):
        yield FindingsBatch(batch.scope, occurrences=batch.occurrences[at : at + BATCH_ROWS_MAX])
    for at in range(0, len(batch.observations), BATCH_ROWS_MAX):
        yield FindingsBatch(batch.scope, observations=batch.observations[at : at + BATCH_ROWS_MAX])
