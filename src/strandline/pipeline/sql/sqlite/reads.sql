-- name: counts_by_policy
SELECT observations.policy, count(DISTINCT finding_id), count(DISTINCT occurrence_id), count(*)
FROM observations JOIN occurrences USING (tenant, occurrence_id)
WHERE tenant = :tenant
GROUP BY observations.policy
ORDER BY observations.policy

-- name: needing_triage
WITH decisions AS (
    SELECT
        finding_id, state, when_ns, who, why,
        row_number() OVER (
            PARTITION BY finding_id ORDER BY when_ns DESC, state DESC, who DESC, why DESC
        ) AS place
    FROM triage_events
    WHERE tenant = :tenant
),
sightings AS (
    SELECT finding_id, count(DISTINCT occurrence_id) AS occurrences, max(observations.committed_ns) AS last_ns
    FROM observations JOIN occurrences USING (tenant, occurrence_id)
    WHERE tenant = :tenant
    GROUP BY finding_id
),
pending AS (
    SELECT
        finding_id, item, rule, secret, coalesce(occurrences, 0) AS occurrences,
        max(committed_ns, coalesce(last_ns, committed_ns)) AS last_ns,
        state, when_ns, who, why
    FROM findings
    LEFT JOIN sightings USING (finding_id)
    LEFT JOIN (SELECT * FROM decisions WHERE place = 1) AS decision USING (finding_id)
    WHERE tenant = :tenant AND coalesce(state, 0) = 0
    ORDER BY last_ns DESC, finding_id
    LIMIT :limit
)
SELECT
    finding_id, item, rule, secret, occurrences, last_ns,
    (
        SELECT location_display
        FROM observations JOIN occurrences USING (tenant, occurrence_id)
        WHERE tenant = :tenant AND occurrences.finding_id = pending.finding_id AND location_display IS NOT NULL
        ORDER BY observations.committed_ns DESC, observation_id DESC
        LIMIT 1
    ),
    state, when_ns, who, why
FROM pending
ORDER BY last_ns DESC, finding_id

-- name: finding
SELECT tenant, finding_id, item, rule, secret, committed_ns
FROM findings
WHERE tenant = :tenant AND finding_id = :finding

-- name: sightings
SELECT
    occurrence_id, version, byte_offset, byte_length, occurrences.committed_ns,
    observation_id, policy, ovid, run_id, shard_id, fence, seen_at, location_seen_at, location_display, location_url,
    observations.committed_ns
FROM occurrences JOIN observations USING (tenant, occurrence_id)
WHERE tenant = :tenant AND finding_id = :finding
ORDER BY observations.committed_ns, observation_id

-- name: observed
SELECT
    finding_id, item, rule, secret, findings.committed_ns,
    occurrence_id, version, byte_offset, byte_length,
    observation_id, ovid, run_id, shard_id, fence, seen_at, location_seen_at, location_display, location_url
FROM observations JOIN occurrences USING (tenant, occurrence_id) JOIN findings USING (tenant, finding_id)
WHERE tenant = :tenant AND policy = :policy AND observation_id > :after
ORDER BY observation_id
LIMIT :limit

-- name: observed_in
-- `CROSS JOIN` and `+` keep this order: each object version is looked up. The planner would pass over all observations.
SELECT
    finding_id, item, rule, secret, findings.committed_ns,
    occurrence_id, version, byte_offset, byte_length,
    observation_id, ovid, run_id, shard_id, fence, seen_at, location_seen_at, location_display, location_url
FROM carray(:ovids) AS wanted CROSS JOIN observations
    CROSS JOIN occurrences USING (tenant, occurrence_id) CROSS JOIN findings USING (tenant, finding_id)
WHERE observations.tenant = :tenant AND policy = :policy AND +observation_id > :after AND ovid = wanted.value
ORDER BY observation_id
LIMIT :limit

-- name: all_findings
-- `+tenant` reads each table from its beginning to its end: an index on the tenant has every row looked up.
SELECT finding_id, item, rule, secret, committed_ns FROM findings WHERE +tenant = :tenant

