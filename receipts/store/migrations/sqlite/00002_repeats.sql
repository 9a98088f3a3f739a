-- +goose Up

-- What users repeated, newest first: few rows among many. It holds all that is
-- counted, so that a question reads no row.
CREATE INDEX messages_repeated ON messages (at, account, openid, detail) WHERE state = 'repeated';

-- +goose Down
DROP INDEX messages_repeated;
