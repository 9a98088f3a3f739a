-- +goose NO TRANSACTION
-- +goose Up

-- What the partitioned tables need of the tables of before, built while these
-- are written. What a build left that was broken off is no index that serves,
-- so it goes first.
DROP INDEX CONCURRENTLY IF EXISTS messages_app;
CREATE INDEX CONCURRENTLY messages_app ON messages (app, at, id, variant) WHERE app <> '';
DROP INDEX CONCURRENTLY IF EXISTS messages_key;
CREATE UNIQUE INDEX CONCURRENTLY messages_key ON messages (id, variant, part);
DROP INDEX CONCURRENTLY IF EXISTS steps_key;
CREATE UNIQUE INDEX CONCURRENTLY steps_key ON steps (id, variant, digest, part);
DROP INDEX CONCURRENTLY IF EXISTS letters_key;
CREATE UNIQUE INDEX CONCURRENTLY letters_key ON letters (id, variant, part);

-- The proof that every row of before belongs into partition 0, so that attaching
-- the tables reads nothing.
ALTER TABLE messages DROP CONSTRAINT IF EXISTS messages_before;
ALTER TABLE messages ADD CONSTRAINT messages_before CHECK (part = 0) NOT VALID;
ALTER TABLE messages VALIDATE CONSTRAINT messages_before;
ALTER TABLE steps DROP CONSTRAINT IF EXISTS steps_before;
ALTER TABLE steps ADD CONSTRAINT steps_before CHECK (part = 0) NOT VALID;
ALTER TABLE steps VALIDATE CONSTRAINT steps_before;
ALTER TABLE letters DROP CONSTRAINT IF EXISTS letters_before;
ALTER TABLE letters ADD CONSTRAINT letters_before CHECK (part = 0) NOT VALID;
ALTER TABLE letters VALIDATE CONSTRAINT letters_before;

-- +goose Down
ALTER TABLE letters DROP CONSTRAINT letters_before;
ALTER TABLE steps DROP CONSTRAINT steps_before;
ALTER TABLE messages DROP CONSTRAINT messages_before;
DROP INDEX letters_key;
DROP INDEX steps_key;
DROP INDEX messages_key;
DROP INDEX messages_app;
