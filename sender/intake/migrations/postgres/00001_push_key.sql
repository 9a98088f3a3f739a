-- +goose Up
CREATE TABLE push_key (
    app         TEXT    NOT NULL,
    key_hash    TEXT    NOT NULL,
    body_hash   TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    accepted_at BIGINT NOT NULL,
    published   INTEGER NOT NULL,
    PRIMARY KEY (app, key_hash)
);
CREATE INDEX push_key_accepted ON push_key (accepted_at);

-- +goose Down
DROP TABLE push_key;
