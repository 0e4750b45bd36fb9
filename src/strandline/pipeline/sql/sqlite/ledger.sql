-- name: insert
INSERT INTO ledger_entries (
    scope, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code,
    retryable_ns, permanent_ns, skipped_ns, partial_ns, clean_ns, with_findings_ns
)
VALUES (
    ?17, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
    ?11, ?12, ?13, ?14, ?15, ?16,
    iif(?5 = 1, ?18, NULL), iif(?5 = 2, ?18, NULL), iif(?5 = 3, ?18, NULL),
    iif(?5 = 5, ?18, NULL), iif(?5 = 10, ?18, NULL), iif(?5 = 11, ?18, NULL)
)
ON CONFLICT DO NOTHING

-- name: insert_clean
-- Rows of clean items as one array, of which each has 32 bytes of a key, 20 digits of a number, and digits of a size.
INSERT INTO ledger_entries (
    scope, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, clean_ns
)
SELECT
    :scope, substr(value, 1, 32), 0, 10, CAST(substr(value, 53) AS INTEGER), 0, 0, 0, 0,
    :run_id, :shard_id, :fence,
    2 * CAST(substr(value, 33, 20) AS INTEGER), 2 * CAST(substr(value, 33, 20) AS INTEGER) + 1, :now_ns
FROM carray(:rows)
WHERE TRUE
ON CONFLICT DO NOTHING

-- name: upsert
INSERT INTO ledger_entries AS old (
    scope, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code,
    retryable_ns, permanent_ns, skipped_ns, partial_ns, clean_ns, with_findings_ns
)
VALUES (
    ?17, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
    ?11, ?12, ?13, ?14, ?15, ?16,
    iif(?5 = 1, ?18, NULL), iif(?5 = 2, ?18, NULL), iif(?5 = 3, ?18, NULL),
    iif(?5 = 5, ?18, NULL), iif(?5 = 10, ?18, NULL), iif(?5 = 11, ?18, NULL)
)
ON CONFLICT (scope, ovid) DO UPDATE SET
    status = max(old.status, excluded.status),
    bytes_seen = max(old.bytes_seen, excluded.bytes_seen),
    findings_count = CASE max(old.status, excluded.status)
        WHEN 5 THEN 0
        WHEN 10 THEN 0
        WHEN 11 THEN max(
            iif(old.status = 11, old.findings_count, 0), iif(excluded.status = 11, excluded.findings_count, 0)
        )
        ELSE max(old.findings_count, excluded.findings_count)
    END,
    -- The gaps of one row, as a unit: a row that was scanned comes before one that was not, then the fewest.
    (members_skipped, decodes_skipped, findings_dropped) = (
        SELECT
            iif(takes_new, excluded.members_skipped, old.members_skipped),
            iif(takes_new, excluded.decodes_skipped, old.decodes_skipped),
            iif(takes_new, excluded.findings_dropped, old.findings_dropped)
        FROM (
            SELECT (old.status >= 5, excluded.members_skipped, excluded.decodes_skipped, excluded.findings_dropped)
                 < (excluded.status >= 5, old.members_skipped, old.decodes_skipped, old.findings_dropped) AS takes_new
        )
    ),
    -- Run, shard, fence and times come from one row as a unit: the row of the highest status, of equals the one that finished last.
    (run_id, shard_id, fence, started_at, finished_at, error_code) = (
        SELECT
            iif(takes_new, excluded.run_id, old.run_id),
            iif(takes_new, excluded.shard_id, old.shard_id),
            iif(takes_new, excluded.fence, old.fence),
            iif(takes_new, excluded.started_at, old.started_at),
            iif(takes_new, excluded.finished_at, old.finished_at),
            iif(takes_new, excluded.error_code, old.error_code)
        FROM (
            SELECT (excluded.status, excluded.finished_at, excluded.started_at, excluded.fence,
                    excluded.run_id, excluded.shard_id, coalesce(excluded.error_code, ''))
                 > (old.status, old.finished_at, old.started_at, old.fence,
                    old.run_id, old.shard_id, coalesce(old.error_code, '')) AS takes_new
        )
    ),
    retryable_ns = coalesce(old.retryable_ns, excluded.retryable_ns),
    permanent_ns = coalesce(old.permanent_ns, excluded.permanent_ns),
    skipped_ns = coalesce(old.skipped_ns, excluded.skipped_ns),
    partial_ns = coalesce(old.partial_ns, excluded.partial_ns),
    clean_ns = coalesce(old.clean_ns, excluded.clean_ns),
    with_findings_ns = coalesce(old.with_findings_ns, excluded.with_findings_ns)
-- A row that is not about the same thing is left alone, and the count tells.
WHERE old.weak = excluded.weak

-- name: add_scope
INSERT INTO ledger_scopes (tenant, policy) VALUES (:tenant, :policy) ON CONFLICT DO NOTHING

-- name: scope
SELECT scope FROM ledger_scopes WHERE tenant = :tenant AND policy = :policy

-- name: get
SELECT
    ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code
FROM ledger
WHERE tenant = :tenant AND policy = :policy AND ovid IN carray(:keys)

-- name: get_columns
-- The left side of a left join is the outer loop, so that rows come in the order of the keys.
SELECT
    status, error_code, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence
FROM carray(:keys) AS wanted
LEFT JOIN ledger_entries ON scope = :scope AND ovid = wanted.value

-- name: done
SELECT ovid FROM ledger WHERE tenant = :tenant AND policy = :policy AND NOT weak AND status <> 1 ORDER BY ovid
