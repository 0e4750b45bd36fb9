"""Findings, then done, then checkpoint: the durable side of scanning, for whoever runs the scanners.

**Promise.** A shard's cursor never passes an item that is not durably done, and no item is said to be done whose
findings are not durable. Whatever is killed, wherever: nothing is lost, nothing is there twice, and the work goes on
where it was.

**How.** A page of items is committed in three steps, each with the receipt of the one before (`commit_page`):

    findings = sink.upsert_batch(page.findings)                 what was found
    items = ledger.batch_upsert(page.items, after=findings)     that it was looked at, and how well
    shard.checkpoint(page.scope.boundary, after=items)          that nobody need look again

No transaction spans the three. Instead everything has an id that follows from its content (`identity`, `policy`), and
every row is merged by rules that are commutative, associative and idempotent (`ledger`, `findings`, `triage`), so
that a page may be committed again by anybody: at-least-once execution is exactly-once in effect. `page_commit` has
the same steps as states, for those who drive them one by one.

**Who may write.** `coordination` cuts a run into shards and gives each to one worker at a time, under a lease and a
fence; `held` is a shard in a worker's hands, which stops by itself when the lease is over. A store that shares its
database with coordination refuses rows under an older fence; any other merges them, which does no harm.

**Where.** `memory` for tests, `sql` for SQLite (the default, several processes) and PostgreSQL; coordination also on
etcd. `stores.open_stores` opens all of it by an address. `reads` are the questions people ask; `state` keeps what
scanners want to remember; `verify` looks whether what is stored keeps these promises.

**What is never kept.** No byte of a secret: a secret is a hash under its tenant's key (`SecretHash`). No key, cursor or
hash of a secret is in a message or a `repr`.

**Trade-offs.** Writes of one page are three fsyncs, or two where a page found nothing new; a page should have
hundreds of items. A batch has at most 10,000 rows. Logical times (`started_at`, `seen_at`) order what one lease did
and nothing else; real times are kept beside them for people. Reopening what failed for good is a new generation of
its policy.
"""

from strandline.pipeline.commit import Page, commit_page
from strandline.pipeline.findings import (
    FindingRecord,
    FindingsBatch,
    FindingsSink,
    ObservationRecord,
    OccurrenceRecord,
)
from strandline.pipeline.held import HeldShard, claim
from strandline.pipeline.ledger import DoneLedger, DoneStatus, LedgerRecord
from strandline.pipeline.page_commit import AwaitingFindings, CheckpointDurable, FindingsDurable, ItemsDurable
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
