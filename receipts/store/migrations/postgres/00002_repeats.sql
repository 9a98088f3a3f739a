-- +goose Up

-- What users repeated, newest first: few rows among many. Account is in the
-- index, so that the rows of other accounts need not be read.
CREATE INDEX messages_repeated ON messages (at, account) WHERE state = 'repeated';

-- +goose Down
DROP INDEX messages_repeated;
