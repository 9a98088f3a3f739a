-- +goose Up
CREATE TABLE control (
    kind       TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    value      TEXT   NOT NULL,
    version    INTEGER NOT NULL,
    changed_by TEXT   NOT NULL,
    changed_at INTEGER NOT NULL,
    reason     TEXT   NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (kind, subject)
);
CREATE TABLE control_head (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    hash    TEXT   NOT NULL
);
INSERT INTO control_head (id, version, hash) VALUES (1, 0, '');
CREATE TABLE control_audit (
    version    INTEGER PRIMARY KEY,
    changed_at INTEGER NOT NULL,
    changed_by TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    old_value  TEXT   NOT NULL,
    new_value  TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    expires_at INTEGER NOT NULL,
    prev_hash  TEXT   NOT NULL,
    hash       TEXT   NOT NULL
);
CREATE INDEX control_audit_subject ON control_audit (kind, subject, version);

-- +goose Down
DROP TABLE control_audit;
DROP TABLE control_head;
DROP TABLE control;
