-- name: get
SELECT key, value FROM scanner_state WHERE tenant = :tenant AND key IN carray(:keys)

-- name: put
INSERT INTO scanner_state (tenant, key, value) VALUES (?, ?, ?)
ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value

-- name: delete
DELETE FROM scanner_state WHERE tenant = :tenant AND key IN carray(:keys)
