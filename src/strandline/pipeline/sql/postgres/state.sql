-- name: get
SELECT key, value FROM scanner_state WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bytea[])

-- name: range
SELECT key, value FROM scanner_state
WHERE tenant = %(tenant)s AND key >= %(first)s AND key < %(end)s ORDER BY key LIMIT %(limit)s

-- name: put
INSERT INTO scanner_state (tenant, key, value)
SELECT %(tenant)s, key, value FROM unnest(%(keys)s::bytea[], %(values)s::bytea[]) AS new (key, value)
ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value

-- name: put_first
INSERT INTO scanner_state (tenant, key, value) VALUES (%(tenant)s, %(key)s, %(value)s)
ON CONFLICT (tenant, key) DO NOTHING

-- name: delete
DELETE FROM scanner_state WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bytea[])

-- name: raise_fence
INSERT INTO scanner_state (tenant, key, value) VALUES (%(tenant)s, %(key)s, %(value)s)
ON CONFLICT (tenant, key) DO UPDATE SET value = greatest(scanner_state.value, excluded.value) RETURNING value
