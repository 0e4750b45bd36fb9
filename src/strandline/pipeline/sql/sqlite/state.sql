-- name: get
SELECT key, value FROM scanner_state WHERE tenant = :tenant AND key IN carray(:keys)

-- name: range
SELECT key, value FROM scanner_state WHERE tenant = :tenant AND key >= :first AND key < :end ORDER BY key LIMIT :limit

-- name: put
INSERT INTO scanner_state (tenant, key, value) VALUES (?, ?, ?)
ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value

-- name: put_first
INSERT INTO scanner_state (tenant, key, value) VALUES (:tenant, :key, :value) ON CONFLICT (tenant, key) DO NOTHING

-- name: delete
DELETE FROM scanner_state WHERE tenant = :tenant AND key IN carray(:keys)

-- name: raise_fence
INSERT INTO scanner_state (tenant, key, value) VALUES (:tenant, :key, :value)
ON CONFLICT (tenant, key) DO UPDATE SET value = max(scanner_state.value, excluded.value) RETURNING value
