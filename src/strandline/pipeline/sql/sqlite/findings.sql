-- name: write_findings
INSERT INTO findings (tenant, finding_id, item, rule, secret, committed_ns) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: matching_findings
SELECT 1 FROM findings WHERE tenant = ? AND finding_id = ? AND item = ? AND rule = ? AND secret = ?

-- name: count_findings
SELECT count(*) FROM findings WHERE tenant = :tenant AND finding_id IN carray(:ids)

-- name: write_occurrences
INSERT INTO occurrences (tenant, occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: matching_occurrences
SELECT 1 FROM occurrences
WHERE tenant = ? AND occurrence_id = ? AND finding_id = ? AND version = ? AND byte_offset = ? AND byte_length = ?

-- name: count_occurrences
SELECT count(*) FROM occurrences WHERE tenant = :tenant AND occurrence_id IN carray(:ids)

-- name: insert_observations
INSERT INTO observations (
    tenant, observation_id, occurrence_id, policy, ovid, run_id, shard_id, fence, seen_at,
    location_seen_at, location_display, location_url, committed_ns
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: write_observations
INSERT INTO observations AS old (
    tenant, observation_id, occurrence_id, policy, ovid, run_id, shard_id, fence, seen_at,
    location_seen_at, location_display, location_url, committed_ns
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, observation_id) DO UPDATE SET
    (run_id, shard_id, fence, seen_at) = (
        SELECT
            iif(takes_new, excluded.run_id, old.run_id),
            iif(takes_new, excluded.shard_id, old.shard_id),
            iif(takes_new, excluded.fence, old.fence),
            iif(takes_new, excluded.seen_at, old.seen_at)
        FROM (
            SELECT (excluded.seen_at, excluded.fence, excluded.run_id, excluded.shard_id)
                 > (old.seen_at, old.fence, old.run_id, old.shard_id) AS takes_new
        )
    ),
    (location_seen_at, location_display, location_url) = (
        SELECT
            iif(takes_new, excluded.location_seen_at, old.location_seen_at),
            iif(takes_new, excluded.location_display, old.location_display),
            iif(takes_new, excluded.location_url, old.location_url)
        FROM (
            SELECT (coalesce(excluded.location_seen_at, -1), coalesce(excluded.location_display, ''),
                    coalesce(excluded.location_url, ''))
                 > (coalesce(old.location_seen_at, -1), coalesce(old.location_display, ''),
                    coalesce(old.location_url, '')) AS takes_new
        )
    )
-- A row that is not about the same thing is left alone, and the count tells.
WHERE (old.occurrence_id, old.policy, old.ovid) = (excluded.occurrence_id, excluded.policy, excluded.ovid)
