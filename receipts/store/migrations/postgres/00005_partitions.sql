-- +goose Up

-- all_messages, all_steps and all_letters are partitioned by part. The tables of
-- before become partition 0 and keep their names and keys, so that the release of
-- before goes on in them. Partitions of days are made and dropped while the room
-- runs. Indexes that exist below are taken as they are.
CREATE TABLE all_messages (LIKE messages INCLUDING DEFAULTS) PARTITION BY RANGE (part);
ALTER TABLE all_messages ATTACH PARTITION messages FOR VALUES FROM (0) TO (1);
CREATE UNIQUE INDEX all_messages_key ON all_messages (id, variant, part);
CREATE INDEX all_messages_at ON all_messages (at, id, variant);
CREATE INDEX all_messages_openid ON all_messages (openid, at);
CREATE INDEX all_messages_msg_id ON all_messages (msg_id) WHERE msg_id <> '';
CREATE INDEX all_messages_reference ON all_messages (reference, at) WHERE reference <> '';
CREATE INDEX all_messages_callback ON all_messages (callback_id) WHERE callback_id <> '';
CREATE INDEX all_messages_app ON all_messages (app, at, id, variant) WHERE app <> '';
CREATE INDEX all_messages_failed ON all_messages (at) WHERE failed = 1;
CREATE INDEX all_messages_waiting ON all_messages (accepted_at) WHERE state = 'accepted' AND kind = 'push';
CREATE INDEX all_messages_repeated ON all_messages (at, account, openid, detail) WHERE state = 'repeated';

CREATE TABLE all_steps (LIKE steps INCLUDING DEFAULTS) PARTITION BY RANGE (part);
ALTER TABLE all_steps ATTACH PARTITION steps FOR VALUES FROM (0) TO (1);
CREATE UNIQUE INDEX all_steps_key ON all_steps (id, variant, digest, part);

CREATE TABLE all_letters (LIKE letters INCLUDING DEFAULTS) PARTITION BY RANGE (part);
ALTER TABLE all_letters ATTACH PARTITION letters FOR VALUES FROM (0) TO (1);
CREATE UNIQUE INDEX all_letters_key ON all_letters (id, variant, part);

-- +goose Down
ALTER TABLE all_letters DETACH PARTITION letters;
ALTER TABLE all_steps DETACH PARTITION steps;
ALTER TABLE all_messages DETACH PARTITION messages;
DROP TABLE all_letters;
DROP TABLE all_steps;
DROP TABLE all_messages;
