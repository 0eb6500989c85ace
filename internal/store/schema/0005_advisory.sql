-- Advisories come by the million, so they are kept for cheap appends: their
-- segments rise with time, and what a list filters by is found without an index
-- for each field and order.
--
-- shelf says what an advisory is filtered by as far as that has few values: all
-- advisories of a group that agree in it stand on one shelf, in both orders.
-- block is where its text is searched.

CREATE TABLE advisories (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  advisory_id TEXT NOT NULL,
  shelf BIGINT NOT NULL,
  block BIGINT NOT NULL,
  digest BYTEA NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  body TEXT NOT NULL,
  affected TEXT NOT NULL
);
CREATE UNIQUE INDEX advisories_id ON advisories (parent, advisory_id);
CREATE INDEX advisories_parent_seg ON advisories (parent, seg);
CREATE INDEX advisories_parent_update ON advisories (parent, update_ms, seg);
CREATE INDEX advisories_shelf_seg ON advisories (shelf, seg);
CREATE INDEX advisories_shelf_update ON advisories (shelf, update_ms, seg);

CREATE TABLE advisory_shelves (
  id BIGINT PRIMARY KEY,
  grp TEXT NOT NULL,
  signature TEXT NOT NULL
);
CREATE INDEX advisory_shelves_grp ON advisory_shelves (grp);

-- The names advisories are filtered by: many values, and some of them often. key
-- stands for a group, a field and a value.
CREATE TABLE advisory_names (
  key BIGINT NOT NULL,
  seg BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  PRIMARY KEY (key, seg)
);
CREATE INDEX advisory_names_update ON advisory_names (key, update_ms, seg);

-- The same for values that few advisories share.
CREATE TABLE advisory_aliases (
  key BIGINT NOT NULL,
  seg BIGINT NOT NULL,
  PRIMARY KEY (key, seg)
);

-- The text that is searched, of many advisories in one row.
CREATE TABLE advisory_texts (
  parent BIGINT NOT NULL,
  block BIGINT NOT NULL,
  version BIGINT NOT NULL,
  n BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (parent, block)
);

CREATE TABLE advisory_feeds (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  address TEXT NOT NULL,
  interval_ms BIGINT NOT NULL,
  paused BOOLEAN NOT NULL,
  due_ms BIGINT NOT NULL,
  last TEXT NOT NULL,
  state BYTEA NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX advisory_feeds_uid ON advisory_feeds (uid);
CREATE UNIQUE INDEX advisory_feeds_parent_name ON advisory_feeds (parent, name);
CREATE INDEX advisory_feeds_due ON advisory_feeds (due_ms) WHERE NOT paused;
CREATE INDEX advisory_feeds_parent_create ON advisory_feeds (parent, create_ms, seg);
CREATE INDEX advisory_feeds_parent_seg ON advisory_feeds (parent, seg);
CREATE INDEX advisory_feeds_a1_name ON advisory_feeds (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX advisory_feeds_a2_name ON advisory_feeds (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX advisory_feeds_a3_name ON advisory_feeds (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX advisory_feeds_a1_create ON advisory_feeds (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX advisory_feeds_a2_create ON advisory_feeds (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX advisory_feeds_a3_create ON advisory_feeds (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX advisory_feeds_a1_update ON advisory_feeds (a1, update_ms, seg) WHERE a1 IS NOT NULL;
