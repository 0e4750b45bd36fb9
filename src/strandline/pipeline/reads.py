"""Queries over the ledger and the findings.

Times here are real: when a store committed a row for the first time, in nanoseconds since 1970. `seen_at` and
`finished_at` of the rows are logical and say nothing across leases. Since rows only grow and first times never change,
"what did we know at T under policy P" has an answer that no longer changes once the transactions of that moment are
over (a time is taken inside its transaction, just before the commit).

Invariants: every answer is about one tenant; an order is total, so that the same question has the same answer.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.findings import FindingRecord, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import FindingId, ObservationId, OvidHash, PolicyHash, SecretHash, TenantId
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.triage import TriageEvent


class PolicyCounts(NamedTuple):
    """Counts under a policy: distinct findings and occurrences, and observations."""

    policy: PolicyHash
    findings: int
    occurrences: int
    observations: int


class PendingFinding(NamedTuple):
    """A finding without a decision, or reopened.

    `last_committed_ns` is the latest first commit of it and its observations; the location is that of the latest
    observation that has one.
    """

    finding: FindingRecord
    occurrences: int
    last_committed_ns: int
    location_display: str | None
    decision: TriageEvent | None


class Seen(NamedTuple):
    """An observation, its occurrence, and the time of each first commit."""

    occurrence: OccurrenceRecord
    observation: ObservationRecord
    occurrence_ns: int
    observation_ns: int


class Observed(NamedTuple):
    """An observation with its finding, the time of the finding's first commit, and the current decision."""

    finding: FindingRecord
    occurrence: OccurrenceRecord
    observation: ObservationRecord
    first_ns: int
    decision: TriageEvent | None


class FindingHistory(NamedTuple):
    """A finding in full, oldest rows first."""

    finding: FindingRecord
    committed_ns: int
    seen: list[Seen]
    decisions: list[TriageEvent]


class Coverage(NamedTuple):
    """Coverage of a policy's objects; `incomplete` counts scanned objects with gaps, with or without findings."""

    objects: Mapping[DoneStatus, int]
    incomplete: int
    weak: int
    bytes_seen: int
    members_skipped: int
    decodes_skipped: int
    findings_dropped: int


class PolicyDiff(NamedTuple):
    """The findings of two policies in the object versions that both scanned."""

    objects: int
    only_old: list[FindingId]
    only_new: list[FindingId]
    both: int

    def __repr__(self) -> str:
        counts = f"only_old={len(self.only_old)}, only_new={len(self.only_new)}, both={self.both}"
        return f"PolicyDiff(objects={self.objects}, {counts})"


class Known(NamedTuple):
    """The results under a policy at a time: object versions by status, and the findings observed."""

    objects: Mapping[DoneStatus, int]
    findings: list[FindingId]

    def __repr__(self) -> str:
        return f"Known(objects={dict(self.objects)}, findings={len(self.findings)})"


class PipelineReads(Protocol):
    """Queries about one tenant's results."""

    def counts_by_policy(self, tenant: TenantId) -> list[PolicyCounts]:
        """Return counts of findings for each policy, by policy; empty when nothing was."""
        ...

    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:
        """Return findings whose state is open, last committed first, then by id; `limit` is at least 1."""
        ...

    def history(self, tenant: TenantId, finding: FindingId) -> FindingHistory | None:
        """Return a finding in full; None if the tenant has no such finding."""
        ...

    def observed(
        self,
        tenant: TenantId,
        policy: PolicyHash,
        ovids: Sequence[OvidHash] | None = None,
        *,
        after: ObservationId | None = None,
        limit: int = 10_000,
    ) -> list[Observed]:
        """Return the observations under a policy, in some object versions or in all, by id, beginning after one.

        `BatchTooLarge` for more than 10,000 object versions; `limit` is at least 1.
        """
        ...

    def coverage(self, tenant: TenantId, policy: PolicyHash) -> Coverage:
        """Return how completely the policy's objects were scanned; zeros when there are none."""
        ...

    def findings_of_secret(self, tenant: TenantId, secret: SecretHash) -> list[FindingRecord]:
        """Return the findings of a secret, by id."""
        ...

    def policy_diff(self, tenant: TenantId, old: PolicyHash, new: PolicyHash) -> PolicyDiff:
        """Return what two policies found in the object versions that were scanned under both; ids sorted."""
        ...

    def known_at(self, tenant: TenantId, policy: PolicyHash, at_ns: int) -> Known:
        """Return the rows committed up to a time, inclusive."""
        ...


def check_limit(limit: int) -> None:
    """Reject a limit below 1."""
    if limit < 1:
        raise InvalidInput(f"a limit is at least 1, not {limit}")


def check_objects(ovids: Sequence[OvidHash] | None) -> None:
    """Reject a lookup of more object versions than a batch has rows."""
    if ovids is not None and len(ovids) > BATCH_ROWS_MAX:
        raise BatchTooLarge(len(ovids), what="object versions")
