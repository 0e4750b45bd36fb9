-- name: fence
SELECT fence FROM shards WHERE tenant = :tenant AND run_id = :run_id AND shard_id = :shard_id

-- name: key_check
SELECT value FROM scanner_state WHERE tenant = :tenant AND key = :key
