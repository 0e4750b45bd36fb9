-- name: load_run
SELECT record, version FROM runs WHERE tenant = ? AND run_id = ?

-- name: load_shard
SELECT record, version FROM shards WHERE tenant = ? AND run_id = ? AND shard_id = ?

-- name: run_version
SELECT version FROM runs WHERE tenant = ? AND run_id = ?

-- name: add_run
INSERT INTO runs (tenant, run_id, status, version, record) VALUES (:tenant, :run, :status, 1, :record)
ON CONFLICT DO NOTHING

-- name: change_run
UPDATE runs SET status = :status, version = version + 1, record = :record
WHERE tenant = :tenant AND run_id = :run AND version = :version

-- name: add_shard
INSERT INTO shards (tenant, run_id, shard_id, status, fence, deadline, version, record)
VALUES (:tenant, :run, :shard, :status, :fence, :deadline, 1, :record)
ON CONFLICT DO NOTHING

-- name: change_shard
UPDATE shards SET status = :status, fence = :fence, deadline = :deadline, version = version + 1, record = :record
WHERE tenant = :tenant AND run_id = :run AND shard_id = :shard AND version = :version

-- name: claimable
SELECT shard_id, deadline FROM shards
WHERE tenant = ? AND run_id = ? AND status = 0
ORDER BY deadline, shard_id -- NULL, which is no lease, comes first
LIMIT ?

-- name: progress
SELECT status, count(*) FROM shards WHERE tenant = ? AND run_id = ? GROUP BY status

-- name: list_shards
SELECT record FROM shards
WHERE tenant = :tenant AND run_id = :run AND shard_id >= :first AND shard_id IS NOT :after
ORDER BY shard_id LIMIT :most

-- name: list_runs
SELECT record FROM runs
WHERE tenant = :tenant AND run_id >= :first AND run_id IS NOT :after
ORDER BY run_id LIMIT :most
