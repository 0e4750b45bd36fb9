-- name: insert
INSERT INTO triage_events (tenant, finding_id, event_id, state, when_ns, who, why, committed_ns)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: all_events
SELECT finding_id, state, when_ns, who, why FROM triage_events
WHERE tenant = %(tenant)s

-- name: of_findings
SELECT tenant, finding_id, state, when_ns, who, why FROM triage_events
WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])
