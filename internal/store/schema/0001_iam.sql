-- Every table of resources has the same first columns. seg is the last segment
-- of the uid as a number: short, unique, and so the key everything refers to.
-- a1, a2, a3 are the segments of the resource's ancestors at levels 1 to 3: an
-- index (a2, name) holds every subtree that starts at level 2 in name order.

CREATE TABLE groups (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  verified BOOLEAN NOT NULL,
  kind BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX groups_uid ON groups (uid);
CREATE UNIQUE INDEX groups_root_name ON groups (name) WHERE parent IS NULL;
CREATE UNIQUE INDEX groups_parent_name ON groups (parent, name);
CREATE INDEX groups_parent_create ON groups (parent, create_ms, seg);
CREATE INDEX groups_parent_seg ON groups (parent, seg);
CREATE INDEX groups_a1_name ON groups (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX groups_a2_name ON groups (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX groups_a3_name ON groups (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX groups_a1_create ON groups (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX groups_a2_create ON groups (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX groups_a3_create ON groups (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX groups_a1_update ON groups (a1, update_ms, seg) WHERE a1 IS NOT NULL;

CREATE TABLE identities (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  email TEXT NOT NULL,
  email_unverified TEXT NOT NULL,
  company TEXT NOT NULL,
  relationship BIGINT NOT NULL,
  detail TEXT NOT NULL,
  metadata TEXT NOT NULL,
  issuer TEXT NOT NULL,
  subject TEXT NOT NULL,
  last_seen_ms BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX identities_uid ON identities (uid);
CREATE INDEX identities_relationship ON identities (relationship, uid);
CREATE INDEX identities_issuer ON identities (issuer, subject);
CREATE INDEX identities_parent_name ON identities (parent, name, seg);
CREATE INDEX identities_parent_create ON identities (parent, create_ms, seg);
CREATE INDEX identities_parent_seg ON identities (parent, seg);
CREATE INDEX identities_a1_name ON identities (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX identities_a2_name ON identities (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX identities_a3_name ON identities (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX identities_a1_create ON identities (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX identities_a2_create ON identities (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX identities_a3_create ON identities (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX identities_a1_update ON identities (a1, update_ms, seg) WHERE a1 IS NOT NULL;

CREATE TABLE roles (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  capabilities TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX roles_uid ON roles (uid);
CREATE UNIQUE INDEX roles_parent_name ON roles (parent, name);
CREATE INDEX roles_parent_create ON roles (parent, create_ms, seg);
CREATE INDEX roles_parent_seg ON roles (parent, seg);
CREATE INDEX roles_a1_name ON roles (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX roles_a2_name ON roles (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX roles_a3_name ON roles (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX roles_a1_create ON roles (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX roles_a2_create ON roles (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX roles_a3_create ON roles (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX roles_a1_update ON roles (a1, update_ms, seg) WHERE a1 IS NOT NULL;

-- identity is no foreign key: a person may be bound before the first sign-in.
CREATE TABLE role_bindings (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  identity TEXT NOT NULL,
  role BIGINT NOT NULL REFERENCES roles (seg),
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX role_bindings_uid ON role_bindings (uid);
CREATE UNIQUE INDEX role_bindings_once ON role_bindings (parent, identity, role);
CREATE INDEX role_bindings_identity ON role_bindings (identity, uid);
CREATE INDEX role_bindings_role ON role_bindings (role, uid);
CREATE INDEX role_bindings_parent_create ON role_bindings (parent, create_ms, seg);
CREATE INDEX role_bindings_parent_seg ON role_bindings (parent, seg);
CREATE INDEX role_bindings_a1_create ON role_bindings (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX role_bindings_a2_create ON role_bindings (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX role_bindings_a3_create ON role_bindings (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- How many resources of a kind are below a group, and how many directly.
CREATE TABLE counters (
  kind TEXT NOT NULL,
  grp BIGINT NOT NULL,
  shard BIGINT NOT NULL,
  n BIGINT NOT NULL,
  children BIGINT NOT NULL,
  PRIMARY KEY (kind, grp, shard)
);

-- Every change, in its own transaction, for audit and delivery.
CREATE TABLE outbox (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,
  grp TEXT NOT NULL,
  actor TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  before_json TEXT NOT NULL,
  after_json TEXT NOT NULL
);

-- The revision counts the changes to grants, one after the other. A checker that
-- has applied every change up to it knows who may do what.
CREATE TABLE revision (
  id BIGINT PRIMARY KEY,
  rev BIGINT NOT NULL
);
INSERT INTO revision (id, rev) VALUES (1, 0);

CREATE TABLE grant_changes (
  rev BIGINT PRIMARY KEY,
  identity TEXT NOT NULL,
  role TEXT NOT NULL
);

CREATE TABLE revocations (
  identity TEXT PRIMARY KEY,
  at_ms BIGINT NOT NULL
);

CREATE TABLE access_requests (
  identity TEXT PRIMARY KEY,
  at_ms BIGINT NOT NULL
);

CREATE TABLE signing_keys (
  id TEXT PRIMARY KEY,
  algorithm TEXT NOT NULL,
  sealed BYTEA NOT NULL,
  create_ms BIGINT NOT NULL
);

CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value BYTEA NOT NULL
);
