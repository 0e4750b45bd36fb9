-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: create_history
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    checksum   BYTEA   NOT NULL CHECK (octet_length(checksum) = 32),
    applied_ns BIGINT  NOT NULL
)

-- name: history_exists
SELECT to_regclass('schema_migrations') IS NOT NULL

-- name: history
SELECT version, name, checksum, applied_ns FROM schema_migrations ORDER BY version

-- name: add_to_history
INSERT INTO schema_migrations (version, name, checksum, applied_ns) VALUES (%s, %s, %s, %s)

-- name: prepare_connection
SELECT set_config('search_path', %s, false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                                        ELSE current_setting('synchronous_commit') END, false)

-- name: wait_for_lock
SET LOCAL lock_timeout = 0;
SELECT pg_advisory_xact_lock({key});
SET LOCAL lock_timeout = '5s'
