-- +goose Up
CREATE INDEX messages_app ON messages (app, at, id, variant) WHERE app <> '';

-- +goose Down
DROP INDEX messages_app;
