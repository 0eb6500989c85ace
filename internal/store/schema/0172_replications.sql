-- Replications: groups whose images are copied to other registries.

-- owner: registry/sourcedb

CREATE TABLE replications (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  detail TEXT NOT NULL,
  secret BYTEA NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX replications_uid ON replications (uid);
CREATE UNIQUE INDEX replications_parent_name ON replications (parent, name);
CREATE INDEX replications_parent_create ON replications (parent, create_ms, seg);
CREATE INDEX replications_parent_seg ON replications (parent, seg);
CREATE INDEX replications_a1_name ON replications (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX replications_a2_name ON replications (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX replications_a3_name ON replications (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX replications_a1_create ON replications (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX replications_a2_create ON replications (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX replications_a3_create ON replications (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- The state of each replication. due_ms is the time of the next attempt, or NULL. No attempt begins before pause_ms,
-- which follows a failure, or before retry_ms, which the target has demanded. scan_ms is the time at which all selected
-- tags are queued, or NULL. The attempt is held by holder until until_ms. tries is the number of failures in a row.
-- If gone is true, the replication was deleted, and its rows of replication_tags are being removed.
CREATE TABLE replication_states (
  replication BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  root BIGINT NOT NULL,
  push BOOLEAN NOT NULL,
  paused BOOLEAN NOT NULL,
  gone BOOLEAN NOT NULL,
  due_ms BIGINT NULL,
  pause_ms BIGINT NOT NULL,
  retry_ms BIGINT NOT NULL,
  scan_ms BIGINT NULL,
  run_ms BIGINT NOT NULL,
  holder TEXT NOT NULL,
  until_ms BIGINT NOT NULL,
  tries BIGINT NOT NULL,
  error TEXT NOT NULL,
  error_ms BIGINT NOT NULL,
  success_ms BIGINT NOT NULL
);
CREATE INDEX replication_states_due ON replication_states (due_ms, root) WHERE due_ms IS NOT NULL;
CREATE INDEX replication_states_push ON replication_states (push) WHERE push;

-- The tags of replications: what was last copied, and whether the tag is pending. digest is the copied digest, or ''.
-- content identifies everything that was copied with it, and target is the name of the repo at the target. A tag is
-- pending if due_ms is not NULL: it was queued at queue_ms, and the next attempt is due at due_ms. changes rises when
-- the tag is queued.
CREATE TABLE replication_tags (
  replication BIGINT NOT NULL,
  repo BIGINT NOT NULL,
  repo_uid TEXT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  content TEXT NOT NULL,
  target TEXT NOT NULL,
  queue_ms BIGINT NOT NULL,
  due_ms BIGINT NULL,
  changes BIGINT NOT NULL,
  tries BIGINT NOT NULL,
  error TEXT NOT NULL,
  PRIMARY KEY (replication, repo, name)
);
CREATE INDEX replication_tags_due ON replication_tags (replication, due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX replication_tags_queue ON replication_tags (replication, queue_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX replication_tags_list ON replication_tags (replication, repo_uid, name) WHERE due_ms IS NOT NULL;
CREATE INDEX replication_tags_failed ON replication_tags (replication) WHERE due_ms IS NOT NULL AND error <> '';

-- The last event that was considered for replications, or -1.
CREATE TABLE replication_cursor (
  id BIGINT PRIMARY KEY,
  seq BIGINT NOT NULL
);
INSERT INTO replication_cursor (id, seq) VALUES (1, -1);
