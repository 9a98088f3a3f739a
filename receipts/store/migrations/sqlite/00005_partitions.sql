-- +goose Up

-- SQLite has no partitions. The views carry the names that the tables of all
-- days have on PostgreSQL, for whoever reads both.
CREATE VIEW all_messages AS SELECT * FROM messages;
CREATE VIEW all_steps AS SELECT * FROM steps;
CREATE VIEW all_letters AS SELECT * FROM letters;

-- +goose Down
DROP VIEW all_letters;
DROP VIEW all_steps;
DROP VIEW all_messages;
