-- What was done and found, what people decided, and what scanners keep. Ids are 32 bytes; run and shard ids are the
-- signed form of their bits. A column named …_ns is a real time, set when the fact was first committed; started_at,
-- finished_at and seen_at are logical and say nothing across leases.

CREATE TABLE ledger_entries (
    tenant           BYTEA   NOT NULL CHECK (octet_length(tenant) = 32),
    policy           BYTEA   NOT NULL CHECK (octet_length(policy) = 32),
    ovid             BYTEA   NOT NULL CHECK (octet_length(ovid) = 32),
    weak             BOOLEAN NOT NULL,
    status           SMALLINT NOT NULL CHECK (status IN (1, 2, 3, 5, 10, 11)),
    bytes_seen       BIGINT  NOT NULL,
    findings_count   INTEGER NOT NULL,
    members_skipped  BIGINT  NOT NULL,
    decodes_skipped  BIGINT  NOT NULL,
    findings_dropped BIGINT  NOT NULL,
    run_id           BIGINT  NOT NULL,
    shard_id         BIGINT  NOT NULL,
    fence            BIGINT  NOT NULL,
    started_at       BIGINT  NOT NULL,
    finished_at      BIGINT  NOT NULL,
    error_code       TEXT COLLATE "C",
    retryable_ns     BIGINT, -- when the row first was in each status
    permanent_ns     BIGINT,
    skipped_ns       BIGINT,
    partial_ns       BIGINT,
    clean_ns         BIGINT,
    with_findings_ns BIGINT,
    PRIMARY KEY (tenant, policy, ovid),
    CHECK ((status >= 5) = (error_code IS NULL))
);

CREATE TABLE findings (
    tenant       BYTEA   NOT NULL CHECK (octet_length(tenant) = 32),
    finding_id   BYTEA   NOT NULL CHECK (octet_length(finding_id) = 32),
    item         BYTEA   NOT NULL CHECK (octet_length(item) = 32),
    rule         BYTEA   NOT NULL CHECK (octet_length(rule) = 32),
    secret       BYTEA   NOT NULL CHECK (octet_length(secret) = 32),
    committed_ns BIGINT  NOT NULL,
    PRIMARY KEY (tenant, finding_id),
    UNIQUE (tenant, secret, rule, item)
);

CREATE TABLE occurrences (
    tenant        BYTEA   NOT NULL,
    occurrence_id BYTEA   NOT NULL CHECK (octet_length(occurrence_id) = 32),
    finding_id    BYTEA   NOT NULL,
    version       BYTEA   NOT NULL CHECK (octet_length(version) = 32),
    byte_offset   BIGINT  NOT NULL CHECK (byte_offset >= 0),
    byte_length   BIGINT  NOT NULL CHECK (byte_length > 0),
    committed_ns  BIGINT  NOT NULL,
    PRIMARY KEY (tenant, occurrence_id),
    UNIQUE (tenant, finding_id, version, byte_offset, byte_length),
    FOREIGN KEY (tenant, finding_id) REFERENCES findings (tenant, finding_id)
);

CREATE TABLE observations (
    tenant           BYTEA   NOT NULL,
    observation_id   BYTEA   NOT NULL CHECK (octet_length(observation_id) = 32),
    occurrence_id    BYTEA   NOT NULL,
    policy           BYTEA   NOT NULL CHECK (octet_length(policy) = 32),
    ovid             BYTEA   NOT NULL CHECK (octet_length(ovid) = 32),
    run_id           BIGINT  NOT NULL,
    shard_id         BIGINT  NOT NULL,
    fence            BIGINT  NOT NULL,
    seen_at          BIGINT  NOT NULL,
    location_seen_at BIGINT,
    location_display TEXT COLLATE "C",
    location_url     TEXT COLLATE "C",
    committed_ns     BIGINT  NOT NULL,
    PRIMARY KEY (tenant, observation_id),
    FOREIGN KEY (tenant, occurrence_id) REFERENCES occurrences (tenant, occurrence_id)
);

CREATE INDEX observations_by_occurrence ON observations (tenant, occurrence_id);
CREATE INDEX observations_by_policy ON observations (tenant, policy, committed_ns);

CREATE TABLE triage_events (
    tenant       BYTEA   NOT NULL,
    finding_id   BYTEA   NOT NULL,
    event_id     BYTEA   NOT NULL CHECK (octet_length(event_id) = 32),
    state        SMALLINT NOT NULL CHECK (state BETWEEN 0 AND 3),
    when_ns      BIGINT  NOT NULL,
    who          TEXT    COLLATE "C" NOT NULL,
    why          TEXT    COLLATE "C" NOT NULL,
    committed_ns BIGINT  NOT NULL,
    PRIMARY KEY (tenant, finding_id, event_id),
    FOREIGN KEY (tenant, finding_id) REFERENCES findings (tenant, finding_id)
);

CREATE TABLE policies (
    tenant       BYTEA   NOT NULL CHECK (octet_length(tenant) = 32),
    policy       BYTEA   NOT NULL CHECK (octet_length(policy) = 32),
    frame_digest BYTEA   NOT NULL CHECK (octet_length(frame_digest) = 32),
    committed_ns BIGINT  NOT NULL,
    PRIMARY KEY (tenant, policy)
);

CREATE TABLE policy_rules (
    tenant BYTEA NOT NULL,
    policy BYTEA NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    rule   BYTEA NOT NULL CHECK (octet_length(rule) = 32),
    PRIMARY KEY (tenant, policy, name),
    FOREIGN KEY (tenant, policy) REFERENCES policies (tenant, policy)
);

CREATE TABLE scanner_state (
    tenant BYTEA NOT NULL CHECK (octet_length(tenant) = 32),
    key    BYTEA NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 2048),
    value  BYTEA NOT NULL CHECK (octet_length(value) <= 16777216),
    PRIMARY KEY (tenant, key)
);
