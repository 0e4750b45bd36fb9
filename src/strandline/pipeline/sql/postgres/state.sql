-- name: get
SELECT key, value FROM scanner_state WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bytea[])

-- name: put
INSERT INTO scanner_state (tenant, key, value)
SELECT %(tenant)s, key, value FROM unnest(%(keys)s::bytea[], %(values)s::bytea[]) AS new (key, value)
ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value

-- name: delete
DELETE FROM scanner_state WHERE tenant = %(tenant)s AND key = ANY (%(keys)s::bytea[])
