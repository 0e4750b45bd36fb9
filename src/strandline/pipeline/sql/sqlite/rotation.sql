-- name: count_findings
SELECT count(*) FROM findings WHERE tenant = :tenant

-- name: list_findings
SELECT finding_id FROM findings WHERE tenant = :tenant AND finding_id > :after ORDER BY finding_id LIMIT :limit

-- name: strays
SELECT finding_id FROM findings WHERE tenant = :tenant AND committed_ns >= :begun_ns ORDER BY finding_id LIMIT :limit

-- name: findings
SELECT finding_id, item, rule, secret, committed_ns FROM findings WHERE tenant = :tenant AND finding_id IN carray(:ids)

-- name: add_finding
INSERT INTO findings (tenant, finding_id, item, rule, secret, committed_ns)
VALUES (:tenant, :new, :item, :rule, :secret, :committed_ns)
ON CONFLICT DO NOTHING

-- name: occurrences
SELECT occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns FROM occurrences
WHERE tenant = :tenant AND finding_id IN carray(:ids)

-- name: add_occurrence
INSERT INTO occurrences (tenant, occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns)
VALUES (:tenant, :new, :finding, :version, :offset, :length, :committed_ns)
ON CONFLICT DO NOTHING

-- name: observations
SELECT observation_id, occurrence_id, policy FROM observations WHERE tenant = :tenant AND occurrence_id IN carray(:ids)

-- name: move_observation
UPDATE observations SET observation_id = :new, occurrence_id = :occurrence
WHERE tenant = :tenant AND observation_id = :old
    AND NOT EXISTS (SELECT 1 FROM observations AS there WHERE there.tenant = :tenant AND there.observation_id = :new)

-- name: delete_observations
DELETE FROM observations WHERE tenant = :tenant AND occurrence_id IN carray(:ids)

-- name: delete_occurrences
DELETE FROM occurrences WHERE tenant = :tenant AND finding_id IN carray(:ids)

-- name: decisions
SELECT finding_id, state, when_ns, who, why, committed_ns FROM triage_events
WHERE tenant = :tenant AND finding_id IN carray(:ids)

-- name: add_decision
INSERT INTO triage_events (tenant, finding_id, event_id, state, when_ns, who, why, committed_ns)
VALUES (:tenant, :finding, :event, :state, :when_ns, :who, :why, :committed_ns)
ON CONFLICT DO NOTHING

-- name: delete_decisions
DELETE FROM triage_events WHERE tenant = :tenant AND finding_id IN carray(:ids)

-- name: delete_findings
DELETE FROM findings WHERE tenant = :tenant AND finding_id IN carray(:ids)

-- name: get_state
SELECT value FROM scanner_state WHERE tenant = :tenant AND key = :key

-- name: lock_state
SELECT value FROM scanner_state WHERE tenant = :tenant AND key = :key

-- name: put_state
INSERT INTO scanner_state (tenant, key, value) VALUES (:tenant, :key, :value)
ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value

-- name: delete_state
DELETE FROM scanner_state WHERE tenant = :tenant AND key = :key

-- name: pages
SELECT key, value FROM scanner_state WHERE tenant = :tenant AND key >= :first AND key < :end ORDER BY key LIMIT :limit
