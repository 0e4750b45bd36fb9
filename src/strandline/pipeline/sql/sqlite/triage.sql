-- name: insert
INSERT INTO triage_events (tenant, finding_id, event_id, state, when_ns, who, why, committed_ns)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: all_events
SELECT finding_id, state, when_ns, who, why FROM triage_events
WHERE tenant = :tenant

-- name: of_findings
SELECT tenant, finding_id, state, when_ns, who, why FROM triage_events
WHERE tenant = :tenant AND finding_id IN carray(:ids)
