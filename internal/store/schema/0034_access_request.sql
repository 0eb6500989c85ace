-- Which roles can be asked for in a group, and what was asked for. There are no foreign keys, because the version
-- before this one deletes groups and roles and knows nothing of these. What was asked for stays when its group goes.
CREATE TABLE access_rules (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  detail TEXT NOT NULL,
  role BIGINT NOT NULL,
  requester BIGINT,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX access_rules_uid ON access_rules (uid);
CREATE INDEX access_rules_role ON access_rules (role);
CREATE INDEX access_rules_requester ON access_rules (requester) WHERE requester IS NOT NULL;
CREATE INDEX access_rules_parent_create ON access_rules (parent, create_ms, seg);
CREATE INDEX access_rules_parent_seg ON access_rules (parent, seg);
CREATE INDEX access_rules_a1_create ON access_rules (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX access_rules_a2_create ON access_rules (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX access_rules_a3_create ON access_rules (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- pending is 1 until one is decided.
CREATE TABLE role_requests (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  detail TEXT NOT NULL,
  identity TEXT NOT NULL,
  pending BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX role_requests_uid ON role_requests (uid);
CREATE INDEX role_requests_identity ON role_requests (identity, uid);
CREATE INDEX role_requests_pending ON role_requests (identity, create_ms) WHERE pending = 1;
CREATE INDEX role_requests_parent_create ON role_requests (parent, create_ms, seg);
CREATE INDEX role_requests_parent_seg ON role_requests (parent, seg);
CREATE INDEX role_requests_a1_create ON role_requests (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX role_requests_a2_create ON role_requests (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX role_requests_a3_create ON role_requests (a3, create_ms, seg) WHERE a3 IS NOT NULL;
