-- Runs and shards. `record` is the truth, in the bytes of `strandline.pipeline.coordination.codec`; the other columns
-- repeat what queries need, and `version` counts the writes of a row. Data-plane writes look up `fence`.

CREATE TABLE runs (
    tenant  BYTEA    NOT NULL CHECK (octet_length(tenant) = 32),
    run_id  BIGINT   NOT NULL,
    status  SMALLINT NOT NULL CHECK (status BETWEEN 0 AND 4),
    version BIGINT   NOT NULL CHECK (version > 0),
    record  BYTEA    NOT NULL,
    PRIMARY KEY (tenant, run_id)
);

CREATE TABLE shards (
    tenant   BYTEA    NOT NULL CHECK (octet_length(tenant) = 32),
    run_id   BIGINT   NOT NULL,
    shard_id BIGINT   NOT NULL,
    status   SMALLINT NOT NULL CHECK (status BETWEEN 0 AND 3),
    fence    BIGINT   NOT NULL CHECK (fence >= 0),
    deadline BIGINT,
    version  BIGINT   NOT NULL CHECK (version > 0),
    record   BYTEA    NOT NULL,
    PRIMARY KEY (tenant, run_id, shard_id)
);

CREATE INDEX shards_to_claim ON shards (tenant, run_id, status, deadline NULLS FIRST, shard_id);
