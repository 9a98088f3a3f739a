-- +goose Up
-- Empty is every template, and the app itself as its developer.
ALTER TABLE apps ADD COLUMN templates TEXT NOT NULL DEFAULT '';
ALTER TABLE apps ADD COLUMN developer TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE apps DROP COLUMN developer;
ALTER TABLE apps DROP COLUMN templates;
