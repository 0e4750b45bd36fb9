-- name: fence
SELECT fence FROM shards WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND shard_id = %(shard_id)s FOR SHARE

-- name: key_check
SELECT value FROM scanner_state WHERE tenant = %(tenant)s AND key = %(key)s FOR SHARE
