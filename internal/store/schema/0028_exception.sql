-- Findings that a group has accepted, until they expire or are deleted. target is the key
-- of the group or repo that one is about: the group it is in, or something below it. There
-- are no foreign keys, because the version before this one deletes groups and repos and
-- knows nothing of exceptions; what it leaves behind is swept up.
CREATE TABLE exceptions (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  detail TEXT NOT NULL,
  target BIGINT NOT NULL,
  approve_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX exceptions_uid ON exceptions (uid);
CREATE INDEX exceptions_target ON exceptions (target);
CREATE INDEX exceptions_parent_create ON exceptions (parent, create_ms, seg);
CREATE INDEX exceptions_parent_seg ON exceptions (parent, seg);
CREATE INDEX exceptions_a1_create ON exceptions (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX exceptions_a2_create ON exceptions (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX exceptions_a3_create ON exceptions (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- Exceptions that had an effect and were deleted, because what was open at some time
-- depends on those that held then.
CREATE TABLE past_exceptions (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  detail TEXT NOT NULL,
  target BIGINT NOT NULL,
  approve_ms BIGINT NOT NULL,
  delete_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX past_exceptions_uid ON past_exceptions (uid);
CREATE INDEX past_exceptions_target ON past_exceptions (target, delete_ms);
CREATE INDEX past_exceptions_parent ON past_exceptions (parent, delete_ms);

-- Rules that refuse pulls of images with findings.
CREATE TABLE pull_rules (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX pull_rules_uid ON pull_rules (uid);
CREATE INDEX pull_rules_parent_create ON pull_rules (parent, create_ms, seg);
CREATE INDEX pull_rules_parent_seg ON pull_rules (parent, seg);
CREATE INDEX pull_rules_a1_create ON pull_rules (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX pull_rules_a2_create ON pull_rules (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX pull_rules_a3_create ON pull_rules (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- The version of all rules, by which replicas see whether theirs are current.
INSERT INTO revision (id, rev) VALUES (4, 0);
