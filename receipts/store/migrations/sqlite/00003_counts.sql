-- +goose Up

-- part is the partition on PostgreSQL, and always 0 here: SQLite has none.
ALTER TABLE messages ADD COLUMN part BIGINT NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN part BIGINT NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN line TEXT NOT NULL DEFAULT '';
ALTER TABLE letters ADD COLUMN part BIGINT NOT NULL DEFAULT 0;

-- How many rows of each description there are, by the hour (since 1970, UTC) of
-- at. reason is set for failures only, without what makes each one unique. Every
-- transaction that writes rows writes here too; slots keep parallel ones apart.
-- first_at and last_at are those of all rows that were ever counted here.
CREATE TABLE counts (
    hour     BIGINT   NOT NULL,
    account  TEXT     NOT NULL,
    kind     TEXT     NOT NULL,
    app      TEXT     NOT NULL,
    template TEXT     NOT NULL,
    lane     TEXT     NOT NULL,
    state    TEXT     NOT NULL,
    errcode  INTEGER  NOT NULL,
    reason   TEXT     NOT NULL,
    slot     SMALLINT NOT NULL,
    n        BIGINT   NOT NULL,
    first_at BIGINT   NOT NULL,
    last_at  BIGINT   NOT NULL,
    PRIMARY KEY (hour, account, kind, app, template, lane, state, errcode, reason, slot)
) WITHOUT ROWID;

-- Facts about the tables themselves: since which day there are partitions, and
-- whether the rows of before were counted.
CREATE TABLE layout (
    name  TEXT   NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
) WITHOUT ROWID;

-- +goose Down
DROP TABLE layout;
DROP TABLE counts;
ALTER TABLE letters DROP COLUMN part;
ALTER TABLE steps DROP COLUMN line;
ALTER TABLE steps DROP COLUMN part;
ALTER TABLE messages DROP COLUMN part;
