-- name: count
SELECT count(*)
FROM ledger_entries
WHERE tenant = %(tenant)s AND policy = %(policy)s AND ovid = ANY (%(ovid)s::bytea[])

-- name: copy
COPY ledger_entries (
    tenant, policy, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code,
    retryable_ns, permanent_ns, skipped_ns, partial_ns, clean_ns, with_findings_ns
) FROM STDIN (FORMAT BINARY)

-- name: upsert
INSERT INTO ledger_entries AS old (
    tenant, policy, ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code,
    retryable_ns, permanent_ns, skipped_ns, partial_ns, clean_ns, with_findings_ns
)
SELECT
    %(tenant)s, %(policy)s, ovid, weak, status, bytes_seen, findings_count,
    members_skipped, decodes_skipped, findings_dropped,
    %(run_id)s, %(shard_id)s, %(fence)s, started_at, finished_at, error_code,
    CASE status WHEN 1 THEN now_ns END, CASE status WHEN 2 THEN now_ns END, CASE status WHEN 3 THEN now_ns END,
    CASE status WHEN 5 THEN now_ns END, CASE status WHEN 10 THEN now_ns END, CASE status WHEN 11 THEN now_ns END
FROM unnest(
    %(ovid)s::bytea[], %(weak)s::bool[], %(status)s::int2[], %(bytes_seen)s::int8[], %(findings_count)s::int4[],
    %(members_skipped)s::int8[], %(decodes_skipped)s::int8[], %(findings_dropped)s::int8[],
    %(started_at)s::int8[], %(finished_at)s::int8[], %(error_code)s::text[]
) AS new (
    ovid, weak, status, bytes_seen, findings_count,
    members_skipped, decodes_skipped, findings_dropped, started_at, finished_at, error_code
), (SELECT %(now_ns)s::int8) AS clock (now_ns)
ON CONFLICT (tenant, policy, ovid) DO UPDATE SET
    status = greatest(old.status, excluded.status),
    bytes_seen = greatest(old.bytes_seen, excluded.bytes_seen),
    findings_count = CASE greatest(old.status, excluded.status)
        WHEN 5 THEN 0
        WHEN 10 THEN 0
        WHEN 11 THEN greatest(
            CASE old.status WHEN 11 THEN old.findings_count END,
            CASE excluded.status WHEN 11 THEN excluded.findings_count END
        )
        ELSE greatest(old.findings_count, excluded.findings_count)
    END,
    -- The gaps of one row, as a unit: a row that was scanned comes before one that was not, then the fewest.
    (members_skipped, decodes_skipped, findings_dropped) = (
        SELECT
            CASE WHEN takes_new THEN excluded.members_skipped ELSE old.members_skipped END,
            CASE WHEN takes_new THEN excluded.decodes_skipped ELSE old.decodes_skipped END,
            CASE WHEN takes_new THEN excluded.findings_dropped ELSE old.findings_dropped END
        FROM (
            SELECT (old.status >= 5, excluded.members_skipped, excluded.decodes_skipped, excluded.findings_dropped)
                 < (excluded.status >= 5, old.members_skipped, old.decodes_skipped, old.findings_dropped)
        ) AS choice (takes_new)
    ),
    -- Run, shard, fence and times come from one row as a unit: the row of the highest status, of equals the one that finished last.
    (run_id, shard_id, fence, started_at, finished_at, error_code) = (
        SELECT
            CASE WHEN takes_new THEN excluded.run_id ELSE old.run_id END,
            CASE WHEN takes_new THEN excluded.shard_id ELSE old.shard_id END,
            CASE WHEN takes_new THEN excluded.fence ELSE old.fence END,
            CASE WHEN takes_new THEN excluded.started_at ELSE old.started_at END,
            CASE WHEN takes_new THEN excluded.finished_at ELSE old.finished_at END,
            CASE WHEN takes_new THEN excluded.error_code ELSE old.error_code END
        FROM (
            SELECT (excluded.status, excluded.finished_at, excluded.started_at, excluded.fence,
                    excluded.run_id, excluded.shard_id, coalesce(excluded.error_code, ''))
                 > (old.status, old.finished_at, old.started_at, old.fence,
                    old.run_id, old.shard_id, coalesce(old.error_code, ''))
        ) AS choice (takes_new)
    ),
    retryable_ns = coalesce(old.retryable_ns, excluded.retryable_ns),
    permanent_ns = coalesce(old.permanent_ns, excluded.permanent_ns),
    skipped_ns = coalesce(old.skipped_ns, excluded.skipped_ns),
    partial_ns = coalesce(old.partial_ns, excluded.partial_ns),
    clean_ns = coalesce(old.clean_ns, excluded.clean_ns),
    with_findings_ns = coalesce(old.with_findings_ns, excluded.with_findings_ns)
-- A row that is not about the same thing is left alone, and the count tells.
WHERE old.weak = excluded.weak

-- name: get
SELECT
    ovid, weak, status, bytes_seen, findings_count, members_skipped, decodes_skipped, findings_dropped,
    run_id, shard_id, fence, started_at, finished_at, error_code
FROM ledger_entries
WHERE tenant = %(tenant)s AND policy = %(policy)s AND ovid = ANY (%(keys)s::bytea[])

-- name: done
SELECT ovid FROM ledger_entries
WHERE tenant = %(tenant)s AND policy = %(policy)s AND NOT weak AND status <> 1
ORDER BY ovid
