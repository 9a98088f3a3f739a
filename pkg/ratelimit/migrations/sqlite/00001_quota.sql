-- +goose Up
CREATE TABLE day_quota (
    name     TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    most     INTEGER NOT NULL,
    taken    INTEGER NOT NULL,
    asked_at INTEGER NOT NULL,
    PRIMARY KEY (name, day)
) WITHOUT ROWID;
CREATE TABLE joint_begin (
    tag    TEXT    NOT NULL PRIMARY KEY,
    marked INTEGER NOT NULL
) WITHOUT ROWID;

-- +goose Down
DROP TABLE joint_begin;
DROP TABLE day_quota;
