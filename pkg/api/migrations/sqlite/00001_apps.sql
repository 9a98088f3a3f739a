-- +goose Up
CREATE TABLE apps (
    key_id     TEXT   NOT NULL PRIMARY KEY,
    name       TEXT   NOT NULL,
    key_hash   TEXT   NOT NULL,
    scopes     TEXT   NOT NULL,
    accounts   TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX apps_name ON apps (name);

-- What the nodes of one deployment sign cursors and confirmations with.
CREATE TABLE api_secrets (
    name   TEXT NOT NULL PRIMARY KEY,
    secret BLOB NOT NULL
);

-- +goose Down
DROP TABLE api_secrets;
DROP TABLE apps;
