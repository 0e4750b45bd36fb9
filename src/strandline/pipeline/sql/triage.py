"""Decisions about findings in the table `triage_events`: added under the digest of their content, never changed."""

from collections import defaultdict
from collections.abc import Sequence

from strandline.pipeline.errors import MissingParent
from strandline.pipeline.identity import FindingId, TenantId
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.triage import TriageEvent, TriageState, check_count, current, event_id, validate_all


class SqlTriage:
    """Decisions in SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record_triage(self, events: Sequence[TriageEvent]) -> None:
        """Store decisions, all or none, and return once they are durable; `MissingParent` for an unknown finding."""
        validate_all(events)
        if not events:
            return
        sql = statements(self._database.dialect, "triage")
        findings = {event.finding_id for event in events}

        def write(connection: AnyConnection) -> None:
            if self._count(connection, "findings", events[0].tenant, findings) != len(findings):
                raise MissingParent("decisions", "findings")
            now_ns = self._database.clock.now_ns()
            rows = sorted((*event[:2], event_id(event), *event[2:], now_ns) for event in events)
            connection.cursor().executemany(sql["insert"], rows)

        self._database.write(write)

    def triage_of(self, tenant: TenantId, findings: Sequence[FindingId]) -> list[TriageEvent | None]:
        """Return the current decision of each finding, in their order; None for a finding without a decision."""
        check_count(findings)
        decisions = self._database.read(lambda connection: self._decisions(connection, tenant, findings))
        return [current(decisions.get(finding, ())) for finding in findings]

    def _decisions(
        self, connection: AnyConnection, tenant: TenantId, findings: Sequence[FindingId]
    ) -> dict[FindingId, list[TriageEvent]]:
        found: dict[FindingId, list[TriageEvent]] = defaultdict(list)
        if findings:
            wanted = {"tenant": tenant, "ids": self._database.array(list(set(findings)))}
            rows = connection.execute(statements(self._database.dialect, "triage")["of_findings"], wanted)
            for event in rows:
                found[event[1]].append(TriageEvent._make((*event[:2], TriageState(event[2]), *event[3:])))
        return found

    def _count(self, connection: AnyConnection, layer: str, tenant: TenantId, ids: set[FindingId]) -> int:
        """Return how many of the ids are stored."""
        statement = statements(self._database.dialect, "findings")[f"count_{layer}"]
        row = connection.execute(statement, {"tenant": tenant, "ids": self._database.array(list(ids))}).fetchone()
        return int(row[0])
