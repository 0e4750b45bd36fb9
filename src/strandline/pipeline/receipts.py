"""Receipts: values that prove a stage of a page's commit durable; the next stage takes them as arguments.

    findings = sink.upsert_batch(page.findings)
    items = ledger.batch_upsert(page.items, after=findings)
    shard.checkpoint(page.boundary, after=items)

Each receipt holds the one before it and the scope of its page, so that the last proves all three, and none fits another
page. A receipt is made only after the commit of its stage.
"""

from dataclasses import dataclass

from strandline.pipeline.scope import CommitScope


@dataclass(frozen=True, slots=True)
class FindingsReceipt:
    """The page's findings are durable; the counts are rows acknowledged, new or not."""

    scope: CommitScope
    finding_count: int = 0
    occurrence_count: int = 0
    observation_count: int = 0


@dataclass(frozen=True, slots=True)
class LedgerReceipt:
    """The page's items are durably done; the counts are distinct keys, those scanned, and their findings."""

    findings: FindingsReceipt
    record_count: int
    scanned_count: int
    findings_count: int

    @property
    def scope(self) -> CommitScope:
        """Return the page's scope."""
        return self.findings.scope


@dataclass(frozen=True, slots=True)
class CheckpointReceipt:
    """The cursor durably names the page's end: all three stages are durable."""

    items: LedgerReceipt
    checkpointed_at: int

    @property
    def scope(self) -> CommitScope:
        """Return the page's scope."""
        return self.items.scope
