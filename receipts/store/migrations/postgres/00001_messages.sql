-- +goose Up

-- One row per message. variant is 0 but for the rare ids that two identities
-- share; it makes (id, 0) the one lock for everything about an id. Times are
-- Unix milliseconds, 0 where unknown. at never changes after the insertion:
-- order and cursors rest on it.
CREATE TABLE messages (
    id                 TEXT     NOT NULL,
    variant            INTEGER  NOT NULL,
    identity_hash      TEXT     NOT NULL,
    kind               TEXT     NOT NULL,
    account            TEXT     NOT NULL,
    openid             TEXT     NOT NULL,
    app                TEXT     NOT NULL,
    lane               TEXT     NOT NULL,
    template           TEXT     NOT NULL,
    reference          TEXT     NOT NULL,
    callback_id        TEXT     NOT NULL,
    resend_of          TEXT     NOT NULL,
    resent_as          TEXT     NOT NULL,
    state              TEXT     NOT NULL,
    reason             TEXT     NOT NULL,
    errcode            INTEGER  NOT NULL,
    msg_id             TEXT     NOT NULL,
    attempts           INTEGER  NOT NULL,
    possible_duplicate SMALLINT NOT NULL,
    contradiction      TEXT     NOT NULL,
    failed             SMALLINT NOT NULL,
    detail             TEXT     NOT NULL,
    at                 BIGINT   NOT NULL,
    queued_at          BIGINT   NOT NULL,
    accepted_at        BIGINT   NOT NULL,
    settled_at         BIGINT   NOT NULL,
    updated_at         BIGINT   NOT NULL,
    PRIMARY KEY (id, variant)
);
CREATE INDEX messages_at ON messages (at, id, variant);
CREATE INDEX messages_openid ON messages (openid, at);
CREATE INDEX messages_msg_id ON messages (msg_id) WHERE msg_id <> '';
CREATE INDEX messages_reference ON messages (reference, at) WHERE reference <> '';
CREATE INDEX messages_callback ON messages (callback_id) WHERE callback_id <> '';
CREATE INDEX messages_failed ON messages (at) WHERE failed = 1;
CREATE INDEX messages_waiting ON messages (accepted_at) WHERE state = 'accepted' AND kind = 'push';

-- The story of a message: one line per piece of news. The digest makes a
-- repeated piece the same line.
CREATE TABLE steps (
    id      TEXT    NOT NULL,
    variant INTEGER NOT NULL,
    digest  TEXT    NOT NULL,
    source  TEXT    NOT NULL,
    state   TEXT    NOT NULL,
    at      BIGINT  NOT NULL,
    attempt INTEGER NOT NULL,
    reason  TEXT    NOT NULL,
    errcode INTEGER NOT NULL,
    event   TEXT    NOT NULL,
    detail  TEXT    NOT NULL,
    PRIMARY KEY (id, variant, digest)
);

-- The letter of a push, kept for a re-send. Apart from the row, because rows
-- are rewritten several times and letters never.
CREATE TABLE letters (
    id      TEXT    NOT NULL,
    variant INTEGER NOT NULL,
    letter  BYTEA    NOT NULL,
    PRIMARY KEY (id, variant)
);

-- What WeChat reported about a msg_id that no row has: it came before the
-- answer of the send, or is about a message that somebody else sent.
CREATE TABLE parked (
    account   TEXT     NOT NULL,
    msg_id    TEXT     NOT NULL,
    openid    TEXT     NOT NULL,
    digest    TEXT     NOT NULL,
    source    TEXT     NOT NULL,
    state     TEXT     NOT NULL,
    reason    TEXT     NOT NULL,
    errcode   INTEGER  NOT NULL,
    event     TEXT     NOT NULL,
    detail    TEXT     NOT NULL,
    at        BIGINT   NOT NULL,
    parked_at BIGINT   NOT NULL,
    foreigner SMALLINT NOT NULL,
    PRIMARY KEY (msg_id, account, openid, digest)
);
CREATE INDEX parked_at ON parked (parked_at);

-- How many rows are in each state, by the UTC day of at. Every transaction
-- that writes rows writes here too; slots keep parallel ones apart.
CREATE TABLE tallies (
    day     BIGINT   NOT NULL,
    account TEXT     NOT NULL,
    kind    TEXT     NOT NULL,
    state   TEXT     NOT NULL,
    slot    SMALLINT NOT NULL,
    n       BIGINT   NOT NULL,
    PRIMARY KEY (day, account, kind, state, slot)
);

-- Confirmed re-sends, so that the second click of a double click is answered
-- and not executed.
CREATE TABLE resends (
    request     TEXT   NOT NULL PRIMARY KEY,
    app         TEXT   NOT NULL,
    key_id      TEXT   NOT NULL,
    selection   TEXT   NOT NULL,
    counted     BIGINT NOT NULL,
    sent        BIGINT NOT NULL,
    begun_at    BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    finished_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE resends;
DROP TABLE tallies;
DROP TABLE parked;
DROP TABLE letters;
DROP TABLE steps;
DROP TABLE messages;
