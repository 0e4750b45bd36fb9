-- name: count_ledger_entries
SELECT count(*) FROM ledger_entries

-- name: count_findings
SELECT count(*) FROM findings

-- name: count_occurrences
SELECT count(*) FROM occurrences

-- name: count_observations
SELECT count(*) FROM observations

-- name: count_triage_events
SELECT count(*) FROM triage_events

-- name: count_policies
SELECT count(*) FROM policies

-- name: count_scanner_state
SELECT count(*) FROM scanner_state

-- name: count_runs
SELECT count(*) FROM runs

-- name: count_shards
SELECT count(*) FROM shards

-- name: tenants
SELECT tenant FROM ledger_entries
UNION SELECT tenant FROM findings
UNION SELECT tenant FROM runs
ORDER BY tenant

-- name: policies
SELECT policy FROM ledger_entries WHERE tenant = %(tenant)s
UNION SELECT policy FROM observations WHERE tenant = %(tenant)s
UNION SELECT policy FROM policies WHERE tenant = %(tenant)s
ORDER BY policy
