"""Queries over the tables in memory: the reference for the SQL statements.

Invariants: nothing is cached, and every answer is computed from rows of one tenant under the tables' lock.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.pipeline import triage as triage_rules
from strandline.pipeline.findings import FindingRecord, ObservationRecord
from strandline.pipeline.identity import FindingId, ObservationId, OvidHash, PolicyHash, SecretHash, TenantId
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.memory import MemoryTables
from strandline.pipeline.reads import (
    Coverage,
    FindingHistory,
    Known,
    Observed,
    PendingFinding,
    PolicyCounts,
    PolicyDiff,
    Seen,
    check_limit,
    check_objects,
)
from strandline.pipeline.triage import TriageEvent, TriageState


@dataclass
class MemoryReads:
    """Queries about one tenant's results, in memory."""

    tables: MemoryTables

    def counts_by_policy(self, tenant: TenantId) -> list[PolicyCounts]:
        """Return counts of findings for each policy, by policy."""
        with self.tables.lock:
            seen = self._observations(tenant)
            return [self._counts(tenant, policy) for policy in sorted({row.policy for row in seen})]

    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:
        """Return findings whose state is open, last committed first, then by id."""
        check_limit(limit)
        with self.tables.lock:
            pending = [self._pending(row) for row in self._findings(tenant)]
        undecided = [row for row in pending if row.decision is None or row.decision.state == TriageState.OPEN]
        return sorted(undecided, key=lambda row: (-row.last_committed_ns, row.finding.finding_id))[:limit]

    def history(self, tenant: TenantId, finding: FindingId) -> FindingHistory | None:
        """Return a finding in full; None if the tenant has no such finding."""
        with self.tables.lock:
            record = self.tables.findings.get((tenant, finding))
            if record is None:
                return None
            seen = [self._seen(row) for row in self._observations(tenant) if self._finding_of(row) == finding]
            decisions = self.tables.triage.get((tenant, finding), {}).values()
            return FindingHistory(
                record,
                self.tables.first_ns[tenant, finding],
                sorted(seen, key=lambda row: (row.observation_ns, row.observation.observation_id)),
                sorted(decisions, key=triage_rules.order),
            )

    def observed(
        self,
        tenant: TenantId,
        policy: PolicyHash,
        ovids: Sequence[OvidHash] | None = None,
        *,
        after: ObservationId | None = None,
        limit: int = 10_000,
    ) -> list[Observed]:
        """Return the observations under a policy, by id."""
        check_limit(limit)
        check_objects(ovids)
        wanted = None if ovids is None else set(ovids)
        with self.tables.lock:
            seen = [
                row
                for row in self._observations(tenant)
                if row.policy == policy
                and (wanted is None or row.ovid in wanted)
                and (after is None or row.observation_id > after)
            ]
            return [self._observed(row) for row in sorted(seen, key=lambda row: row.observation_id)[:limit]]

    def coverage(self, tenant: TenantId, policy: PolicyHash) -> Coverage:
        """Return how completely the policy's objects were scanned."""
        with self.tables.lock:
            rows = self._rows(tenant, policy)
        return Coverage(
            Counter(DoneStatus(row.status) for row in rows),
            sum(row.status >= DoneStatus.SCANNED_PARTIAL and not row.is_complete for row in rows),
            sum(row.weak for row in rows),
            sum(row.bytes_seen for row in rows),
            sum(row.members_skipped for row in rows),
            sum(row.decodes_skipped for row in rows),
            sum(row.findings_dropped for row in rows),
        )

    def findings_of_secret(self, tenant: TenantId, secret: SecretHash) -> list[FindingRecord]:
        """Return the findings of a secret, by id."""
        with self.tables.lock:
            return sorted(
                (row for row in self._findings(tenant) if row.secret == secret), key=lambda row: row.finding_id
            )

    def policy_diff(self, tenant: TenantId, old: PolicyHash, new: PolicyHash) -> PolicyDiff:
        """Return what two policies found in the object versions that were scanned under both."""
        with self.tables.lock:
            both = self._scanned(tenant, old) & self._scanned(tenant, new)
            before, after = (
                {
                    self._finding_of(row)
                    for row in self._observations(tenant)
                    if row.policy == policy and row.ovid in both
                }
                for policy in (old, new)
            )
        return PolicyDiff(len(both), sorted(before - after), sorted(after - before), len(before & after))

    def known_at(self, tenant: TenantId, policy: PolicyHash, at_ns: int) -> Known:
        """Return the rows committed up to a time, inclusive."""
        with self.tables.lock:
            times = [self.tables.ledger_ns[row.key] for row in self._rows(tenant, policy)]
            seen = [row for row in self._observations(tenant) if row.policy == policy]
            found = {self._finding_of(row) for row in seen if self._first_ns(row) <= at_ns}
        reached = [[status for status, ns in by_status.items() if ns <= at_ns] for by_status in times]
        return Known(Counter(max(statuses) for statuses in reached if statuses), sorted(found))

    # Rows.

    def _findings(self, tenant: TenantId) -> list[FindingRecord]:
        return [row for row in self.tables.findings.values() if row.tenant == tenant]

    def _observations(self, tenant: TenantId) -> list[ObservationRecord]:
        return [row for row in self.tables.observations.values() if row.tenant == tenant]

    def _rows(self, tenant: TenantId, policy: PolicyHash) -> list[LedgerRecord]:
        return [row for key, row in self.tables.ledger.items() if key[:2] == (tenant, policy)]

    def _scanned(self, tenant: TenantId, policy: PolicyHash) -> set[bytes]:
        return {row.ovid for row in self._rows(tenant, policy) if row.status >= DoneStatus.SCANNED_PARTIAL}

    def _finding_of(self, row: ObservationRecord) -> FindingId:
        return self.tables.occurrences[row.tenant, row.occurrence_id].finding_id

    def _first_ns(self, row: ObservationRecord) -> int:
        return self.tables.first_ns[row.tenant, row.observation_id]

    def _counts(self, tenant: TenantId, policy: PolicyHash) -> PolicyCounts:
        seen = [row for row in self._observations(tenant) if row.policy == policy]
        return PolicyCounts(policy, len({self._finding_of(row) for row in seen}), len(seen), len(seen))

    def _seen(self, row: ObservationRecord) -> Seen:
        occurrence = self.tables.occurrences[row.tenant, row.occurrence_id]
        return Seen(occurrence, row, self.tables.first_ns[row.tenant, occurrence.occurrence_id], self._first_ns(row))

    def _observed(self, row: ObservationRecord) -> Observed:
        occurrence = self.tables.occurrences[row.tenant, row.occurrence_id]
        finding = self.tables.findings[row.tenant, occurrence.finding_id]
        first_ns = self.tables.first_ns[row.tenant, finding.finding_id]
        return Observed(finding, occurrence, row, first_ns, self._decision(finding))

    def _pending(self, row: FindingRecord) -> PendingFinding:
        seen = [seen for seen in self._observations(row.tenant) if self._finding_of(seen) == row.finding_id]
        times = [self.tables.first_ns[row.tenant, row.finding_id], *map(self._first_ns, seen)]
        located = max(
            (one for one in seen if one.location_display is not None),
            key=lambda one: (self._first_ns(one), one.observation_id),
            default=None,
        )
        return PendingFinding(
            row,
            len({one.occurrence_id for one in seen}),
            max(times),
            located.location_display if located else None,
            self._decision(row),
        )

    def _decision(self, row: FindingRecord) -> TriageEvent | None:
        return triage_rules.current(self.tables.triage.get(row[:2], {}).values())
