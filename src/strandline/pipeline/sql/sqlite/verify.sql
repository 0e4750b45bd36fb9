-- name: ledger
SELECT
    tenant, policy, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code
FROM ledger

-- name: findings
SELECT tenant, finding_id, item, rule, secret
FROM findings

-- name: occurrences
SELECT tenant, occurrence_id, finding_id, version, byte_offset, byte_length
FROM occurrences

-- name: observations
SELECT tenant, observation_id, occurrence_id, policy, seen_at, location_seen_at
FROM observations

-- name: triage_events
SELECT event_id, tenant, finding_id, state, when_ns, who, why
FROM triage_events

-- name: policies
SELECT p.tenant, p.policy, p.frame_digest, r.rule
FROM policies AS p
LEFT JOIN policy_rules AS r ON r.tenant = p.tenant AND r.policy = p.policy
ORDER BY p.tenant, p.policy

-- name: runs
SELECT tenant, run_id, status, record
FROM runs

-- name: shards
SELECT tenant, run_id, shard_id, status, fence, deadline, record
FROM shards

-- name: lost_findings
SELECT count(*)
FROM ledger AS l
LEFT JOIN (
    SELECT o.tenant, o.policy, o.ovid, count(DISTINCT c.finding_id) AS found
    FROM observations AS o
    JOIN occurrences AS c ON c.tenant = o.tenant AND c.occurrence_id = o.occurrence_id
    GROUP BY o.tenant, o.policy, o.ovid
) AS f ON f.tenant = l.tenant AND f.policy = l.policy AND f.ovid = l.ovid
WHERE l.status = 11 AND coalesce(f.found, 0) < l.findings_count

-- name: orphan_occurrences
SELECT count(*)
FROM occurrences AS c
WHERE NOT EXISTS (SELECT 1 FROM findings AS f WHERE f.tenant = c.tenant AND f.finding_id = c.finding_id)

-- name: orphan_observations
SELECT count(*)
FROM observations AS o
WHERE NOT EXISTS (SELECT 1 FROM occurrences AS c WHERE c.tenant = o.tenant AND c.occurrence_id = o.occurrence_id)

-- name: orphan_decisions
SELECT count(*)
FROM triage_events AS e
WHERE NOT EXISTS (SELECT 1 FROM findings AS f WHERE f.tenant = e.tenant AND f.finding_id = e.finding_id)

-- name: orphan_shards
SELECT count(*)
FROM shards AS s
WHERE NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.tenant = s.tenant AND r.run_id = s.run_id)

-- name: storage
PRAGMA integrity_check(10)
