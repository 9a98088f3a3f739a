-- +goose Up
CREATE TABLE intent (
    id            TEXT    NOT NULL,
    identity_hash TEXT    NOT NULL,
    first_try_at  INTEGER NOT NULL,
    node          TEXT    NOT NULL,
    mark          TEXT    NOT NULL,
    day           INTEGER NOT NULL,
    PRIMARY KEY (id, identity_hash)
) WITHOUT ROWID;
CREATE INDEX intent_day ON intent (day);

-- +goose Down
DROP TABLE intent;
