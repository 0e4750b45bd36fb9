-- Runs and shards of coordination. `record` is the truth (strandline.pipeline.coordination.codec); the columns before it
-- repeat what is looked up: the index is what workers claim from, and `fence` is what guards writes of findings.

CREATE TABLE runs (
    tenant  BLOB    NOT NULL CHECK (length(tenant) = 32),
    run_id  INTEGER NOT NULL,
    status  INTEGER NOT NULL CHECK (status IN (0, 1, 2, 3, 4)),
    version INTEGER NOT NULL,
    record  BLOB    NOT NULL,
    PRIMARY KEY (tenant, run_id)
) STRICT;

CREATE TABLE shards (
    tenant   BLOB    NOT NULL CHECK (length(tenant) = 32),
    run_id   INTEGER NOT NULL,
    shard_id INTEGER NOT NULL,
    status   INTEGER NOT NULL CHECK (status IN (0, 1, 2, 3)),
    fence    INTEGER NOT NULL CHECK (fence >= 0),
    deadline INTEGER,
    version  INTEGER NOT NULL,
    record   BLOB    NOT NULL,
    PRIMARY KEY (tenant, run_id, shard_id)
) STRICT;

CREATE INDEX shards_to_claim ON shards (tenant, run_id, status, deadline, shard_id);
