-- name: write_findings
INSERT INTO findings (tenant, finding_id, item, rule, secret, committed_ns)
SELECT %(tenant)s, finding_id, item, rule, secret, %(now_ns)s
FROM unnest(%(finding_id)s::bytea[], %(item)s::bytea[], %(rule)s::bytea[], %(secret)s::bytea[])
    AS new (finding_id, item, rule, secret)
ON CONFLICT DO NOTHING

-- name: matching_findings
SELECT count(*)
FROM unnest(%(finding_id)s::bytea[], %(item)s::bytea[], %(rule)s::bytea[], %(secret)s::bytea[])
    AS new (finding_id, item, rule, secret)
CROSS JOIN LATERAL (
    SELECT FROM findings AS old
    WHERE old.tenant = %(tenant)s AND old.finding_id = new.finding_id
        AND (old.item, old.rule, old.secret) = (new.item, new.rule, new.secret)
    OFFSET 0 -- a lookup for each row, however large the table is
) AS same

-- name: count_findings
SELECT count(*) FROM findings WHERE tenant = %(tenant)s AND finding_id = ANY (%(ids)s::bytea[])

-- name: write_occurrences
INSERT INTO occurrences (tenant, occurrence_id, finding_id, version, byte_offset, byte_length, committed_ns)
SELECT %(tenant)s, occurrence_id, finding_id, version, byte_offset, byte_length, %(now_ns)s
FROM unnest(
    %(occurrence_id)s::bytea[], %(finding_id)s::bytea[], %(version)s::bytea[],
    %(byte_offset)s::int8[], %(byte_length)s::int8[]
) AS new (occurrence_id, finding_id, version, byte_offset, byte_length)
ON CONFLICT DO NOTHING

-- name: matching_occurrences
SELECT count(*)
FROM unnest(
    %(occurrence_id)s::bytea[], %(finding_id)s::bytea[], %(version)s::bytea[],
    %(byte_offset)s::int8[], %(byte_length)s::int8[]
) AS new (occurrence_id, finding_id, version, byte_offset, byte_length)
CROSS JOIN LATERAL (
    SELECT FROM occurrences AS old
    WHERE old.tenant = %(tenant)s AND old.occurrence_id = new.occurrence_id
        AND (old.finding_id, old.version, old.byte_offset, old.byte_length)
            = (new.finding_id, new.version, new.byte_offset, new.byte_length)
    OFFSET 0 -- a lookup for each row, however large the table is
) AS same

-- name: count_occurrences
SELECT count(*) FROM occurrences WHERE tenant = %(tenant)s AND occurrence_id = ANY (%(ids)s::bytea[])

-- name: write_observations
INSERT INTO observations AS old (
    tenant, observation_id, occurrence_id, policy, ovid, run_id, shard_id, fence, seen_at,
    location_seen_at, location_display, location_url, committed_ns
)
SELECT
    %(tenant)s, observation_id, occurrence_id, %(policy)s, ovid, %(run_id)s, %(shard_id)s, %(fence)s, seen_at,
    location_seen_at, location_display, location_url, %(now_ns)s
FROM unnest(
    %(observation_id)s::bytea[], %(occurrence_id)s::bytea[], %(ovid)s::bytea[], %(seen_at)s::int8[],
    %(location_seen_at)s::int8[], %(location_display)s::text[], %(location_url)s::text[]
) AS new (observation_id, occurrence_id, ovid, seen_at, location_seen_at, location_display, location_url)
ON CONFLICT (tenant, observation_id) DO UPDATE SET
    (run_id, shard_id, fence, seen_at) = (
        SELECT
            CASE WHEN takes_new THEN excluded.run_id ELSE old.run_id END,
            CASE WHEN takes_new THEN excluded.shard_id ELSE old.shard_id END,
            CASE WHEN takes_new THEN excluded.fence ELSE old.fence END,
            CASE WHEN takes_new THEN excluded.seen_at ELSE old.seen_at END
        FROM (
            SELECT (excluded.seen_at, excluded.fence, excluded.run_id, excluded.shard_id)
                 > (old.seen_at, old.fence, old.run_id, old.shard_id)
        ) AS choice (takes_new)
    ),
    (location_seen_at, location_display, location_url) = (
        SELECT
            CASE WHEN takes_new THEN excluded.location_seen_at ELSE old.location_seen_at END,
            CASE WHEN takes_new THEN excluded.location_display ELSE old.location_display END,
            CASE WHEN takes_new THEN excluded.location_url ELSE old.location_url END
        FROM (
            SELECT (coalesce(excluded.location_seen_at, -1), coalesce(excluded.location_display, ''),
                    coalesce(excluded.location_url, ''))
                 > (coalesce(old.location_seen_at, -1), coalesce(old.location_display, ''),
                    coalesce(old.location_url, ''))
        ) AS choice (takes_new)
    )
-- A row that is not about the same thing is left alone, and the count tells.
WHERE (old.occurrence_id, old.policy, old.ovid) = (excluded.occurrence_id, excluded.policy, excluded.ovid)
