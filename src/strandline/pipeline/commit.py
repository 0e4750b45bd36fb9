"""Committing a page: findings, then the ledger, then the checkpoint, each only after the one before is durable.

Invariants: whatever is interrupted, and wherever, a cursor never passes an item whose row is not durable, and no row
says "scanned" whose findings are not. Committing a page again is the same as committing it once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from strandline.pipeline.errors import BATCH_ROWS_MAX, ReceiptMismatch
from strandline.pipeline.findings import FindingsBatch, FindingsSink
from strandline.pipeline.ledger import DoneLedger, LedgerRecord, validate_all
from strandline.pipeline.page_commit import AwaitingFindings
from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import Boundary, CommitScope, Units, WriteContext


@dataclass(frozen=True, slots=True)
class Page:
    """What a worker made of a piece of its shard: the items it finished, and what it found in them."""

    findings: FindingsBatch
    items: Sequence[LedgerRecord]

    @property
    def scope(self) -> CommitScope:
        """Return which page it is."""
        return self.findings.scope


class Checkpoints(Protocol):
    """Where a shard's cursor becomes durable."""

    def checkpoint(self, boundary: Boundary, *, after: LedgerReceipt) -> CheckpointReceipt:
        """Move the cursor to the end of the page that `after` proves done, and return once that is durable."""
        ...


def commit_page(page: Page, sink: FindingsSink, ledger: DoneLedger, coordinator: Checkpoints) -> CheckpointReceipt:
    """Commit a page, and return the proof that all of it is durable."""
    validate_all(page.items)  # before anything is written
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


def check_items(records: Sequence[LedgerRecord], after: FindingsReceipt) -> None:
    """Refuse rows that are not those of the page whose findings are durable."""
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
