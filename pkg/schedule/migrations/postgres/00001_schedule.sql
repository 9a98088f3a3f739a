-- +goose Up
-- The leader of a group of nodes; only who has this fence begins runs.
CREATE TABLE job_head (
    team  TEXT   PRIMARY KEY,
    fence BIGINT NOT NULL,
    node  TEXT   NOT NULL,
    since BIGINT NOT NULL
);
-- Up to where each job is planned, and the newest slot that succeeded.
CREATE TABLE job_plan (
    job        TEXT   PRIMARY KEY,
    spec       TEXT   NOT NULL,
    planned    BIGINT NOT NULL,
    first_seen BIGINT NOT NULL,
    done_slot  BIGINT NOT NULL,
    done_at    BIGINT NOT NULL
);
-- One row per slot, and per run that somebody asked for. A row of missed slots
-- may stand for several, from slot to last_slot. Times are milliseconds since
-- 1970 of the database's clock; 0 is never.
CREATE TABLE job_runs (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job        TEXT   NOT NULL,
    slot       BIGINT NOT NULL,
    last_slot  BIGINT NOT NULL,
    slots      BIGINT NOT NULL,
    by_hand    INTEGER NOT NULL,
    state      TEXT   NOT NULL,
    attempt    INTEGER NOT NULL,
    made_at    BIGINT NOT NULL,
    due_at     BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL,
    node       TEXT   NOT NULL,
    fence      BIGINT NOT NULL,
    error      TEXT   NOT NULL,
    asked_by   TEXT   NOT NULL,
    reason     TEXT   NOT NULL
);
CREATE UNIQUE INDEX job_runs_slot ON job_runs (job, slot) WHERE by_hand = 0;
CREATE UNIQUE INDEX job_runs_running ON job_runs (job) WHERE state = 'running';
CREATE INDEX job_runs_open ON job_runs (job, due_at) WHERE state IN ('due', 'running');
CREATE INDEX job_runs_recent ON job_runs (job, id);

-- +goose Down
DROP TABLE job_runs;
DROP TABLE job_plan;
DROP TABLE job_head;
