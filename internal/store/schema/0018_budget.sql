-- What a group and everything below it may use. There is no foreign key to groups, because
-- the version before this one deletes groups and knows nothing of budgets; what it leaves
-- behind is swept up.
CREATE TABLE budgets (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX budgets_uid ON budgets (uid);
CREATE INDEX budgets_parent_create ON budgets (parent, create_ms, seg);
CREATE INDEX budgets_parent_seg ON budgets (parent, seg);
CREATE INDEX budgets_a1_create ON budgets (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX budgets_a2_create ON budgets (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX budgets_a3_create ON budgets (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- Pulls from the repos of groups that have a budget of them, by day (UTC).
CREATE TABLE budget_days (
  day BIGINT NOT NULL,
  grp BIGINT NOT NULL,
  kind TEXT NOT NULL,
  shard BIGINT NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (day, grp, kind, shard)
);

-- Uploads count as stored bytes of their group.
CREATE INDEX uploads_grp ON uploads (grp);

-- The version of all budgets, by which replicas see whether theirs are current. 2 was used
-- for something else.
INSERT INTO revision (id, rev) VALUES (3, 0);
