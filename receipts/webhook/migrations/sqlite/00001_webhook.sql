-- +goose Up

-- What apps are to be told, and what became of it. url is empty where it goes to
-- the address of the app's configuration. claim names the attempt under way.
-- Times are Unix milliseconds, 0 where there is none.
CREATE TABLE webhook_events (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT    NOT NULL UNIQUE,
    endpoint      TEXT    NOT NULL,
    account       TEXT    NOT NULL,
    openid        TEXT    NOT NULL,
    message       TEXT    NOT NULL,
    variant       INTEGER NOT NULL,
    type          TEXT    NOT NULL,
    url           TEXT    NOT NULL,
    body          TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    due_at        INTEGER NOT NULL,
    give_up_at    INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    claim         TEXT    NOT NULL,
    claimed_until INTEGER NOT NULL,
    status        INTEGER NOT NULL,
    error         TEXT    NOT NULL,
    settled_at    INTEGER NOT NULL
);
CREATE INDEX webhook_events_due ON webhook_events (endpoint, due_at, seq) WHERE state = 'pending';
CREATE INDEX webhook_events_message ON webhook_events (message, variant, seq);
CREATE INDEX webhook_events_openid ON webhook_events (openid);
CREATE INDEX webhook_events_old ON webhook_events (give_up_at) WHERE state = 'pending';
CREATE INDEX webhook_events_settled ON webhook_events (settled_at) WHERE state <> 'pending';

-- Pushes that named an address of their own.
CREATE TABLE webhook_targets (
    message    TEXT    NOT NULL,
    variant    INTEGER NOT NULL,
    account    TEXT    NOT NULL,
    openid     TEXT    NOT NULL,
    url        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (message, variant)
);
CREATE INDEX webhook_targets_openid ON webhook_targets (openid);
CREATE INDEX webhook_targets_old ON webhook_targets (created_at);

-- How each endpoint stands.
CREATE TABLE webhook_endpoints (
    endpoint      TEXT    NOT NULL PRIMARY KEY,
    failures      INTEGER NOT NULL,
    failing_since INTEGER NOT NULL,
    last_ok_at    INTEGER NOT NULL,
    last_error    TEXT    NOT NULL,
    disabled_at   INTEGER NOT NULL,
    disabled_why  TEXT    NOT NULL
);

-- +goose Down
DROP TABLE webhook_endpoints;
DROP TABLE webhook_targets;
DROP TABLE webhook_events;
