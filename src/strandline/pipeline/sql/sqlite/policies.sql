-- name: insert
INSERT INTO policies (tenant, policy, frame_digest, committed_ns) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: insert_rule
INSERT INTO policy_rules (tenant, policy, name, rule) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: get
SELECT frame_digest FROM policies WHERE tenant = :tenant AND policy = :policy

-- name: rules
SELECT name, rule FROM policy_rules WHERE tenant = :tenant AND policy = :policy ORDER BY name
