-- Repos that follow another: what is needed to keep them equal. A row counts if the detail of the
-- repo still names the source, because the version before changes that and knows nothing of the
-- row. identity is who has set the source, in whose name it is done. due_ms is when it is next done,
-- NULL if never. Whoever does it is holder until until_ms, and again says that the source has
-- changed meanwhile. ran_ms is when it last came to its end, success_ms when the two were last
-- equal, fail_ms since when they are not. failed has the names of some tags that are not.
CREATE TABLE follows (
  repo BIGINT PRIMARY KEY REFERENCES repos (seg) ON DELETE CASCADE,
  uid TEXT NOT NULL,
  root BIGINT NOT NULL,
  source BIGINT NOT NULL,
  source_uid TEXT NOT NULL,
  identity TEXT NOT NULL,
  set_ms BIGINT NOT NULL,
  due_ms BIGINT NULL,
  holder TEXT NOT NULL,
  until_ms BIGINT NOT NULL,
  again BOOLEAN NOT NULL,
  begin_ms BIGINT NOT NULL,
  ran_ms BIGINT NOT NULL,
  success_ms BIGINT NOT NULL,
  fail_ms BIGINT NOT NULL,
  tries BIGINT NOT NULL,
  error TEXT NOT NULL,
  failed TEXT NOT NULL,
  tags BIGINT NOT NULL
);
CREATE UNIQUE INDEX follows_uid ON follows (uid);
CREATE INDEX follows_due ON follows (due_ms, root) WHERE due_ms IS NOT NULL;
CREATE INDEX follows_source ON follows (source);

-- The repos with a source, also those that nobody keeps equal to it.
CREATE INDEX repos_following ON repos (uid) WHERE replace(detail, '"syncConfig":', '') <> detail;

-- Up to which event followers were told that their source has changed; -1 before the first. Whoever
-- sets a source locks the row, so that no two make a loop.
CREATE TABLE follow_cursor (
  id BIGINT PRIMARY KEY,
  seq BIGINT NOT NULL
);
INSERT INTO follow_cursor (id, seq) VALUES (1, -1);
