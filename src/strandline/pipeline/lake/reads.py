"""Queries over the pages of a lake: those over findings by the twin in memory, those over the ledger in columns.

Invariants: every answer has every page that was written before the question; answers are those of the other stores.
"""

from collections import defaultdict
from collections.abc import Sequence

from strandline.pipeline import triage as triage_rules
from strandline.pipeline.findings import FindingRecord, ObservationRecord
from strandline.pipeline.identity import FindingId, ObservationId, OvidHash, PolicyHash, SecretHash, TenantId
from strandline.pipeline.lake.page_cache import PageCache
from strandline.pipeline.memory import MemoryTables
from strandline.pipeline.memory_reads import MemoryReads
from strandline.pipeline.reads import (
    Coverage,
    FindingHistory,
    Known,
    Observed,
    PendingFinding,
    PolicyCounts,
    PolicyDiff,
    check_limit,
)
from strandline.pipeline.triage import TriageState


class LakeReads:
    """Queries about one tenant's results in a lake."""

    def __init__(self, cache: PageCache) -> None:
        self._cache = cache

    def counts_by_policy(self, tenant: TenantId) -> list[PolicyCounts]:
        """Return counts of findings for each policy, by policy."""
        return self._twin().counts_by_policy(tenant)

    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:
        """Return findings whose state is open, last committed first, then by id."""
        check_limit(limit)
        tables = self._cache.findings()
        with tables.lock:
            pending = _all_pending(tables, tenant)
        undecided = [row for row in pending if row.decision is None or row.decision.state == TriageState.OPEN]
        return sorted(undecided, key=lambda row: (-row.last_committed_ns, row.finding.finding_id))[:limit]

    def history(self, tenant: TenantId, finding: FindingId) -> FindingHistory | None:
        """Return a finding in full; None if the tenant has no such finding."""
        return self._twin().history(tenant, finding)

    def observed(
        self,
        tenant: TenantId,
        policy: PolicyHash,
        ovids: Sequence[OvidHash] | None = None,
        *,
        after: ObservationId | None = None,
        limit: int = 10_000,
    ) -> list[Observed]:
        """Return the observations under a policy, in some object versions or in all, by id, beginning after one."""
        return self._twin().observed(tenant, policy, ovids, after=after, limit=limit)

    def coverage(self, tenant: TenantId, policy: PolicyHash) -> Coverage:
        """Return how completely the policy's objects were scanned; zeros when there are none."""
        return self._cache.ledger(tenant, policy).coverage()

    def findings_of_secret(self, tenant: TenantId, secret: SecretHash) -> list[FindingRecord]:
        """Return the findings of a secret, by id."""
        return self._twin().findings_of_secret(tenant, secret)

    def policy_diff(self, tenant: TenantId, old: PolicyHash, new: PolicyHash) -> PolicyDiff:
        """Return what two policies found in the object versions that were scanned under both; ids sorted."""
        both = self._cache.ledger(tenant, old).scanned() & self._cache.ledger(tenant, new).scanned()
        tables = self._cache.findings()
        with tables.lock:
            before, after = (
                {
                    tables.occurrences[tenant, row.occurrence_id].finding_id
                    for row in tables.observations.values()
                    if row.tenant == tenant and row.policy == policy and row.ovid in both
                }
                for policy in (old, new)
            )
        return PolicyDiff(len(both), sorted(before - after), sorted(after - before), len(before & after))

    def known_at(self, tenant: TenantId, policy: PolicyHash, at_ns: int) -> Known:
        """Return the rows committed up to a time, inclusive."""
        objects = self._cache.ledger(tenant, policy).known_at(at_ns)
        return Known(objects, self._twin().known_at(tenant, policy, at_ns).findings)

    def _twin(self) -> MemoryReads:
        return MemoryReads(self._cache.findings())


def _all_pending(tables: MemoryTables, tenant: TenantId) -> list[PendingFinding]:
    seen: dict[FindingId, list[ObservationRecord]] = defaultdict(list)
    for row in tables.observations.values():
        if row.tenant == tenant:
            seen[tables.occurrences[tenant, row.occurrence_id].finding_id].append(row)
    return [_pending(tables, row, seen[row.finding_id]) for row in tables.findings.values() if row.tenant == tenant]


def _pending(tables: MemoryTables, row: FindingRecord, seen: list[ObservationRecord]) -> PendingFinding:
    first = tables.first_ns
    located = max(
        (one for one in seen if one.location_display is not None),
        key=lambda one: (first[one.tenant, one.observation_id], one.observation_id),
        default=None,
    )
    return PendingFinding(
        row,
        len({one.occurrence_id for one in seen}),
        max(first[row.tenant, row.finding_id], *(first[one.tenant, one.observation_id] for one in seen), 0),
        located.location_display if located else None,
        triage_rules.current(tables.triage.get(row[:2], {}).values()),
    )
