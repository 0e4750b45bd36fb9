-- name: policies
SELECT p.tenant, p.policy, p.frame_digest, r.name, r.rule
FROM policies AS p
LEFT JOIN policy_rules AS r ON r.tenant = p.tenant AND r.policy = p.policy
ORDER BY p.tenant, p.policy, r.name

-- name: findings
SELECT tenant, finding_id, item, rule, secret, committed_ns
FROM findings

-- name: occurrences
SELECT tenant, occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns
FROM occurrences

-- name: observations
SELECT
    tenant, observation_id, occurrence_id, policy, ovid, run_id, shard_id, fence, seen_at,
    location_seen_at, location_display, location_url, committed_ns
FROM observations

-- name: ledger
SELECT
    tenant, policy, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code,
    retryable_ns, permanent_ns, skipped_ns, partial_ns, clean_ns, with_findings_ns
FROM ledger

-- name: triage
SELECT tenant, finding_id, state, when_ns, who, why, committed_ns
FROM triage_events

-- name: state
SELECT tenant, key, value
FROM scanner_state
ORDER BY tenant, key

-- name: runs
SELECT record
FROM runs

-- name: shards
SELECT record
FROM shards
