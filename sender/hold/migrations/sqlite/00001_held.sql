-- +goose Up
CREATE TABLE held (
    id            TEXT   NOT NULL,
    identity_hash TEXT   NOT NULL,
    generation    INTEGER NOT NULL,
    rev           TEXT   NOT NULL,
    due_at        INTEGER NOT NULL,
    held_at       INTEGER NOT NULL,
    accepted_at   INTEGER NOT NULL,
    account       TEXT   NOT NULL,
    app           TEXT   NOT NULL,
    template      TEXT   NOT NULL,
    lane          TEXT   NOT NULL,
    reason        TEXT   NOT NULL,
    cause         TEXT   NOT NULL,
    letter_key    BLOB,
    letter        BLOB NOT NULL,
    headers       BLOB NOT NULL,
    PRIMARY KEY (id, identity_hash)
);
CREATE INDEX held_due ON held (due_at);
CREATE INDEX held_account_due ON held (account, due_at);
CREATE INDEX held_cause ON held (cause);
CREATE TABLE held_releaser (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    node  TEXT   NOT NULL,
    until INTEGER NOT NULL
);
INSERT INTO held_releaser (id, node, until) VALUES (1, '', 0);

-- +goose Down
DROP TABLE held_releaser;
DROP TABLE held;
