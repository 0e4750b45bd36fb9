"""The pipeline's stores in memory: the twins of the real ones, for tests and simulations.

They keep every promise but durability, by calling the same pure functions whose rules the SQL backends repeat. `Hooks`
let a test slow a commit down or make it fail, before (nothing is written) or after (it is written, and the caller does
not know).
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from strandline.clock import Clock, SystemClock
from strandline.pipeline import findings as findings_rules
from strandline.pipeline import ledger as ledger_rules
from strandline.pipeline import policy as policy_rules
from strandline.pipeline import triage as triage_rules
from strandline.pipeline.commit import check_items, check_valid
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge, ContentConflict, MissingParent
from strandline.pipeline.findings import FindingRecord, FindingsBatch, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import (
    FindingId,
    ObservationId,
    OccurrenceId,
    OvidHash,
    PolicyHash,
    TenantId,
)
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.policy import PolicyRecord
from strandline.pipeline.receipts import FindingsReceipt, LedgerReceipt
from strandline.pipeline.scope import FenceOf, WriteContext, check_fence, unknown_fence
from strandline.pipeline.triage import TriageEvent

LedgerKey = tuple[TenantId, PolicyHash, OvidHash]


def _no_hook(stage: str) -> None:
    """Do nothing before or after the stage ("findings", "ledger", "triage", "policy")."""


@dataclass(frozen=True)
class Hooks:
    """Hooks of a test around a commit; a hook gets the stage, and may sleep or raise."""

    before_commit: Callable[[str], None] = _no_hook
    after_commit: Callable[[str], None] = _no_hook


@dataclass
class MemoryTables:
    """The tables of the memory stores: rows, and the time of each row's first commit."""

    clock: Clock = field(default_factory=SystemClock)
    fence_of: FenceOf = unknown_fence
    hooks: Hooks = Hooks()
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    ledger: dict[LedgerKey, LedgerRecord] = field(default_factory=dict)
    ledger_ns: dict[LedgerKey, dict[DoneStatus, int]] = field(default_factory=lambda: defaultdict(dict))
    findings: dict[tuple[TenantId, FindingId], FindingRecord] = field(default_factory=dict)
    occurrences: dict[tuple[TenantId, OccurrenceId], OccurrenceRecord] = field(default_factory=dict)
    observations: dict[tuple[TenantId, ObservationId], ObservationRecord] = field(default_factory=dict)
    named: dict[tuple[object, ...], bytes] = field(default_factory=dict)
    first_ns: dict[tuple[TenantId, bytes], int] = field(default_factory=dict)
    triage: dict[tuple[TenantId, FindingId], dict[bytes, TriageEvent]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    policies: dict[tuple[TenantId, PolicyHash], PolicyRecord] = field(default_factory=dict)

    @contextmanager
    def commit(self, stage: str) -> Iterator[None]:
        """Hold the tables for one change, between the hooks."""
        self.hooks.before_commit(stage)
        with self.lock:
            yield
        self.hooks.after_commit(stage)

    def check_fence(self, context: WriteContext) -> None:
        """Refuse a writer whose shard has a newer fence."""
        check_fence(context, self.fence_of(context.tenant, context.run_id, context.shard_id))


@dataclass
class MemoryLedger:
    """A done-ledger in memory."""

    tables: MemoryTables

    def batch_get(self, tenant: TenantId, policy: PolicyHash, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        """Return a row for each key, in their order; None where there is none."""
        if len(ovids) > BATCH_ROWS_MAX:
            raise BatchTooLarge(len(ovids))
        with self.tables.lock:
            return [self.tables.ledger.get((tenant, policy, ovid)) for ovid in ovids]

    def list_done_hashes(self, tenant: TenantId, policy: PolicyHash) -> list[OvidHash]:
        """Return the keys that are done under the policy, sorted."""
        with self.tables.lock:
            rows = [row for key, row in self.tables.ledger.items() if key[:2] == (tenant, policy)]
        return sorted(row.ovid for row in rows if row.suppresses)

    def batch_upsert(self, records: Sequence[LedgerRecord], *, after: FindingsReceipt) -> LedgerReceipt:
        """Merge rows into those that are there, all or none."""
        check_valid(records)
        check_items(records, after)
        folded = ledger_rules.fold(records)
        with self.tables.commit("ledger"):
            self.tables.check_fence(after.scope.context)
            known = self.tables.ledger
            merged = [ledger_rules.merge(known[row.key], row) if row.key in known else row for row in folded]
            now_ns = self.tables.clock.now_ns()
            for row, new in zip(folded, merged, strict=True):
                known[new.key] = new
                self.tables.ledger_ns[new.key].setdefault(row.status, now_ns)
        return ledger_rules.receipt(folded, after)


@dataclass
class MemoryFindings:
    """A findings sink in memory, with triage and policies."""

    tables: MemoryTables

    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        """Write a page's findings, all or none."""
        folded = batch.folded()
        with self.tables.commit("findings"):
            self.tables.check_fence(batch.scope.context)
            self._check_content(folded)
            self._check_parents(folded)
            merged = [self._merged(row) for row in folded.observations]
            now_ns = self.tables.clock.now_ns()
            for layer in (folded.findings, folded.occurrences, folded.observations):
                for row in layer:
                    self.tables.first_ns.setdefault((batch.scope.context.tenant, row[1]), now_ns)
            for layer in (folded.findings, folded.occurrences):
                self.tables.named.update({(row[0], *row[2:]): row[1] for row in layer})
            self.tables.findings.update({row[:2]: row for row in folded.findings})
            self.tables.occurrences.update({row[:2]: row for row in folded.occurrences})
            self.tables.observations.update({row[:2]: row for row in merged})
        counts = len(folded.findings), len(folded.occurrences), len(folded.observations)
        return FindingsReceipt(batch.scope, *counts)

    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        """Store decisions, all or none."""
        triage_rules.validate_all(events)
        with self.tables.commit("triage"):
            if any(event[:2] not in self.tables.findings for event in events):
                raise MissingParent("decisions", "findings")
            for event in events:
                self.tables.triage[event[:2]][triage_rules.event_id(event)] = event

    def triage_of(self, tenant: TenantId, findings: Sequence[FindingId]) -> list[TriageEvent | None]:
        """Return the current decision of each finding, in their order."""
        triage_rules.check_count(findings)
        with self.tables.lock:
            known = self.tables.triage
            return [triage_rules.current(known.get((tenant, finding), {}).values()) for finding in findings]

    def register_policy(self, tenant: TenantId, policy: PolicyRecord) -> None:
        """Keep a policy."""
        policy_rules.validate(tenant, policy)
        with self.tables.commit("policy"):
            if self.tables.policies.setdefault((tenant, policy.policy), policy) != policy:
                raise ContentConflict("policies")

    def get_policy(self, tenant: TenantId, policy: PolicyHash) -> PolicyRecord | None:
        """Return a policy, or None."""
        with self.tables.lock:
            return self.tables.policies.get((tenant, policy))

    def check(self, folded: FindingsBatch) -> None:
        """Refuse a batch that contradicts what is stored, or whose parents are neither in it nor stored."""
        self._check_content(folded)
        self._check_parents(folded)
        for row in folded.observations:
            self._merged(row)

    def _check_content(self, batch: FindingsBatch) -> None:
        """Refuse an id that is known with other content, and content that is known under another id."""
        tables = self.tables
        if any(tables.named.get((row.tenant, *row[2:]), row[1]) != row[1] for row in batch.findings) or any(
            tables.findings.get(row[:2], row) != row for row in batch.findings
        ):
            raise ContentConflict("findings")
        if any(tables.named.get((row.tenant, *row[2:]), row[1]) != row[1] for row in batch.occurrences) or any(
            tables.occurrences.get(row[:2], row) != row for row in batch.occurrences
        ):
            raise ContentConflict("occurrences")

    def _check_parents(self, batch: FindingsBatch) -> None:
        findings = {row[:2] for row in batch.findings}
        occurrences = {row[:2] for row in batch.occurrences}
        for occurrence in batch.occurrences:
            key = (occurrence.tenant, occurrence.finding_id)
            if key not in findings and key not in self.tables.findings:
                raise MissingParent("occurrences", "findings")
        for observation in batch.observations:
            parent = (observation.tenant, observation.occurrence_id)
            if parent not in occurrences and parent not in self.tables.occurrences:
                raise MissingParent("observations", "occurrences")

    def _merged(self, row: ObservationRecord) -> ObservationRecord:
        known = self.tables.observations.get(row[:2])
        return row if known is None else findings_rules.merge(known, row)
