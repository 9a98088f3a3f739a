-- +goose Up
CREATE TABLE outcome (
    id            TEXT    NOT NULL,
    identity_hash TEXT    NOT NULL,
    news          TEXT    NOT NULL,
    day           INTEGER NOT NULL,
    PRIMARY KEY (id, identity_hash)
);
CREATE INDEX outcome_day ON outcome (day);

-- +goose Down
DROP TABLE outcome;
