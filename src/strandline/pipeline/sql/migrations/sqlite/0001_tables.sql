-- What was done and found, what people decided, and what scanners keep. Ids are 32 bytes; run and shard ids are the
-- signed form of their bits. A column named …_ns is a real time, set when the fact was first committed; started_at,
-- finished_at and seen_at are logical and say nothing across leases.

-- Keys are digests, so a batch of new rows touches nearly every page of their index, which is therefore kept small: it
-- names tenant and policy by a number, and the rows stand elsewhere, in the order in which they came.
CREATE TABLE ledger_scopes (
    scope  INTEGER NOT NULL PRIMARY KEY,
    tenant BLOB    NOT NULL CHECK (length(tenant) = 32),
    policy BLOB    NOT NULL CHECK (length(policy) = 32),
    UNIQUE (tenant, policy)
) STRICT;

CREATE TABLE ledger_entries (
    scope            INTEGER NOT NULL,
    ovid             BLOB    NOT NULL CHECK (length(ovid) = 32),
    weak             INTEGER NOT NULL,
    status           INTEGER NOT NULL CHECK (status IN (1, 2, 3, 5, 10, 11)),
    bytes_seen       INTEGER NOT NULL,
    findings_count   INTEGER NOT NULL,
    members_skipped  INTEGER NOT NULL,
    decodes_skipped  INTEGER NOT NULL,
    findings_dropped INTEGER NOT NULL,
    run_id           INTEGER NOT NULL,
    shard_id         INTEGER NOT NULL,
    fence            INTEGER NOT NULL,
    started_at       INTEGER NOT NULL,
    finished_at      INTEGER NOT NULL,
    error_code       TEXT,
    retryable_ns     INTEGER, -- when the row first was in each status
    permanent_ns     INTEGER,
    skipped_ns       INTEGER,
    partial_ns       INTEGER,
    clean_ns         INTEGER,
    with_findings_ns INTEGER,
    UNIQUE (scope, ovid),
    CHECK ((status >= 5) = (error_code IS NULL))
) STRICT;

CREATE VIEW ledger AS
SELECT tenant, policy, ledger_entries.* FROM ledger_entries JOIN ledger_scopes USING (scope);

CREATE TABLE findings (
    tenant       BLOB    NOT NULL CHECK (length(tenant) = 32),
    finding_id   BLOB    NOT NULL CHECK (length(finding_id) = 32),
    item         BLOB    NOT NULL CHECK (length(item) = 32),
    rule         BLOB    NOT NULL CHECK (length(rule) = 32),
    secret       BLOB    NOT NULL CHECK (length(secret) = 32),
    committed_ns INTEGER NOT NULL,
    PRIMARY KEY (tenant, finding_id),
    UNIQUE (tenant, secret, rule, item)
) STRICT;

CREATE TABLE occurrences (
    tenant        BLOB    NOT NULL,
    occurrence_id BLOB    NOT NULL CHECK (length(occurrence_id) = 32),
    finding_id    BLOB    NOT NULL,
    version       BLOB    NOT NULL CHECK (length(version) = 32),
    byte_offset   INTEGER NOT NULL CHECK (byte_offset >= 0),
    byte_length   INTEGER NOT NULL CHECK (byte_length > 0),
    committed_ns  INTEGER NOT NULL,
    PRIMARY KEY (tenant, occurrence_id),
    UNIQUE (tenant, finding_id, version, byte_offset, byte_length),
    FOREIGN KEY (tenant, finding_id) REFERENCES findings (tenant, finding_id)
) STRICT;

CREATE TABLE observations (
    tenant           BLOB    NOT NULL,
    observation_id   BLOB    NOT NULL CHECK (length(observation_id) = 32),
    occurrence_id    BLOB    NOT NULL,
    policy           BLOB    NOT NULL CHECK (length(policy) = 32),
    ovid             BLOB    NOT NULL CHECK (length(ovid) = 32),
    run_id           INTEGER NOT NULL,
    shard_id         INTEGER NOT NULL,
    fence            INTEGER NOT NULL,
    seen_at          INTEGER NOT NULL,
    location_seen_at INTEGER,
    location_display TEXT,
    location_url     TEXT,
    committed_ns     INTEGER NOT NULL,
    PRIMARY KEY (tenant, observation_id),
    FOREIGN KEY (tenant, occurrence_id) REFERENCES occurrences (tenant, occurrence_id)
) STRICT;

CREATE INDEX observations_by_occurrence ON observations (tenant, occurrence_id);
CREATE INDEX observations_by_policy ON observations (tenant, policy, committed_ns);

CREATE TABLE triage_events (
    tenant       BLOB    NOT NULL,
    finding_id   BLOB    NOT NULL,
    event_id     BLOB    NOT NULL CHECK (length(event_id) = 32),
    state        INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),
    when_ns      INTEGER NOT NULL,
    who          TEXT    NOT NULL,
    why          TEXT    NOT NULL,
    committed_ns INTEGER NOT NULL,
    PRIMARY KEY (tenant, finding_id, event_id),
    FOREIGN KEY (tenant, finding_id) REFERENCES findings (tenant, finding_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE policies (
    tenant       BLOB    NOT NULL CHECK (length(tenant) = 32),
    policy       BLOB    NOT NULL CHECK (length(policy) = 32),
    frame_digest BLOB    NOT NULL CHECK (length(frame_digest) = 32),
    committed_ns INTEGER NOT NULL,
    PRIMARY KEY (tenant, policy)
) STRICT, WITHOUT ROWID;

CREATE TABLE policy_rules (
    tenant BLOB NOT NULL,
    policy BLOB NOT NULL,
    name   TEXT NOT NULL,
    rule   BLOB NOT NULL CHECK (length(rule) = 32),
    PRIMARY KEY (tenant, policy, name),
    FOREIGN KEY (tenant, policy) REFERENCES policies (tenant, policy)
) STRICT, WITHOUT ROWID;

CREATE TABLE scanner_state (
    tenant BLOB NOT NULL CHECK (length(tenant) = 32),
    key    BLOB NOT NULL CHECK (length(key) BETWEEN 1 AND 2048),
    value  BLOB NOT NULL CHECK (length(value) <= 16777216),
    PRIMARY KEY (tenant, key)
) STRICT;
