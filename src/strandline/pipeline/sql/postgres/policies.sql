-- name: insert
INSERT INTO policies (tenant, policy, frame_digest, committed_ns) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING

-- name: insert_rule
INSERT INTO policy_rules (tenant, policy, name, rule) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING

-- name: get
SELECT frame_digest FROM policies WHERE tenant = %(tenant)s AND policy = %(policy)s

-- name: rules
SELECT name, rule FROM policy_rules WHERE tenant = %(tenant)s AND policy = %(policy)s ORDER BY name
