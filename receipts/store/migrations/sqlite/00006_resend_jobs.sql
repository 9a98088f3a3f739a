-- +goose Up

-- Re-sends that were confirmed, and how far each is. mark is the place in the
-- selection behind which it goes on; flight are the messages that are marked and
-- perhaps not published yet, which whoever takes over publishes (again) under the
-- same ids. next_at paces it.
CREATE TABLE resend_jobs (
    request     TEXT    NOT NULL PRIMARY KEY,
    app         TEXT    NOT NULL,
    started_by  TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    selection   TEXT    NOT NULL,
    counted     INTEGER NOT NULL,
    counted_at  INTEGER NOT NULL,
    again       INTEGER NOT NULL,
    rate        INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    mark        TEXT    NOT NULL,
    flight      TEXT    NOT NULL,
    sent        INTEGER NOT NULL,
    skipped     TEXT    NOT NULL,
    begun_at    INTEGER NOT NULL,
    next_at     INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    claim       TEXT    NOT NULL,
    claim_until INTEGER NOT NULL
);
CREATE INDEX resend_jobs_running ON resend_jobs (next_at) WHERE state = 'running';
CREATE INDEX resend_jobs_begun ON resend_jobs (begun_at);

-- +goose Down
DROP TABLE resend_jobs;
