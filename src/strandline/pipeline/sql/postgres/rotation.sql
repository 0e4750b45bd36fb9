-- name: count_findings
SELECT count(*) FROM findings WHERE tenant = %(tenant)s

-- name: list_findings
SELECT finding_id FROM findings WHERE tenant = %(tenant)s AND finding_id > %(after)s ORDER BY finding_id LIMIT %(limit)s

-- name: strays
SELECT finding_id FROM findings WHERE tenant = %(tenant)s AND committed_ns >= %(begun_ns)s ORDER BY finding_id LIMIT %(limit)s

-- name: findings
SELECT finding_id, item, rule, secret, committed_ns FROM findings WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])

-- name: add_finding
INSERT INTO findings (tenant, finding_id, item, rule, secret, committed_ns)
VALUES (%(tenant)s, %(new)s, %(item)s, %(rule)s, %(secret)s, %(committed_ns)s)
ON CONFLICT DO NOTHING

-- name: occurrences
SELECT occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns FROM occurrences
WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])

-- name: add_occurrence
INSERT INTO occurrences (tenant, occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns)
VALUES (%(tenant)s, %(new)s, %(finding)s, %(version)s, %(offset)s, %(length)s, %(committed_ns)s)
ON CONFLICT DO NOTHING

-- name: observations
SELECT observation_id, occurrence_id, policy FROM observations WHERE tenant = %(tenant)s AND occurrence_id = ANY (%(ids)s::bytea[])

-- name: move_observation
UPDATE observations SET observation_id = %(new)s, occurrence_id = %(occurrence)s
WHERE tenant = %(tenant)s AND observation_id = %(old)s
    AND NOT EXISTS (SELECT 1 FROM observations AS there WHERE there.tenant = %(tenant)s AND there.observation_id = %(new)s)

-- name: delete_observations
DELETE FROM observations WHERE tenant = %(tenant)s AND occurrence_id = ANY (%(ids)s::bytea[])

-- name: delete_occurrences
DELETE FROM occurrences WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])

-- name: decisions
SELECT finding_id, state, when_ns, who, why, committed_ns FROM triage_events
WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])

-- name: add_decision
INSERT INTO triage_events (tenant, finding_id, event_id, state, when_ns, who, why, committed_ns)
VALUES (%(tenant)s, %(finding)s, %(event)s, %(state)s, %(when_ns)s, %(who)s, %(why)s, %(committed_ns)s)
ON CONFLICT DO NOTHING

-- name: delete_decisions
DELETE FROM triage_events WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])

-- name: delete_findings
DELETE FROM findings WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])

-- name: get_state
SELECT value FROM scanner_state WHERE tenant = %(tenant)s AND key = %(key)s

-- name: lock_state
SELECT value FROM scanner_state WHERE tenant = %(tenant)s AND key = %(key)s FOR UPDATE

-- name: put_state
INSERT INTO scanner_state (tenant, key, value) VALUES (%(tenant)s, %(key)s, %(value)s)
ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value

-- name: delete_state
DELETE FROM scanner_state WHERE tenant = %(tenant)s AND key = %(key)s

-- name: pages
SELECT key, value FROM scanner_state WHERE tenant = %(tenant)s AND key >= %(first)s AND key < %(end)s ORDER BY key LIMIT %(limit)s
