-- name: load_run
SELECT record, version FROM runs WHERE tenant = %s AND run_id = %s

-- name: load_shards
SELECT wanted.position, shards.record, shards.version
FROM unnest(%s::bytea[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS wanted (tenant, run_id, shard_id, position)
JOIN shards USING (tenant, run_id, shard_id)

-- name: add_run
INSERT INTO runs (tenant, run_id, status, version, record)
VALUES (%(tenant)s, %(run)s, %(status)s, 1, %(record)s)
ON CONFLICT DO NOTHING

-- name: change_run
UPDATE runs SET status = %(status)s, version = version + 1, record = %(record)s
WHERE tenant = %(tenant)s AND run_id = %(run)s AND version = %(version)s

-- name: hold_run
-- Keeps a run as it was read until the transaction ends.
SELECT FROM runs WHERE tenant = %s AND run_id = %s AND version = %s FOR SHARE

-- name: add_shards
INSERT INTO shards (tenant, run_id, shard_id, status, fence, deadline, version, record)
SELECT tenant, run_id, shard_id, status, fence, deadline, 1, record
FROM unnest(%s::bytea[], %s::bigint[], %s::bigint[], %s::smallint[], %s::bigint[], %s::bigint[], %s::bytea[])
    AS added (tenant, run_id, shard_id, status, fence, deadline, record)
ON CONFLICT DO NOTHING

-- name: change_shard
UPDATE shards SET status = %(status)s, fence = %(fence)s, deadline = %(deadline)s, version = version + 1,
    record = %(record)s
WHERE tenant = %(tenant)s AND run_id = %(run)s AND shard_id = %(shard)s AND version = %(version)s

-- name: take_shard
-- A shard whose row is locked is skipped: a claim takes another shard rather than wait.
UPDATE shards SET status = %(status)s, fence = %(fence)s, deadline = %(deadline)s, version = version + 1,
    record = %(record)s
WHERE (tenant, run_id, shard_id) IN (
    SELECT tenant, run_id, shard_id FROM shards
    WHERE tenant = %(tenant)s AND run_id = %(run)s AND shard_id = %(shard)s AND version = %(version)s
    FOR UPDATE SKIP LOCKED)

-- name: claimable
SELECT shard_id, deadline FROM shards WHERE tenant = %s AND run_id = %s AND status = 0
ORDER BY deadline NULLS FIRST, shard_id LIMIT %s

-- name: progress
SELECT status, count(*) FROM shards WHERE tenant = %s AND run_id = %s GROUP BY status

-- name: list_shards
SELECT record FROM shards WHERE tenant = %s AND run_id = %s AND shard_id >= %s ORDER BY shard_id LIMIT %s

-- name: list_runs
SELECT record FROM runs WHERE tenant = %s AND run_id >= %s ORDER BY run_id LIMIT %s
