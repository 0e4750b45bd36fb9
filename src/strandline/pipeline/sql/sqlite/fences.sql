-- name: fence
SELECT fence FROM shards WHERE tenant = :tenant AND run_id = :run_id AND shard_id = :shard_id
