-- +goose NO TRANSACTION
-- +goose Up

-- What users repeated, newest first: few rows among many. It holds all that is
-- counted, so that a question reads no row. It is built while messages are
-- written, which may take minutes on a large table. What a build left that was
-- broken off is no index that serves, so it goes first.
DROP INDEX CONCURRENTLY IF EXISTS messages_repeated;
CREATE INDEX CONCURRENTLY messages_repeated ON messages (at, account, openid, detail) WHERE state = 'repeated';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS messages_repeated;
