-- name: fence
SELECT fence FROM shards WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND shard_id = %(shard_id)s FOR SHARE
