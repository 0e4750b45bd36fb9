-- name: create_history
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    checksum   BLOB    NOT NULL CHECK (length(checksum) = 32),
    applied_ns INTEGER NOT NULL
) STRICT

-- name: history
SELECT version, name, checksum, applied_ns FROM schema_migrations ORDER BY version

-- name: add_to_history
INSERT INTO schema_migrations (version, name, checksum, applied_ns) VALUES (?, ?, ?, ?)