-- name: all_occurrences
SELECT occurrence_id, finding_id, byte_offset, byte_length FROM occurrences WHERE +tenant = :tenant

-- name: all_observations
SELECT occurrence_id, policy, ovid, location_url FROM observations WHERE +tenant = :tenant

-- name: first_by_path
-- A URL without an encoded character sorts as its path does, so the database can sort; '' is for the others, which come first.
SELECT
    occurrence_id,
    CASE
        WHEN location_url IS NULL OR instr(location_url, '%') > 0 OR instr(location_url, '#line=') = 0 THEN ''
        ELSE substr(location_url, instr(location_url, ':') + 1, instr(location_url, '#') - instr(location_url, ':') - 1)
    END AS path
FROM observations
WHERE +tenant = :tenant
ORDER BY path
LIMIT :limit

-- name: findings_of_occurrences
-- `CROSS JOIN` keeps this order: few ids, each looked up. The planner would pass over all rows of the tenant.
SELECT DISTINCT finding_id
FROM carray(:ids) AS wanted CROSS JOIN occurrences
WHERE tenant = :tenant AND occurrence_id = wanted.value

-- name: seen_of
SELECT finding_id, policy, ovid
FROM carray(:ids) AS wanted CROSS JOIN occurrences CROSS JOIN observations USING (tenant, occurrence_id)
WHERE occurrences.tenant = :tenant AND finding_id = wanted.value

-- name: coverage
SELECT
    status, count(*),
    count(CASE WHEN status >= 5 AND (members_skipped > 0 OR decodes_skipped > 0 OR findings_dropped > 0) THEN 1 END),
    count(CASE WHEN weak THEN 1 END),
    -- In two halves, because the sum of 64-bit numbers may need more.
    sum(bytes_seen >> 32), sum(bytes_seen & 4294967295),
    sum(members_skipped >> 32), sum(members_skipped & 4294967295),
    sum(decodes_skipped >> 32), sum(decodes_skipped & 4294967295),
    sum(findings_dropped >> 32), sum(findings_dropped & 4294967295)
FROM ledger
WHERE tenant = :tenant AND policy = :policy
GROUP BY status

-- name: findings_of_secret
SELECT tenant, finding_id, item, rule, secret
FROM findings
WHERE tenant = :tenant AND secret = :secret
ORDER BY finding_id

-- name: scanned_under_both
SELECT count(*)
FROM ledger AS old JOIN ledger AS new USING (ovid)
WHERE old.tenant = :tenant AND old.policy = :old AND old.status >= 5
    AND new.tenant = :tenant AND new.policy = :new AND new.status >= 5

-- name: found_under_either
SELECT finding_id, max(CASE WHEN observations.policy = :old THEN 1 ELSE 0 END),
    max(CASE WHEN observations.policy = :new THEN 1 ELSE 0 END)
FROM observations JOIN occurrences USING (tenant, occurrence_id)
WHERE tenant = :tenant AND observations.policy IN (:old, :new) AND ovid IN (
    SELECT ovid
    FROM ledger AS old JOIN ledger AS new USING (ovid)
    WHERE old.tenant = :tenant AND old.policy = :old AND old.status >= 5
        AND new.tenant = :tenant AND new.policy = :new AND new.status >= 5
)
GROUP BY finding_id
ORDER BY finding_id

-- name: statuses_at
SELECT status, count(*)
FROM (
    SELECT
        CASE
            WHEN with_findings_ns <= :at_ns THEN 11
            WHEN clean_ns <= :at_ns THEN 10
            WHEN partial_ns <= :at_ns THEN 5
            WHEN skipped_ns <= :at_ns THEN 3
            WHEN permanent_ns <= :at_ns THEN 2
            WHEN retryable_ns <= :at_ns THEN 1
        END AS status
    FROM ledger
    WHERE tenant = :tenant AND policy = :policy
) AS entries
WHERE status IS NOT NULL
GROUP BY status

-- name: findings_at
SELECT DISTINCT finding_id
FROM observations JOIN occurrences USING (tenant, occurrence_id)
WHERE tenant = :tenant AND observations.policy = :policy AND observations.committed_ns <= :at_ns
ORDER BY finding_id
