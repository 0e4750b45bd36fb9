"""Findings, then done, then checkpoint: the durable side of scanning.

**Promise.** A shard's cursor never passes an item that is not durably done, and no item is done whose findings are not
durable. After any crash nothing is lost, nothing is stored twice, and work continues after the last checkpoint.

**How.** A page of items is committed in three steps, each with the receipt of the one before (`commit_page`):

    findings = sink.upsert_batch(page.findings)                 the findings
    items = ledger.batch_upsert(page.items, after=findings)     the items, and how completely they were scanned
    shard.checkpoint(page.scope.boundary, after=items)          the cursor

No transaction spans the three. Instead every id follows from content (`identity`, `policy`), and every row is merged by
rules that are commutative, associative and idempotent (`ledger`, `findings`, `triage`), so that any worker may commit a
page again: at-least-once execution is exactly-once in effect. `commit` has the steps as states.

**Fences.** `coordination` cuts a run into shards and gives each to one worker at a time, under a lease and a fence;
`held_shard` is a shard under a worker's lease, which stops by itself when the lease ends. A store in the database of
coordination rejects rows under an older fence; any other store merges them, which is harmless.

**Stores.** `memory` for tests, `sql` for SQLite (the default, several processes) and PostgreSQL, `lake` for objects of
a bucket; coordination also on etcd. `stores.open_stores` opens all of them by an address. `reads` are queries; `state`
holds values of scanners; `verify` checks stored rows against these promises.

**Secrets.** No byte of a secret is stored: a secret is a hash under its tenant's key (`SecretHash`). No key, cursor or
hash of a secret is in a message or a `repr`.

**Trade-offs.** A page costs three fsyncs, or two without new findings; it should have hundreds of items. A batch has at
most 10,000 rows. Logical times (`started_at`, `seen_at`) order the work of one lease and nothing else; real times are
stored beside them. Reopening items that failed for good is a new generation of their policy.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.pipeline.commit import (
        AwaitingFindings,
        CheckpointDurable,
        FindingsDurable,
        ItemsDurable,
        Page,
        commit_page,
    )
    from strandline.pipeline.findings import (
        FindingRecord,
        FindingsBatch,
        FindingsSink,
        ObservationRecord,
        OccurrenceRecord,
    )
    from strandline.pipeline.held_shard import HeldShard, claim
    from strandline.pipeline.ledger import DoneLedger, DoneStatus, LedgerRecord
    from strandline.pipeline.pages import Failed, FoundSecret, Gaps, Item, PageBuilder, Scanned, Skipped
    from strandline.pipeline.policy import Policies, Policy, PolicyDelta, PolicyRecord, delta
    from strandline.pipeline.reads import PipelineReads
    from strandline.pipeline.receipts import CheckpointReceipt, FindingsReceipt, LedgerReceipt
    from strandline.pipeline.scope import Boundary, BoundaryKind, CommitScope, Units, WriteContext
    from strandline.pipeline.state import ScannerState
    from strandline.pipeline.triage import Triage, TriageEvent, TriageState

__all__ = [
    "AwaitingFindings",
    "Boundary",
    "BoundaryKind",
    "CheckpointDurable",
    "CheckpointReceipt",
    "CommitScope",
    "DoneLedger",
    "DoneStatus",
    "Failed",
    "FindingRecord",
    "FindingsBatch",
    "FindingsDurable",
    "FindingsReceipt",
    "FindingsSink",
    "FoundSecret",
    "Gaps",
    "HeldShard",
    "Item",
    "ItemsDurable",
    "LedgerReceipt",
    "LedgerRecord",
    "ObservationRecord",
    "OccurrenceRecord",
    "Page",
    "PageBuilder",
    "PipelineReads",
    "Policies",
    "Policy",
    "PolicyDelta",
    "PolicyRecord",
    "Scanned",
    "ScannerState",
    "Skipped",
    "Triage",
    "TriageEvent",
    "TriageState",
    "Units",
    "WriteContext",
    "claim",
    "commit_page",
    "delta",
]

# Import a public name at its first use, so that a command loads only the modules that it needs.
__getattr__ = _lazy_names(
    __name__,
    {
        "commit": (
            "AwaitingFindings",
            "CheckpointDurable",
            "FindingsDurable",
            "ItemsDurable",
            "Page",
            "commit_page",
        ),
        "findings": (
            "FindingRecord",
            "FindingsBatch",
            "FindingsSink",
            "ObservationRecord",
            "OccurrenceRecord",
        ),
        "held_shard": (
            "HeldShard",
            "claim",
        ),
        "ledger": (
            "DoneLedger",
            "DoneStatus",
            "LedgerRecord",
        ),
        "pages": (
            "Failed",
            "FoundSecret",
            "Gaps",
            "Item",
            "PageBuilder",
            "Scanned",
            "Skipped",
        ),
        "policy": (
            "Policies",
            "Policy",
            "PolicyDelta",
            "PolicyRecord",
            "delta",
        ),
        "reads": ("PipelineReads",),
        "receipts": (
            "CheckpointReceipt",
            "FindingsReceipt",
            "LedgerReceipt",
        ),
        "scope": (
            "Boundary",
            "BoundaryKind",
            "CommitScope",
            "Units",
            "WriteContext",
        ),
        "state": ("ScannerState",),
        "triage": (
            "Triage",
            "TriageEvent",
            "TriageState",
        ),
    },
)
