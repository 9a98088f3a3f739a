-- +goose Up
-- The leader of a group of nodes; only who has this fence begins runs.
CREATE TABLE job_head (
    team  TEXT   PRIMARY KEY,
    fence INTEGER NOT NULL,
    node  TEXT   NOT NULL,
    since INTEGER NOT NULL
);
-- Up to where each job is planned, and the newest slot that succeeded.
CREATE TABLE job_plan (
    job        TEXT   PRIMARY KEY,
    spec       TEXT   NOT NULL,
    planned    INTEGER NOT NULL,
    first_seen INTEGER NOT NULL,
    done_slot  INTEGER NOT NULL,
    done_at    INTEGER NOT NULL
);
-- One row per slot, and per run that somebody asked for. A row of missed slots
-- may stand for several, from slot to last_slot. Times are milliseconds since
-- 1970 of the database's clock; 0 is never.
CREATE TABLE job_runs (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    job        TEXT   NOT NULL,
    slot       INTEGER NOT NULL,
    last_slot  INTEGER NOT NULL,
    slots      INTEGER NOT NULL,
    by_hand    INTEGER NOT NULL,
    state      TEXT   NOT NULL,
    attempt    INTEGER NOT NULL,
    made_at    INTEGER NOT NULL,
    due_at     INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    node       TEXT   NOT NULL,
    fence      INTEGER NOT NULL,
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
