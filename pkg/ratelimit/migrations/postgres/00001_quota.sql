-- +goose Up
CREATE TABLE day_quota (
    name     TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    most     BIGINT  NOT NULL,
    taken    BIGINT  NOT NULL,
    asked_at BIGINT  NOT NULL,
    PRIMARY KEY (name, day)
);
CREATE TABLE joint_begin (
    tag    TEXT   NOT NULL PRIMARY KEY,
    marked BIGINT NOT NULL
);

-- +goose Down
DROP TABLE joint_begin;
DROP TABLE day_quota;
