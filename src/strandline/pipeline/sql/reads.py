"""Queries over the tables; each is one statement of `reads.sql`, or two in one transaction.

Invariants: every statement names the tenant; orders are total, and the same in both dialects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.pipeline.findings import FindingRecord, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import FindingId, ObservationId, OvidHash, PolicyHash, SecretHash, TenantId
from strandline.pipeline.ledger import I64_MAX, I64_MIN
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
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.ledger import read_status
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.triage import TriageEvent, TriageState, order

_BEFORE_ALL = b""


class SqlReads:
    """Queries about one tenant's results, in SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = statements(database.dialect, "reads")

    def counts_by_policy(self, tenant: TenantId) -> list[PolicyCounts]:
        """Return counts of findings for each policy, by policy."""
        return [PolicyCounts._make(row) for row in self._rows("counts_by_policy", {"tenant": tenant})]

    def needing_triage(self, tenant: TenantId, limit: int = 100) -> list[PendingFinding]:
        """Return findings whose state is open, last committed first, then by id."""
        check_limit(limit)
        rows = self._rows("needing_triage", {"tenant": tenant, "limit": min(limit, I64_MAX)})
        return [_pending(tenant, row) for row in rows]

    def history(self, tenant: TenantId, finding: FindingId) -> FindingHistory | None:
        """Return a finding in full; None if the tenant has no such finding."""
        wanted = {"tenant": tenant, "finding": finding, "ids": self._database.array([finding])}
        decisions = statements(self._database.dialect, "triage")["of_findings"]

        def look(connection: AnyConnection) -> FindingHistory | None:
            row = connection.execute(self._sql["finding"], wanted).fetchone()
            if row is None:
                return None
            return FindingHistory(
                _finding(row[:5]),
                row[5],
                [_seen(tenant, finding, seen) for seen in connection.execute(self._sql["sightings"], wanted)],
                sorted((_decision(event) for event in connection.execute(decisions, wanted)), key=order),
            )

        return self._database.read(look)

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
        check_limit(limit)
        check_objects(ovids)
        if ovids is not None and not ovids:
            return []
        wanted = {
            "tenant": tenant,
            "policy": policy,
            "after": _BEFORE_ALL if after is None else after,
            "limit": min(limit, I64_MAX),
        }
        if ovids is not None:
            wanted["ovids"] = self._database.array(sorted(set(ovids)))
        statement = self._sql["observed" if ovids is None else "observed_in"]
        decisions = statements(self._database.dialect, "triage")["of_findings"]

        def look(connection: AnyConnection) -> list[Observed]:
            rows = connection.execute(statement, wanted).fetchall()
            ids = sorted({row[0] for row in rows})
            events = connection.execute(decisions, {"tenant": tenant, "ids": self._database.array(ids)}) if ids else ()
            decided = {event.finding_id: event for event in sorted(map(_decision, events), key=order)}
            return [_observed(tenant, policy, row, decided.get(row[0])) for row in rows]

        return self._database.read(look)

    def coverage(self, tenant: TenantId, policy: PolicyHash) -> Coverage:
        """Return how completely the policy's objects were scanned; zeros when there are none."""
        rows = self._rows("coverage", {"tenant": tenant, "policy": policy})
        where = self._database.describe()
        objects = {read_status(row[0], where): row[1] for row in rows}
        counts = [int(sum(column)) for column in zip(*(row[2:] for row in rows), strict=True)] or [0] * 10
        sums = [(high << 32) + low for high, low in zip(counts[2::2], counts[3::2], strict=True)]
        return Coverage(objects, counts[0], counts[1], *sums)

    def findings_of_secret(self, tenant: TenantId, secret: SecretHash) -> list[FindingRecord]:
        """Return the findings of a secret, by id."""
        return [_finding(row) for row in self._rows("findings_of_secret", {"tenant": tenant, "secret": bytes(secret)})]

    def policy_diff(self, tenant: TenantId, old: PolicyHash, new: PolicyHash) -> PolicyDiff:
        """Return what two policies found in the object versions that were scanned under both; ids sorted."""
        wanted = {"tenant": tenant, "old": old, "new": new}

        def look(connection: AnyConnection) -> PolicyDiff:
            (objects,) = connection.execute(self._sql["scanned_under_both"], wanted).fetchone()
            found = connection.execute(self._sql["found_under_either"], wanted).fetchall()
            return PolicyDiff(
                objects,
                [finding for finding, _, in_new in found if not in_new],
                [finding for finding, in_old, _ in found if not in_old],
                sum(1 for _, in_old, in_new in found if in_old and in_new),
            )

        return self._database.read(look)

    def known_at(self, tenant: TenantId, policy: PolicyHash, at_ns: int) -> Known:
        """Return the rows committed up to a time, inclusive."""
        wanted = {"tenant": tenant, "policy": policy, "at_ns": max(I64_MIN, min(at_ns, I64_MAX))}
        where = self._database.describe()

        def look(connection: AnyConnection) -> Known:
            statuses = connection.execute(self._sql["statuses_at"], wanted).fetchall()
            findings = connection.execute(self._sql["findings_at"], wanted).fetchall()
            return Known({read_status(rank, where): count for rank, count in statuses}, [row[0] for row in findings])

        return self._database.read(look)

    def _rows(self, statement: str, wanted: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        def look(connection: AnyConnection) -> list[tuple[Any, ...]]:
            rows: list[tuple[Any, ...]] = connection.execute(self._sql[statement], wanted).fetchall()
            return rows

        return self._database.read(look)


def _finding(row: tuple[Any, ...]) -> FindingRecord:
    return FindingRecord._make((*row[:4], SecretHash(row[4])))


def _decision(row: tuple[Any, ...]) -> TriageEvent:
    return TriageEvent._make((*row[:2], TriageState(row[2]), *row[3:]))


def _pending(tenant: TenantId, row: tuple[Any, ...]) -> PendingFinding:
    finding_id, item, rule, secret, occurrences, last_ns, location, *decision = row
    event = _decision((tenant, finding_id, *decision)) if decision[0] is not None else None
    return PendingFinding(_finding((tenant, finding_id, item, rule, secret)), occurrences, last_ns, location, event)


def _seen(tenant: TenantId, finding: FindingId, row: tuple[Any, ...]) -> Seen:
    occurrence_id, version, offset, length, occurrence_ns, observation_id, *rest, observation_ns = row
    occurrence = OccurrenceRecord(tenant, occurrence_id, finding, version, offset, length)
    observation = ObservationRecord._make((tenant, observation_id, occurrence_id, *rest))
    return Seen(occurrence, observation, occurrence_ns, observation_ns)


def _observed(tenant: TenantId, policy: PolicyHash, row: tuple[Any, ...], decision: TriageEvent | None) -> Observed:
    finding_id, item, rule, secret, first_ns, occurrence_id, version, offset, length, observation_id, *rest = row
    return Observed(
        _finding((tenant, finding_id, item, rule, secret)),
        OccurrenceRecord(tenant, occurrence_id, finding_id, version, offset, length),
        ObservationRecord._make((tenant, observation_id, occurrence_id, policy, *rest)),
        first_ns,
        decision,
    )
