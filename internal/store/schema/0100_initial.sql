-- The schema of v0.1.0.
--
-- Each table belongs to one package, named by the last "owner" line above it. Only that package uses the table in its
-- SQL; a test checks this.
--
-- Every table of resources has the same first columns. seg is the last segment of the UID as a number. It is short and
-- unique, so it is the key to which other tables refer. a1, a2 and a3 are the segments of the ancestors at levels 1 to 3:
-- an index (a2, name) holds every subtree that starts at level 2, in the order of names.
--
-- Lines after "-- on sqlite" or "-- on postgresql" are for one engine.

-- owner: store

CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value BYTEA NOT NULL
);

-- The lowest migration that a program must know to serve this schema. It lets the previous version run during an
-- upgrade and after a rollback. CONTRIBUTING.md says when a migration may raise it.
CREATE TABLE schema_needs (
  id BIGINT PRIMARY KEY,
  version BIGINT NOT NULL
);
INSERT INTO schema_needs (id, version) VALUES (1, 100);

-- The number of resources of a kind: n below a group at any depth, children directly in it.
CREATE TABLE counters (
  kind TEXT NOT NULL,
  grp BIGINT NOT NULL,
  shard BIGINT NOT NULL,
  n BIGINT NOT NULL,
  children BIGINT NOT NULL,
  PRIMARY KEY (kind, grp, shard)
);

-- One row for every change, written in its transaction, for the audit log and webhooks.
CREATE TABLE outbox (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,
  grp TEXT NOT NULL,
  actor TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  before_json TEXT NOT NULL,
  after_json TEXT NOT NULL,
  -- The id of the request, for searches.
  request TEXT NOT NULL DEFAULT ''
);
CREATE INDEX outbox_request ON outbox (request, grp, seq) WHERE request <> '';

-- Revisions, by which replicas see whether their caches are current. Row 1 counts the changes to grants: a checker that
-- has applied every change up to rev knows all grants.
CREATE TABLE revision (
  id BIGINT PRIMARY KEY,
  rev BIGINT NOT NULL,
  -- Row 1: the time of the last change, which always rises, and the identity that makes the current change. A trigger
  -- sets the first and clears the second.
  at_ms BIGINT NOT NULL DEFAULT 0,
  actor TEXT NOT NULL DEFAULT ''
);
INSERT INTO revision (id, rev) VALUES (1, 0);
-- Row 3 counts the changes to budgets.
INSERT INTO revision (id, rev) VALUES (3, 0);
-- Row 4 counts the changes to pull rules.
INSERT INTO revision (id, rev) VALUES (4, 0);
-- Row 40 counts the changes to upstreams.
INSERT INTO revision (id, rev) VALUES (40, 0);

CREATE TABLE grant_changes (
  rev BIGINT PRIMARY KEY,
  identity TEXT NOT NULL,
  role TEXT NOT NULL
);

-- owner: store/lease
-- Work that one replica does for all. Its holder renews the lease before it ends.
CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  until_ms BIGINT NOT NULL
);
-- owner: store

-- owner: store/replica

-- The heartbeat of each replica, and the last change to grants that it has applied. A writer waits for all replicas.
CREATE TABLE replicas (
  id TEXT PRIMARY KEY,
  beat BIGINT NOT NULL,
  renew_ms BIGINT NOT NULL,
  grants_at BIGINT NOT NULL
);

-- The histories of the database. name identifies the server, the database and the timeline of PostgreSQL; rev and
-- since_ms are the revision and the time at which a process first saw it. A promoted standby and a restored back-up
-- begin a new history. SQLite has one process, and no row here.
CREATE TABLE history (
  id BIGINT PRIMARY KEY,
  name TEXT NOT NULL,
  rev BIGINT NOT NULL,
  since_ms BIGINT NOT NULL
);

-- owner: access/iamdb

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
  update_ms BIGINT NOT NULL,
  -- The name that people typed and that is shown to them.
  display_name TEXT NOT NULL DEFAULT ''
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

CREATE TABLE identity_providers (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  default_role BIGINT NOT NULL REFERENCES roles (seg),
  detail TEXT NOT NULL,
  secret BYTEA NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  -- A disabled provider can be tested, but is not offered for sign-in.
  disabled BOOLEAN NOT NULL DEFAULT FALSE,
  realm TEXT NOT NULL DEFAULT '',
  -- The epoch changes with the fields that decide whom a token identifies. Sessions and identities of earlier epochs
  -- are void.
  epoch BIGINT NOT NULL DEFAULT 0,
  -- The operator trusts this provider to identify the people of its issuer in all organizations.
  trusted BOOLEAN NOT NULL DEFAULT FALSE,
  -- The client at the provider is registered with the redirect address that all providers share.
  shared_redirect BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE UNIQUE INDEX identity_providers_uid ON identity_providers (uid);
CREATE INDEX identity_providers_role ON identity_providers (default_role);
CREATE INDEX identity_providers_parent_name ON identity_providers (parent, name, seg);
CREATE INDEX identity_providers_parent_create ON identity_providers (parent, create_ms, seg);
CREATE INDEX identity_providers_parent_seg ON identity_providers (parent, seg);
CREATE INDEX identity_providers_a1_name ON identity_providers (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX identity_providers_a2_name ON identity_providers (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX identity_providers_a3_name ON identity_providers (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX identity_providers_a1_create ON identity_providers (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX identity_providers_a2_create ON identity_providers (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX identity_providers_a3_create ON identity_providers (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX identity_providers_a1_update ON identity_providers (a1, update_ms, seg) WHERE a1 IS NOT NULL;

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
  update_ms BIGINT NOT NULL,
  -- The provider through which a person signed in.
  provider BIGINT REFERENCES identity_providers (seg),
  -- The namespace of a person's subject: the address of an issuer for the people of the installation, or the realm of
  -- a provider. It is '' for workloads.
  realm TEXT NOT NULL DEFAULT '',
  display_name TEXT NOT NULL DEFAULT ''
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
CREATE INDEX identities_provider ON identities (provider) WHERE provider IS NOT NULL;
-- Identities that trust a pattern of issuers, or static keys.
CREATE INDEX identities_static_keys ON identities (relationship, seg) WHERE issuer = '';
CREATE UNIQUE INDEX identities_realm ON identities (realm, subject) WHERE realm <> '';
CREATE INDEX identities_email ON identities (email, uid) WHERE email <> '';

-- identity is no foreign key, because a person may be bound before the first sign-in.
CREATE TABLE role_bindings (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  identity TEXT NOT NULL,
  role BIGINT NOT NULL REFERENCES roles (seg),
  create_ms BIGINT NOT NULL,
  -- The times from which and until which a binding counts; 0 is no limit. end_ms is the time at which the event about
  -- its end was written, or 0.
  start_ms BIGINT NOT NULL DEFAULT 0,
  expire_ms BIGINT NOT NULL DEFAULT 0,
  end_ms BIGINT NOT NULL DEFAULT 0,
  reason TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX role_bindings_uid ON role_bindings (uid);
CREATE INDEX role_bindings_identity ON role_bindings (identity, uid);
CREATE INDEX role_bindings_role ON role_bindings (role, uid);
CREATE INDEX role_bindings_parent_create ON role_bindings (parent, create_ms, seg);
CREATE INDEX role_bindings_parent_seg ON role_bindings (parent, seg);
CREATE INDEX role_bindings_a1_create ON role_bindings (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX role_bindings_a2_create ON role_bindings (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX role_bindings_a3_create ON role_bindings (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX role_bindings_due ON role_bindings (expire_ms) WHERE expire_ms > 0 AND end_ms = 0;

CREATE UNIQUE INDEX role_bindings_once_at ON role_bindings (parent, identity, role, expire_ms, start_ms);
-- The bindings of an organization that will end, in the order of their ends.
CREATE INDEX role_bindings_ending ON role_bindings (a1, expire_ms) WHERE expire_ms > 0 AND end_ms = 0;

-- owner: access/sessiondb
CREATE TABLE revocations (
  identity TEXT PRIMARY KEY,
  at_ms BIGINT NOT NULL
);
-- owner: access/iamdb

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

-- The RSA key that is published and rotates together with a signing key, because some verifiers support only RSA.
CREATE TABLE paired_keys (
  id TEXT PRIMARY KEY,
  pair TEXT NOT NULL UNIQUE REFERENCES signing_keys (id) ON DELETE CASCADE,
  algorithm TEXT NOT NULL,
  sealed BYTEA NOT NULL,
  create_ms BIGINT NOT NULL
);

-- At most one for each group. seg and uid are the segment and the UID of the group.
CREATE TABLE account_associations (
  seg BIGINT PRIMARY KEY REFERENCES groups (seg),
  uid TEXT NOT NULL,
  parent BIGINT,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX account_associations_uid ON account_associations (uid);
CREATE INDEX account_associations_parent_name ON account_associations (parent, name, seg);
CREATE INDEX account_associations_parent_create ON account_associations (parent, create_ms, seg);
CREATE INDEX account_associations_parent_seg ON account_associations (parent, seg);
CREATE INDEX account_associations_a1_name ON account_associations (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX account_associations_a2_name ON account_associations (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX account_associations_a3_name ON account_associations (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX account_associations_a1_create ON account_associations (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX account_associations_a2_create ON account_associations (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX account_associations_a3_create ON account_associations (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX account_associations_a1_update ON account_associations (a1, update_ms, seg) WHERE a1 IS NOT NULL;

-- The code of an invite is stored only as a digest.
CREATE TABLE group_invites (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  role BIGINT NOT NULL REFERENCES roles (seg),
  email TEXT NOT NULL,
  single_use BOOLEAN NOT NULL,
  key_id TEXT NOT NULL,
  digest BYTEA NOT NULL,
  expire_ms BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,

  update_ms BIGINT NOT NULL DEFAULT 0,
  -- The times and the reason of the binding that the invite creates.
  role_start_ms BIGINT NOT NULL DEFAULT 0,
  role_expire_ms BIGINT NOT NULL DEFAULT 0,
  reason TEXT NOT NULL DEFAULT '',
  -- The expire_ms for which an event was written. It differs from expire_ms if the invite was extended afterwards.
  told_ms BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX group_invites_uid ON group_invites (uid);
CREATE INDEX group_invites_key ON group_invites (key_id, uid);
CREATE INDEX group_invites_role ON group_invites (role);
CREATE INDEX group_invites_parent_create ON group_invites (parent, create_ms, seg);
CREATE INDEX group_invites_parent_seg ON group_invites (parent, seg);
CREATE INDEX group_invites_a1_create ON group_invites (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX group_invites_a2_create ON group_invites (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX group_invites_a3_create ON group_invites (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX group_invites_due ON group_invites (expire_ms) WHERE told_ms <> expire_ms;

-- The parent is an identity provider.
CREATE TABLE external_group_role_mappings (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES identity_providers (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  external_group TEXT NOT NULL,
  role BIGINT NOT NULL REFERENCES roles (seg),
  scope TEXT NOT NULL,
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX external_group_role_mappings_uid ON external_group_role_mappings (uid);
CREATE UNIQUE INDEX external_group_role_mappings_once ON external_group_role_mappings (parent, external_group, role, scope);
CREATE INDEX external_group_role_mappings_role ON external_group_role_mappings (role);
CREATE INDEX external_group_role_mappings_parent_create ON external_group_role_mappings (parent, create_ms, seg);
CREATE INDEX external_group_role_mappings_parent_seg ON external_group_role_mappings (parent, seg);
CREATE INDEX external_group_role_mappings_a1_create ON external_group_role_mappings (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX external_group_role_mappings_a2_create ON external_group_role_mappings (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX external_group_role_mappings_a3_create ON external_group_role_mappings (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- owner: access/sessiondb
-- A session is one sign-in. Each use of its refresh token replaces the token. Tokens are stored as digests, and used ones
-- are kept until the session ends, so that a second use is detected.
CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  identity TEXT NOT NULL,
  act TEXT NOT NULL,
  email TEXT NOT NULL,
  agent TEXT NOT NULL,
  address TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  used_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  -- The digest of the cookie, for sessions of browsers, which have no refresh tokens.
  cookie BYTEA,
  -- The provider that identified the person and its epoch, the group that is responsible for the session, and the
  -- narrowing of its tokens.
  provider TEXT NOT NULL DEFAULT '',
  epoch BIGINT NOT NULL DEFAULT 0,
  home TEXT NOT NULL DEFAULT '',
  narrowing TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sessions_identity ON sessions (identity, create_ms);
CREATE INDEX sessions_expire ON sessions (expire_ms);
CREATE UNIQUE INDEX sessions_cookie ON sessions (cookie) WHERE cookie IS NOT NULL;
CREATE INDEX sessions_provider ON sessions (provider) WHERE provider <> '';

CREATE TABLE refresh_tokens (
  digest BYTEA PRIMARY KEY,
  session TEXT NOT NULL REFERENCES sessions (id),
  expire_ms BIGINT NOT NULL,
  used BOOLEAN NOT NULL
);
CREATE INDEX refresh_tokens_session ON refresh_tokens (session);
-- owner: access/iamdb

-- The last refused exchanges of each identity.
CREATE TABLE denials (
  identity BIGINT NOT NULL REFERENCES identities (seg),
  at_ms BIGINT NOT NULL,
  request TEXT NOT NULL,
  detail TEXT NOT NULL
);
CREATE INDEX denials_identity ON denials (identity, at_ms);
CREATE INDEX denials_at ON denials (at_ms);

-- The last successful exchanges of each identity, at most one per second.
CREATE TABLE exchanges (
  identity BIGINT NOT NULL REFERENCES identities (seg) ON DELETE CASCADE,
  at_ms BIGINT NOT NULL,
  request TEXT NOT NULL,
  detail TEXT NOT NULL
);
CREATE INDEX exchanges_identity ON exchanges (identity, at_ms);
CREATE INDEX exchanges_at ON exchanges (at_ms);

-- owner: signin/tokendb
-- The result of the last check of each issuer that an identity trusts.
CREATE TABLE issuers (
  issuer TEXT PRIMARY KEY,
  check_ms BIGINT NOT NULL,
  success_ms BIGINT NOT NULL,
  problem TEXT NOT NULL,
  keys TEXT NOT NULL
);
-- owner: access/iamdb

-- The people who have signed in through each provider.
CREATE TABLE arrivals (
  identity TEXT NOT NULL,
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE,
  first_ms BIGINT NOT NULL,
  last_ms BIGINT NOT NULL,
  PRIMARY KEY (identity, provider)
);

-- Bindings that exist because a provider reports that a person is in a group. They are deleted when it no longer does.
CREATE TABLE mapped_bindings (
  binding BIGINT PRIMARY KEY REFERENCES role_bindings (seg) ON DELETE CASCADE,
  identity TEXT NOT NULL,
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE
);
CREATE INDEX mapped_bindings_identity ON mapped_bindings (identity, provider);
CREATE INDEX mapped_bindings_provider ON mapped_bindings (provider);

-- Used, expired and deleted invites, so that the error for an old link can name the reason.
CREATE TABLE ended_invites (
  uid TEXT PRIMARY KEY,
  digest BYTEA NOT NULL,
  reason TEXT NOT NULL,
  end_ms BIGINT NOT NULL
);
CREATE INDEX ended_invites_end ON ended_invites (end_ms);

-- The people who joined a group through an invite.
CREATE TABLE joins (
  grp BIGINT NOT NULL REFERENCES groups (seg) ON DELETE CASCADE,
  invite TEXT NOT NULL,
  identity TEXT NOT NULL,
  role TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);
CREATE INDEX joins_grp ON joins (grp, at_ms);

-- The people who belong to an organization by their own action: they founded it, have an account there, signed in through
-- one of its providers or accepted an invite. A person who was only bound by UID is not a member.
CREATE TABLE members (
  org BIGINT NOT NULL REFERENCES groups (seg) ON DELETE CASCADE,
  identity TEXT NOT NULL,
  PRIMARY KEY (org, identity)
);
CREATE INDEX members_identity ON members (identity);

-- owner: access/budgetdb
-- The limits of what a group and everything below it may use.
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

-- The number of pulls from groups with a budget for pulls, by day in UTC.
CREATE TABLE budget_days (
  day BIGINT NOT NULL,
  grp BIGINT NOT NULL,
  kind TEXT NOT NULL,
  shard BIGINT NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (day, grp, kind, shard)
);

-- owner: access/iamdb
-- The roles that can be requested in a group.
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

-- Requests for roles. They are kept when their group is deleted. pending is 1 until a request is decided.
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

-- owner: access/grantlog

-- The time of the last use of each capability of a binding, to the minute.
CREATE TABLE binding_uses (
  binding BIGINT NOT NULL REFERENCES role_bindings (seg) ON DELETE CASCADE,
  capability BIGINT NOT NULL,
  last_ms BIGINT NOT NULL,
  PRIMARY KEY (binding, capability)
);

-- The time of the last report about unused access to a group with a webhook.
CREATE TABLE unused_reports (
  grp BIGINT PRIMARY KEY REFERENCES groups (seg) ON DELETE CASCADE,
  last_ms BIGINT NOT NULL
);

-- The time from which the history of grants is complete.
CREATE TABLE access_history (
  id BIGINT PRIMARY KEY,
  since_ms BIGINT NOT NULL
);

-- The history of grants. A row was valid from from_ms until before to_ms. Triggers write these tables;
-- docs/decisions/0014-history-of-grants.md gives the reasons.
--
-- Two numbers mark unknown times. In to_ms, 9223372036854775807 means that the row is still valid. In from_ms, it means
-- that the transaction has not taken its revision yet; in to_ms, 9223372036854775806 means the same about the end of
-- the row.
--
-- Role bindings, with the columns that decide access. grp is the segment of the group, org of the organization.
CREATE TABLE binding_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  grp BIGINT NOT NULL,
  org BIGINT NOT NULL,
  identity TEXT NOT NULL,
  role BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  start_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL,
  made_by TEXT NOT NULL DEFAULT '',
  ended_by TEXT NOT NULL DEFAULT ''
);
CREATE INDEX binding_history_valid ON binding_history (seg) WHERE to_ms = 9223372036854775807;
CREATE INDEX binding_history_begun ON binding_history (org, from_ms);
CREATE INDEX binding_history_over ON binding_history (org, to_ms) WHERE to_ms < 9223372036854775806;
CREATE INDEX binding_history_start ON binding_history (org, start_ms) WHERE start_ms > 0;
CREATE INDEX binding_history_expire ON binding_history (org, expire_ms) WHERE expire_ms > 0;
CREATE INDEX binding_history_old ON binding_history (to_ms) WHERE to_ms < 9223372036854775806;
CREATE INDEX binding_history_undated ON binding_history (seq) WHERE from_ms = 9223372036854775807;
CREATE INDEX binding_history_ending ON binding_history (seq) WHERE to_ms = 9223372036854775806;
-- Finds the rows that were valid at a time without reading others.
CREATE INDEX binding_history_on ON binding_history (grp, to_ms, from_ms);
CREATE INDEX binding_history_of ON binding_history (identity, to_ms, from_ms);

-- Roles, with their capabilities.
CREATE TABLE role_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  name TEXT NOT NULL,
  capabilities TEXT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL,
  made_by TEXT NOT NULL DEFAULT '',
  ended_by TEXT NOT NULL DEFAULT ''
);
CREATE INDEX role_history_role ON role_history (seg, to_ms);
CREATE INDEX role_history_begun ON role_history (from_ms);
CREATE INDEX role_history_old ON role_history (to_ms) WHERE to_ms < 9223372036854775806;
CREATE INDEX role_history_undated ON role_history (seq) WHERE from_ms = 9223372036854775807;
CREATE INDEX role_history_ending ON role_history (seq) WHERE to_ms = 9223372036854775806;

-- Names of groups and of identities that are in a group. Names do not decide access, and creating a group takes no
-- revision, so their times are the times of the statements.
CREATE TABLE group_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  parent BIGINT,
  name TEXT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL
);
CREATE INDEX group_history_group ON group_history (seg, to_ms);
CREATE INDEX group_history_parent ON group_history (parent, to_ms);
CREATE INDEX group_history_old ON group_history (to_ms) WHERE to_ms < 9223372036854775806;

CREATE TABLE identity_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  name TEXT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL
);
CREATE INDEX identity_history_identity ON identity_history (seg, to_ms);
CREATE INDEX identity_history_old ON identity_history (to_ms) WHERE to_ms < 9223372036854775806;

-- on sqlite
INSERT INTO access_history (id, since_ms) VALUES (1, CAST(unixepoch('subsec') * 1000 AS INTEGER));

CREATE TRIGGER binding_history_made AFTER INSERT ON role_bindings BEGIN
  INSERT INTO binding_history (seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.parent, coalesce(NEW.a1, NEW.parent), NEW.identity, NEW.role, NEW.create_ms,
    NEW.start_ms, NEW.expire_ms, 9223372036854775807, 9223372036854775807);
END;

CREATE TRIGGER binding_history_changed AFTER UPDATE OF identity, role, start_ms, expire_ms ON role_bindings
WHEN OLD.identity <> NEW.identity OR OLD.role <> NEW.role OR OLD.start_ms <> NEW.start_ms OR OLD.expire_ms <> NEW.expire_ms
BEGIN
  UPDATE binding_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO binding_history (seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.parent, coalesce(NEW.a1, NEW.parent), NEW.identity, NEW.role, NEW.create_ms,
    NEW.start_ms, NEW.expire_ms, 9223372036854775807, 9223372036854775807);
END;

CREATE TRIGGER binding_history_ended AFTER DELETE ON role_bindings BEGIN
  UPDATE binding_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER role_history_made AFTER INSERT ON roles BEGIN
  INSERT INTO role_history (seg, uid, name, capabilities, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.name, NEW.capabilities, 9223372036854775807, 9223372036854775807);
END;

CREATE TRIGGER role_history_changed AFTER UPDATE OF name, capabilities ON roles
WHEN OLD.name <> NEW.name OR OLD.capabilities <> NEW.capabilities
BEGIN
  UPDATE role_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO role_history (seg, uid, name, capabilities, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.name, NEW.capabilities, 9223372036854775807, 9223372036854775807);
END;

CREATE TRIGGER role_history_ended AFTER DELETE ON roles BEGIN
  UPDATE role_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER group_history_made AFTER INSERT ON groups BEGIN
  INSERT INTO group_history (seg, uid, parent, name, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.parent, NEW.name, CAST(unixepoch('subsec') * 1000 AS INTEGER), 9223372036854775807);
END;

CREATE TRIGGER group_history_changed AFTER UPDATE OF name ON groups WHEN OLD.name <> NEW.name BEGIN
  UPDATE group_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO group_history (seg, uid, parent, name, from_ms, to_ms)
  SELECT NEW.seg, NEW.uid, NEW.parent, NEW.name, coalesce(max(to_ms), CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    9223372036854775807 FROM group_history WHERE seg = NEW.seg;
END;

CREATE TRIGGER group_history_ended AFTER DELETE ON groups BEGIN
  UPDATE group_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER identity_history_made AFTER INSERT ON identities WHEN NEW.parent IS NOT NULL BEGIN
  INSERT INTO identity_history (seg, uid, name, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.name, CAST(unixepoch('subsec') * 1000 AS INTEGER), 9223372036854775807);
END;

CREATE TRIGGER identity_history_changed AFTER UPDATE OF name ON identities
WHEN NEW.parent IS NOT NULL AND OLD.name <> NEW.name BEGIN
  UPDATE identity_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO identity_history (seg, uid, name, from_ms, to_ms)
  SELECT NEW.seg, NEW.uid, NEW.name, coalesce(max(to_ms), CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    9223372036854775807 FROM identity_history WHERE seg = NEW.seg;
END;

CREATE TRIGGER identity_history_ended AFTER DELETE ON identities WHEN OLD.parent IS NOT NULL BEGIN
  UPDATE identity_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER grant_history_dated AFTER UPDATE OF rev ON revision WHEN NEW.id = 1 BEGIN
  UPDATE revision SET at_ms = max(at_ms + 1, CAST(unixepoch('subsec') * 1000 AS INTEGER)), actor = '' WHERE id = 1;
  UPDATE binding_history SET from_ms = (SELECT at_ms FROM revision WHERE id = 1), made_by = NEW.actor
  WHERE from_ms = 9223372036854775807;
  UPDATE binding_history SET to_ms = (SELECT at_ms FROM revision WHERE id = 1), ended_by = NEW.actor
  WHERE to_ms = 9223372036854775806;
  UPDATE role_history SET from_ms = (SELECT at_ms FROM revision WHERE id = 1), made_by = NEW.actor
  WHERE from_ms = 9223372036854775807;
  UPDATE role_history SET to_ms = (SELECT at_ms FROM revision WHERE id = 1), ended_by = NEW.actor
  WHERE to_ms = 9223372036854775806;
END;

-- on postgresql
INSERT INTO access_history (id, since_ms) VALUES (1, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));

CREATE FUNCTION record_binding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE binding_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO binding_history (seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.parent, coalesce(NEW.a1, NEW.parent), NEW.identity, NEW.role, NEW.create_ms,
      NEW.start_ms, NEW.expire_ms, 9223372036854775807, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER binding_history_made AFTER INSERT OR DELETE ON role_bindings FOR EACH ROW EXECUTE FUNCTION record_binding();

CREATE TRIGGER binding_history_changed AFTER UPDATE OF identity, role, start_ms, expire_ms ON role_bindings FOR EACH ROW
WHEN (OLD.identity <> NEW.identity OR OLD.role <> NEW.role OR OLD.start_ms <> NEW.start_ms OR OLD.expire_ms <> NEW.expire_ms)
EXECUTE FUNCTION record_binding();

CREATE FUNCTION record_role() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE role_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO role_history (seg, uid, name, capabilities, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.name, NEW.capabilities, 9223372036854775807, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER role_history_made AFTER INSERT OR DELETE ON roles FOR EACH ROW EXECUTE FUNCTION record_role();

CREATE TRIGGER role_history_changed AFTER UPDATE OF name, capabilities ON roles FOR EACH ROW
WHEN (OLD.name <> NEW.name OR OLD.capabilities <> NEW.capabilities) EXECUTE FUNCTION record_role();

CREATE FUNCTION record_group() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  at BIGINT := CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT);
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE group_history SET to_ms = greatest(from_ms, at) WHERE seg = OLD.seg AND to_ms = 9223372036854775807
    RETURNING to_ms INTO at;
    at := coalesce(at, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO group_history (seg, uid, parent, name, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.parent, NEW.name, at, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER group_history_made AFTER INSERT OR DELETE ON groups FOR EACH ROW EXECUTE FUNCTION record_group();

CREATE TRIGGER group_history_changed AFTER UPDATE OF name ON groups FOR EACH ROW
WHEN (OLD.name <> NEW.name) EXECUTE FUNCTION record_group();

CREATE FUNCTION record_identity() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  at BIGINT := CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT);
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE identity_history SET to_ms = greatest(from_ms, at) WHERE seg = OLD.seg AND to_ms = 9223372036854775807
    RETURNING to_ms INTO at;
    at := coalesce(at, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO identity_history (seg, uid, name, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.name, at, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER identity_history_made AFTER INSERT ON identities FOR EACH ROW
WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION record_identity();

CREATE TRIGGER identity_history_changed AFTER UPDATE OF name ON identities FOR EACH ROW
WHEN (NEW.parent IS NOT NULL AND OLD.name <> NEW.name) EXECUTE FUNCTION record_identity();

CREATE TRIGGER identity_history_ended AFTER DELETE ON identities FOR EACH ROW
WHEN (OLD.parent IS NOT NULL) EXECUTE FUNCTION record_identity();

-- The row of the revision is locked from here until the commit, so the times are in the order of the commits.
CREATE FUNCTION date_grant_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.at_ms := greatest(OLD.at_ms + 1, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
  UPDATE binding_history SET from_ms = NEW.at_ms, made_by = NEW.actor WHERE from_ms = 9223372036854775807;
  UPDATE binding_history SET to_ms = NEW.at_ms, ended_by = NEW.actor WHERE to_ms = 9223372036854775806;
  UPDATE role_history SET from_ms = NEW.at_ms, made_by = NEW.actor WHERE from_ms = 9223372036854775807;
  UPDATE role_history SET to_ms = NEW.at_ms, ended_by = NEW.actor WHERE to_ms = 9223372036854775806;
  NEW.actor := '';
  RETURN NEW;
END $$;

CREATE TRIGGER grant_history_dated BEFORE UPDATE OF rev ON revision FOR EACH ROW
WHEN (NEW.id = 1) EXECUTE FUNCTION date_grant_history();

-- on both
UPDATE revision SET at_ms = (SELECT since_ms FROM access_history WHERE id = 1) WHERE id = 1;

-- owner: signin/signindb

-- The account of a person who signs in with a password or a passkey. name is the e-mail address in lower case, which is
-- unique. A one-time link is stored only as a digest.
CREATE TABLE accounts (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  display TEXT NOT NULL,
  identity TEXT NOT NULL,
  password TEXT NOT NULL,
  totp BYTEA NOT NULL,
  totp_step BIGINT NOT NULL,
  link BYTEA NOT NULL,
  link_ms BIGINT NOT NULL,
  link_factors BOOLEAN NOT NULL,
  used_ms BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  -- The identity that made the one-time link. Its capabilities at the time of use decide what the link allows. It is ''
  -- for the link that set-up gives the first owner.
  link_maker TEXT NOT NULL DEFAULT '',
  -- The password alone is enough to sign in, although the account has passkeys.
  password_alone BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE UNIQUE INDEX accounts_uid ON accounts (uid);
CREATE UNIQUE INDEX accounts_identity ON accounts (identity);
CREATE INDEX accounts_link ON accounts (link) WHERE link_ms > 0;
CREATE INDEX accounts_parent_name ON accounts (parent, name, seg);
CREATE INDEX accounts_parent_create ON accounts (parent, create_ms, seg);
CREATE INDEX accounts_parent_seg ON accounts (parent, seg);
CREATE INDEX accounts_a1_name ON accounts (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX accounts_a2_name ON accounts (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX accounts_a3_name ON accounts (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX accounts_a1_create ON accounts (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX accounts_a2_create ON accounts (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX accounts_a3_create ON accounts (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX accounts_a1_update ON accounts (a1, update_ms, seg) WHERE a1 IS NOT NULL;
CREATE UNIQUE INDEX accounts_parent_email ON accounts (parent, name);
CREATE INDEX accounts_email ON accounts (name, create_ms, seg);

CREATE TABLE passkeys (
  id BYTEA PRIMARY KEY,
  account BIGINT NOT NULL REFERENCES accounts (seg),
  name TEXT NOT NULL,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  used_ms BIGINT NOT NULL
);
CREATE INDEX passkeys_account ON passkeys (account, create_ms);

-- One-time values that were used.
CREATE TABLE spent (
  digest BYTEA PRIMARY KEY,
  expire_ms BIGINT NOT NULL
);
CREATE INDEX spent_expire ON spent (expire_ms);

-- Encrypted results that wait for the program that started the sign-in.
CREATE TABLE handoffs (
  digest BYTEA PRIMARY KEY,
  detail BYTEA NOT NULL,
  expire_ms BIGINT NOT NULL
);
CREATE INDEX handoffs_expire ON handoffs (expire_ms);

-- Programs that wait for a sign-in on another device.
CREATE TABLE devices (
  digest BYTEA PRIMARY KEY,
  user_code TEXT NOT NULL,
  detail TEXT NOT NULL,
  state BIGINT NOT NULL,
  granted BYTEA NOT NULL,
  poll_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX devices_user_code ON devices (user_code);
CREATE INDEX devices_expire ON devices (expire_ms);

-- One-time codes that replace a passkey or an authenticator app.
CREATE TABLE recovery_codes (
  account BIGINT NOT NULL REFERENCES accounts (seg) ON DELETE CASCADE,
  digest BYTEA NOT NULL,
  PRIMARY KEY (account, digest)
);

-- The sign-in rules of each organization.
CREATE TABLE sign_in_rules (
  org BIGINT PRIMARY KEY REFERENCES groups (seg) ON DELETE CASCADE,
  local_off BOOLEAN NOT NULL
);

-- owner: registry/registrydb

CREATE TABLE repos (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  detail TEXT NOT NULL,
  readme TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX repos_uid ON repos (uid);
CREATE UNIQUE INDEX repos_parent_name ON repos (parent, name);
CREATE INDEX repos_parent_create ON repos (parent, create_ms, seg);
CREATE INDEX repos_parent_seg ON repos (parent, seg);
CREATE INDEX repos_a1_name ON repos (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX repos_a2_name ON repos (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX repos_a3_name ON repos (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX repos_a1_create ON repos (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX repos_a2_create ON repos (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX repos_a3_create ON repos (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX repos_a1_update ON repos (a1, update_ms, seg) WHERE a1 IS NOT NULL;
-- The repos with a source, including those whose sync has stopped.
CREATE INDEX repos_following ON repos (uid) WHERE replace(detail, '"syncConfig":', '') <> detail;

-- Blobs in the storage, at path. A row promises that the bytes are complete, verified and durable.
CREATE TABLE blobs (
  digest TEXT PRIMARY KEY,
  size BIGINT NOT NULL,
  path TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  -- The time at which the bytes were found to be missing or damaged. Such a blob is not served, and a push replaces its
  -- bytes.
  rotten_ms BIGINT
);
CREATE UNIQUE INDEX blobs_path ON blobs (path);
CREATE INDEX blobs_rotten ON blobs (rotten_ms) WHERE rotten_ms IS NOT NULL;

-- The repos that may serve a blob. A blob in no repo is garbage. idle_ms is the time at which the collector first saw that
-- no manifest of the repo needs the blob; a request that reports the blob as existing clears it.
CREATE TABLE repo_blobs (
  repo BIGINT NOT NULL REFERENCES repos (seg),
  digest TEXT NOT NULL REFERENCES blobs (digest),
  create_ms BIGINT NOT NULL,
  idle_ms BIGINT,
  PRIMARY KEY (repo, digest)
);
CREATE INDEX repo_blobs_digest ON repo_blobs (digest);
CREATE INDEX repo_blobs_idle ON repo_blobs (idle_ms) WHERE idle_ms IS NOT NULL;

CREATE TABLE manifests (
  repo BIGINT NOT NULL REFERENCES repos (seg),
  digest TEXT NOT NULL,
  media_type TEXT NOT NULL,
  size BIGINT NOT NULL,
  subject TEXT NOT NULL,
  artifact_type TEXT NOT NULL,
  annotations TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  body BYTEA NOT NULL,
  -- The UID of the identity that pushed the manifest.
  actor TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (repo, digest)
);
CREATE INDEX manifests_subject ON manifests (repo, subject, digest) WHERE subject <> '';
-- Finds the repos of a manifest by its digest.
CREATE INDEX manifests_digest ON manifests (digest, repo);
-- Images that name their base image.
CREATE INDEX manifests_based ON manifests (repo) WHERE replace(annotations, 'org.opencontainers.image.base.digest', '') <> annotations;

-- The blobs and manifests that a manifest needs in its repo. Exactly one of blob and child is set, so that a foreign key
-- keeps it.
CREATE TABLE manifest_refs (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  blob TEXT NULL,
  child TEXT NULL,
  FOREIGN KEY (repo, digest) REFERENCES manifests (repo, digest),
  FOREIGN KEY (repo, blob) REFERENCES repo_blobs (repo, digest),
  FOREIGN KEY (repo, child) REFERENCES manifests (repo, digest)
);
CREATE INDEX manifest_refs_digest ON manifest_refs (repo, digest);
CREATE INDEX manifest_refs_blob ON manifest_refs (repo, blob) WHERE blob IS NOT NULL;
CREATE INDEX manifest_refs_child ON manifest_refs (repo, child) WHERE child IS NOT NULL;

-- The parent of a tag is its repo. class is a resource.TagClass.
CREATE TABLE tags (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES repos (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  class BIGINT NOT NULL,
  deprecated BOOLEAN NOT NULL,
  bundles TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  FOREIGN KEY (parent, digest) REFERENCES manifests (repo, digest)
);
CREATE UNIQUE INDEX tags_uid ON tags (uid);
CREATE UNIQUE INDEX tags_parent_name ON tags (parent, name);
CREATE INDEX tags_parent_update ON tags (parent, update_ms, seg);
CREATE INDEX tags_parent_seg ON tags (parent, seg);
CREATE INDEX tags_digest ON tags (digest, uid);
CREATE INDEX tags_a1_name ON tags (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX tags_a2_name ON tags (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX tags_a3_name ON tags (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX tags_a1_update ON tags (a1, update_ms, seg) WHERE a1 IS NOT NULL;
-- The few deprecated tags.
CREATE INDEX tags_deprecated ON tags (uid) WHERE deprecated;
-- Tags in the order of their creation.
CREATE INDEX tags_parent_create ON tags (parent, create_ms, seg);
CREATE INDEX tags_a1_create ON tags (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX tags_a2_create ON tags (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX tags_a3_create ON tags (a3, create_ms, seg) WHERE a3 IS NOT NULL;
-- The tags of an image.
CREATE INDEX tags_parent_digest ON tags (parent, digest, name);

-- Every move of a tag. digest is '' for a deletion.
CREATE TABLE tag_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  repo BIGINT NOT NULL REFERENCES repos (seg),
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  actor TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);
CREATE INDEX tag_history_name ON tag_history (repo, name, seq);
-- The tags that an image had.
CREATE INDEX tag_history_digest ON tag_history (repo, digest, seq);

-- Unfinished uploads. state is the state of the hash after the first size bytes. Until lease_ms, only the holder may
-- write.
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  grp TEXT NOT NULL,
  repo TEXT NOT NULL,
  algorithm TEXT NOT NULL,
  size BIGINT NOT NULL,
  state BYTEA NOT NULL,
  holder TEXT NOT NULL,
  lease_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE INDEX uploads_update ON uploads (update_ms);
-- The uploads of a group, because they count as its stored bytes.
CREATE INDEX uploads_grp ON uploads (grp);

-- The settings of a group for the repos in it and below it.
CREATE TABLE registry_settings (
  grp BIGINT PRIMARY KEY REFERENCES groups (seg),
  uid TEXT NOT NULL,
  detail TEXT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX registry_settings_uid ON registry_settings (uid);

-- The charts that deploy the images of a repo.
CREATE TABLE deployments (
  repo BIGINT PRIMARY KEY REFERENCES repos (seg),
  uid TEXT NOT NULL,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX deployments_uid ON deployments (uid);

-- One row for each deleted repo, manifest or tag. The parent is its repo, or the repo itself. kind is a
-- registry.TrashKind.
CREATE TABLE trash (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  kind BIGINT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  together BOOLEAN NOT NULL,
  size BIGINT NOT NULL,
  detail TEXT NOT NULL,
  expire_ms BIGINT NOT NULL,
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX trash_uid ON trash (uid);
CREATE UNIQUE INDEX trash_what ON trash (parent, kind, name, digest);
CREATE INDEX trash_expire ON trash (expire_ms);
CREATE INDEX trash_digest ON trash (digest, uid);
CREATE INDEX trash_parent_create ON trash (parent, create_ms, seg);
CREATE INDEX trash_parent_seg ON trash (parent, seg);
CREATE INDEX trash_a1_create ON trash (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX trash_a2_create ON trash (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX trash_a3_create ON trash (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- Repos in the trash. Their other fields are in the detail of their entry.
CREATE TABLE trash_repos (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  readme TEXT NOT NULL,
  deployment TEXT NULL,
  deployment_create_ms BIGINT,
  deployment_update_ms BIGINT
);
CREATE UNIQUE INDEX trash_repos_uid ON trash_repos (uid);
CREATE INDEX trash_repos_parent ON trash_repos (parent);

-- The tags of repos in the trash. Tags that were deleted separately are in the detail of their entry.
CREATE TABLE trash_tags (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  class BIGINT NOT NULL,
  deprecated BOOLEAN NOT NULL,
  bundles TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE INDEX trash_tags_parent ON trash_tags (parent);

-- The tag history of repos in the trash.
CREATE TABLE trash_tag_history (
  seq BIGINT PRIMARY KEY,
  repo BIGINT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  actor TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);
CREATE INDEX trash_tag_history_repo ON trash_tag_history (repo, seq);

-- Manifests in the trash. entry is the segment of the entry of the manifest or of its repo.
CREATE TABLE trash_manifests (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  entry BIGINT NOT NULL,
  media_type TEXT NOT NULL,
  size BIGINT NOT NULL,
  subject TEXT NOT NULL,
  artifact_type TEXT NOT NULL,
  annotations TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  body BYTEA NOT NULL,
  actor TEXT NOT NULL,
  PRIMARY KEY (repo, digest)
);
CREATE INDEX trash_manifests_subject ON trash_manifests (repo, subject, digest) WHERE subject <> '';

-- The blobs and manifests that a manifest in the trash needs.
CREATE TABLE trash_refs (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  blob TEXT NULL,
  child TEXT NULL
);
CREATE INDEX trash_refs_digest ON trash_refs (repo, digest);
CREATE INDEX trash_refs_blob ON trash_refs (repo, blob) WHERE blob IS NOT NULL;

-- Blobs that a repo no longer serves and that its trash needs.
CREATE TABLE trash_blobs (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  uid TEXT NOT NULL,
  PRIMARY KEY (repo, digest)
);
CREATE INDEX trash_blobs_digest ON trash_blobs (digest);

-- The manifests and blobs that a manifest of a mirrored repo needs and that were not fetched yet. need is their digest.
CREATE TABLE awaited (
  repo BIGINT NOT NULL,
  need TEXT NOT NULL,
  digest TEXT NOT NULL,
  manifest BOOLEAN NOT NULL,
  PRIMARY KEY (repo, need, digest),
  FOREIGN KEY (repo, digest) REFERENCES manifests (repo, digest) ON DELETE CASCADE
);
CREATE INDEX awaited_digest ON awaited (repo, digest);

-- Pulls and pushes. The parent is the repo.
CREATE TABLE pulls (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES repos (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  push BOOLEAN NOT NULL,
  digest TEXT NOT NULL,
  tag TEXT NOT NULL,
  identity TEXT NOT NULL,
  remote TEXT NOT NULL,
  agent TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  -- The number of further pulls in this record, because anonymous pulls are recorded together.
  more BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX pulls_uid ON pulls (uid);
-- For pruning. It is by day, because a planner would use an index by time for the lists.
CREATE INDEX pulls_day ON pulls ((create_ms / 86400000));
CREATE INDEX pulls_digest ON pulls (digest, uid);
CREATE INDEX pulls_identity ON pulls (identity, uid);
CREATE INDEX pulls_parent_create ON pulls (parent, create_ms, seg);
CREATE INDEX pulls_parent_seg ON pulls (parent, seg);
CREATE INDEX pulls_a1_create ON pulls (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX pulls_a2_create ON pulls (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX pulls_a3_create ON pulls (a3, create_ms, seg) WHERE a3 IS NOT NULL;
-- The pulls from an organization by identity and time.
CREATE INDEX pulls_a1_identity ON pulls (a1, identity, create_ms) WHERE a1 IS NOT NULL;
-- The last pull of a manifest of a repo.
CREATE INDEX pulls_parent_digest ON pulls (parent, digest, create_ms);

-- owner: registry/imagedb

-- The images of a repo, and the state of their inspection. number is the position in the bitmaps below, and is never
-- reused. due_ms is the time of the next inspection; a worker that inspects the image moves it into the future, so that no
-- other worker takes it. The lowest rank comes first, and organizations take turns within a rank. state is a
-- registry.ImageState.
CREATE TABLE images (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  root BIGINT NOT NULL,
  uid TEXT NOT NULL,
  number BIGINT,
  state BIGINT NOT NULL,
  reason TEXT NOT NULL,
  extractors BIGINT NOT NULL,
  tries BIGINT NOT NULL,
  rank BIGINT NOT NULL,
  due_ms BIGINT,
  update_ms BIGINT NOT NULL,
  -- The time at which the image was first indexed.
  indexed_ms BIGINT,
  -- platform is the operating system and architecture. sbom_due_ms and sbom_rank queue the image for reading its
  -- attached documents, as due_ms and rank do for its inspection. sbom_reader is the version of the last reader.
  platform TEXT NOT NULL DEFAULT '',
  sbom_due_ms BIGINT,
  sbom_rank BIGINT NOT NULL DEFAULT 0,
  sbom_reader BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (repo, digest)
);
CREATE UNIQUE INDEX images_number ON images (number) WHERE number IS NOT NULL;
CREATE INDEX images_digest ON images (digest);
CREATE INDEX images_due ON images (rank, root, due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX images_extractors ON images (extractors) WHERE due_ms IS NULL;
-- The images of an organization by digest, and those whose packages are unknown.
CREATE INDEX images_root_digest ON images (root, digest);
CREATE INDEX images_unknown ON images (root, state) WHERE state = 0 OR state = 2;
CREATE INDEX images_sbom_due ON images (sbom_rank, root, sbom_due_ms) WHERE sbom_due_ms IS NOT NULL;
CREATE INDEX images_sbom_reader ON images (sbom_reader) WHERE sbom_due_ms IS NULL;

-- Images are numbered, and 2,048 numbers are a chunk. A transaction that changes a bitmap of a chunk locks the row of the
-- chunk first. used is the number of assigned numbers, gone the number of these whose image was deleted.
CREATE TABLE image_chunks (
  chunk BIGINT PRIMARY KEY,
  used BIGINT NOT NULL,
  gone BIGINT NOT NULL
);

-- The images of a chunk that are in a repo, or in or below a group.
CREATE TABLE group_images (
  grp BIGINT NOT NULL,
  chunk BIGINT NOT NULL,
  bits BYTEA NOT NULL,
  PRIMARY KEY (grp, chunk)
);

-- owner: registry/pulldb

-- The times at which records of pulls and pushes were lost.
CREATE TABLE pull_losses (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  n BIGINT NOT NULL,
  at_ms BIGINT NOT NULL
);

-- owner: registry/retentiondb

-- The retention rules of a group or a repo. place is its segment. due_ms is the time of the next scheduled run, taken the
-- last repo that the current run has processed.
CREATE TABLE retention (
  place BIGINT PRIMARY KEY,
  root BIGINT NOT NULL,
  uid TEXT NOT NULL,
  detail TEXT NOT NULL,
  update_ms BIGINT NOT NULL,
  due_ms BIGINT NULL,
  taken TEXT NOT NULL
);
CREATE UNIQUE INDEX retention_uid ON retention (uid);
CREATE INDEX retention_due ON retention (due_ms, root) WHERE due_ms IS NOT NULL;

-- owner: registry/sourcedb

-- The registry that a group mirrors, at most one for each group. secret is encrypted.
CREATE TABLE registry_upstreams (
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
CREATE UNIQUE INDEX registry_upstreams_uid ON registry_upstreams (uid);
CREATE UNIQUE INDEX registry_upstreams_parent ON registry_upstreams (parent);
CREATE INDEX registry_upstreams_a1_name ON registry_upstreams (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX registry_upstreams_a2_name ON registry_upstreams (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX registry_upstreams_a3_name ON registry_upstreams (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX registry_upstreams_a1_create ON registry_upstreams (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX registry_upstreams_a2_create ON registry_upstreams (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX registry_upstreams_a3_create ON registry_upstreams (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- The time at which a tag of a mirrored repo was last seen at the upstream.
CREATE TABLE upstream_tags (
  repo BIGINT NOT NULL REFERENCES repos (seg) ON DELETE CASCADE,
  name TEXT NOT NULL,
  seen_ms BIGINT NOT NULL,
  PRIMARY KEY (repo, name)
);

-- The sync state of each repo with a source. A row counts only if the detail of the repo names the source. identity set
-- the source, and the sync acts with its capabilities. due_ms is the time of the next run, or NULL. The run is held by
-- holder until until_ms; again means that the source changed during the run. ran_ms is the end of the last run,
-- success_ms the last time at which both repos were equal, fail_ms the time since which they differ, and failed has the
-- names of some tags that differ.
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

-- The last event that was considered for syncs, or -1. A transaction that sets a source locks the row, so that two
-- transactions cannot form a loop.
CREATE TABLE follow_cursor (
  id BIGINT PRIMARY KEY,
  seq BIGINT NOT NULL
);
INSERT INTO follow_cursor (id, seq) VALUES (1, -1);

-- owner: registry/signerdb

-- The signers whose signatures are accepted.
CREATE TABLE signers (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX signers_uid ON signers (uid);
CREATE UNIQUE INDEX signers_parent_name ON signers (parent, name);
CREATE INDEX signers_parent_create ON signers (parent, create_ms, seg);
CREATE INDEX signers_parent_seg ON signers (parent, seg);
CREATE INDEX signers_a1_name ON signers (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX signers_a2_name ON signers (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX signers_a3_name ON signers (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX signers_a1_create ON signers (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX signers_a2_create ON signers (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX signers_a3_create ON signers (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- owner: vuln/advisory/advisorydb

CREATE TABLE advisories (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  advisory_id TEXT NOT NULL,
  partition_id BIGINT NOT NULL,
  block BIGINT NOT NULL,
  digest BYTEA NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  body TEXT NOT NULL,
  affected TEXT NOT NULL,
  generation BIGINT NOT NULL DEFAULT -1
);
CREATE UNIQUE INDEX advisories_id ON advisories (parent, advisory_id);
CREATE INDEX advisories_parent_seg ON advisories (parent, seg);
CREATE INDEX advisories_parent_update ON advisories (parent, update_ms, seg);
CREATE INDEX advisories_partition_id_seg ON advisories (partition_id, seg);
CREATE INDEX advisories_partition_id_update ON advisories (partition_id, update_ms, seg);

CREATE TABLE advisory_partitions (
  id BIGINT PRIMARY KEY,
  grp TEXT NOT NULL,
  signature TEXT NOT NULL
);
CREATE INDEX advisory_partitions_grp ON advisory_partitions (grp);

-- Advisories of a group that were imported at about the same time are a generation, and their keys of names and aliases
-- are stored together. Otherwise an import into a million advisories would change one index page for each of them.
-- n is the approximate number of advisories in a generation.
CREATE TABLE advisory_generations (
  grp TEXT NOT NULL,
  generation BIGINT NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (grp, generation)
);

-- The fields with many values by which advisories are filtered. key is a digest of the group, the field and the value.
CREATE TABLE advisory_names (
  key BIGINT NOT NULL,
  seg BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  PRIMARY KEY (key, seg)
);
CREATE INDEX advisory_names_update ON advisory_names (key, update_ms, seg);

-- The same, for values that few advisories share.
CREATE TABLE advisory_aliases (
  key BIGINT NOT NULL,
  seg BIGINT NOT NULL,
  PRIMARY KEY (key, seg)
);

-- The searchable text of many advisories in one row.
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
  update_ms BIGINT NOT NULL,
  -- The expected format, a vuln.ExploitFormat, or '' to detect it.
  format TEXT NOT NULL DEFAULT ''
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

-- Advisories that were changed or deleted since packages were last compared with them.
CREATE TABLE advisory_changes (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  root BIGINT NOT NULL,
  advisory BIGINT NOT NULL,
  -- The feed or the other source of the change.
  source TEXT NOT NULL DEFAULT ''
);
CREATE INDEX advisory_changes_root ON advisory_changes (root);

-- The ecosystems of the current and former advisories of a group.
CREATE TABLE advisory_ecosystems (
  ecosystem TEXT NOT NULL,
  grp TEXT NOT NULL,
  PRIMARY KEY (ecosystem, grp)
);

-- Lists of exploited vulnerabilities, and of the probability of exploitation. A group has at most one list of each format
-- (vuln.ExploitFormat), and an import replaces the whole list. uid is the UID of the group. released_ms is the date that
-- the list states.
CREATE TABLE exploit_lists (
  grp BIGINT NOT NULL REFERENCES groups (seg) ON DELETE CASCADE,
  format TEXT NOT NULL,
  uid TEXT NOT NULL,
  version TEXT NOT NULL,
  released_ms BIGINT NOT NULL,
  entries BIGINT NOT NULL,
  source TEXT NOT NULL,
  update_ms BIGINT NOT NULL,
  PRIMARY KEY (grp, format)
);
CREATE INDEX exploit_lists_uid ON exploit_lists (uid, format);

-- The entries of a list. A list of 300,000 entries is replaced every day, so the entries of 200 consecutive CVE numbers
-- are one row, which is small enough to be stored inline. chunk is the number of a CVE (vuln.CVE) divided by 200; body is
-- encoded by advisorydb.
CREATE TABLE exploit_chunks (
  grp BIGINT NOT NULL,
  format TEXT NOT NULL,
  chunk BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (grp, format, chunk),
  FOREIGN KEY (grp, format) REFERENCES exploit_lists (grp, format) ON DELETE CASCADE
);

-- owner: vuln/findingdb

-- Every package version that was found in an image. key is a digest of the columns below it. An owned package is part of
-- a distribution's package, and the advisories of the distribution cover it. A package that is not matched was not
-- compared with the advisories yet.
CREATE TABLE packages (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key TEXT NOT NULL,
  ecosystem TEXT NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  source_name TEXT NOT NULL,
  source_version TEXT NOT NULL,
  purl TEXT NOT NULL,
  owned BOOLEAN NOT NULL,
  matched BOOLEAN NOT NULL
);
CREATE UNIQUE INDEX packages_key ON packages (key);
CREATE INDEX packages_unmatched ON packages (seq) WHERE NOT matched;
CREATE INDEX packages_name ON packages (name, ecosystem);
CREATE INDEX packages_source ON packages (source_name, ecosystem) WHERE source_name <> '';

-- The images of a chunk that contain a package. Bits of deleted images may remain.
CREATE TABLE package_images (
  chunk BIGINT NOT NULL,
  package BIGINT NOT NULL,
  bits BYTEA NOT NULL,
  PRIMARY KEY (chunk, package)
);

-- The result of the inspection of an image, for all repos that have it. packages and places are encoded by findingdb.
CREATE TABLE inspections (
  digest TEXT PRIMARY KEY,
  extractors BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  distribution TEXT NOT NULL,
  warnings TEXT NOT NULL,
  packages BYTEA NOT NULL,
  places BYTEA NOT NULL
);

-- The advisories that affect a package version, with the time since which they do. root is the organization of the
-- advisory, so that a query reads only rows of the organizations it asks about.
CREATE TABLE matches (
  package BIGINT NOT NULL,
  root BIGINT NOT NULL,
  advisory BIGINT NOT NULL,
  since_ms BIGINT NOT NULL,
  -- Columns that let a list over many images avoid reading the advisory: the CVSS score in tenths, a JSON array of the
  -- fixed versions, and the source of the advisory.
  score BIGINT NOT NULL DEFAULT 0,
  fixed TEXT NOT NULL DEFAULT '[]',
  opened_by TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (package, root, advisory)
);
CREATE INDEX matches_advisory ON matches (advisory, package);

-- The advisories that affect or affected a package. names is a JSON array of the ID and all aliases. Rows are kept after
-- the advisory is deleted, because the history of findings needs them.
CREATE TABLE matched_advisories (
  advisory BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  names TEXT NOT NULL,
  -- The alias set: advisories of a group that share a name, or shared one. Its number is the key of one of them. Sets
  -- are merged but never split, so that the events about them are consistent.
  alias_set BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX matched_advisories_set ON matched_advisories (alias_set);

-- Matches that have ended.
CREATE TABLE past_matches (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  package BIGINT NOT NULL,
  root BIGINT NOT NULL,
  advisory BIGINT NOT NULL,
  since_ms BIGINT NOT NULL,
  until_ms BIGINT NOT NULL,
  score BIGINT NOT NULL,
  fixed TEXT NOT NULL,
  opened_by TEXT NOT NULL,
  closed_by TEXT NOT NULL
);
CREATE INDEX past_matches_package ON past_matches (package, root, until_ms);
CREATE INDEX past_matches_advisory ON past_matches (advisory, package);

-- Accepted findings. target is the segment of the group or repo to which the exception applies: its own group, or a group
-- or repo below it.
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

-- Deleted exceptions that had an effect, because the history of open findings depends on them.
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

-- Places where images run, such as clusters, with the identity, the time and the expiry of the last report. grp and uid
-- are the segment and the UID of the group that received the report. entries is the number of entries. unknown is the
-- number of entries without a digest.
CREATE TABLE inventory_places (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  grp BIGINT NOT NULL,
  root BIGINT NOT NULL,
  uid TEXT NOT NULL,
  name TEXT NOT NULL,
  identity TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  entries BIGINT NOT NULL,
  unknown BIGINT NOT NULL
);
CREATE UNIQUE INDEX inventory_places_name ON inventory_places (grp, name);
CREATE INDEX inventory_places_root ON inventory_places (root);

-- The images that run at a place. digest is '' if it is unknown.
CREATE TABLE inventory_entries (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  place BIGINT NOT NULL,
  root BIGINT NOT NULL,
  digest TEXT NOT NULL,
  namespace TEXT NOT NULL,
  workload TEXT NOT NULL,
  container TEXT NOT NULL,
  image TEXT NOT NULL,
  platform TEXT NOT NULL,
  copies BIGINT NOT NULL
);
CREATE INDEX inventory_entries_place ON inventory_entries (place, seq);
CREATE INDEX inventory_entries_digest ON inventory_entries (root, digest, place);

-- The packages of an image according to the documents of one attached manifest, encoded by findingdb, and the parts that
-- could not be read.
CREATE TABLE image_sboms (
  repo BIGINT NOT NULL,
  image TEXT NOT NULL,
  manifest TEXT NOT NULL,
  actor TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  format TEXT NOT NULL,
  tool TEXT NOT NULL,
  warnings TEXT NOT NULL,
  packages BYTEA NOT NULL,
  PRIMARY KEY (repo, image, manifest)
);
CREATE INDEX image_sboms_manifest ON image_sboms (repo, manifest);
CREATE INDEX image_sboms_image ON image_sboms (image);

-- The names of an alias set. key is a digest of the group and the name.
CREATE TABLE alias_names (
  key TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  alias_set BIGINT NOT NULL
);
CREATE INDEX alias_names_set ON alias_names (alias_set);

-- Images whose packages changed since the last events about them. told has the packages of those events. If quiet, the
-- change causes no event.
CREATE TABLE image_news (
  number BIGINT PRIMARY KEY,
  root BIGINT NOT NULL,
  told BYTEA NOT NULL,
  quiet BOOLEAN NOT NULL
);
CREATE INDEX image_news_root ON image_news (root);

-- owner: events/eventdb

-- Webhooks. Every event up to cursor_seq was delivered, is in deliveries, or does not match the subscription.
CREATE TABLE subscriptions (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  sink TEXT NOT NULL,
  cursor_seq BIGINT NOT NULL,
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX subscriptions_uid ON subscriptions (uid);
CREATE INDEX subscriptions_parent_create ON subscriptions (parent, create_ms, seg);
CREATE INDEX subscriptions_parent_seg ON subscriptions (parent, seg);
CREATE INDEX subscriptions_a1_create ON subscriptions (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX subscriptions_a2_create ON subscriptions (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX subscriptions_a3_create ON subscriptions (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- Events that could not be delivered, with their complete content, because the outbox is pruned.
CREATE TABLE deliveries (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES subscriptions (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  event_seq BIGINT NOT NULL,
  event TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  error TEXT NOT NULL,
  replay BOOLEAN NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX deliveries_uid ON deliveries (uid);
CREATE UNIQUE INDEX deliveries_once ON deliveries (parent, event_seq);
CREATE INDEX deliveries_replay ON deliveries (parent, event_seq) WHERE replay;
CREATE INDEX deliveries_create ON deliveries (create_ms);
CREATE INDEX deliveries_parent_create ON deliveries (parent, create_ms, seg);
CREATE INDEX deliveries_parent_seg ON deliveries (parent, seg);
CREATE INDEX deliveries_a1_create ON deliveries (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX deliveries_a2_create ON deliveries (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX deliveries_a3_create ON deliveries (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- owner: platform/mail/maildb

-- Messages to people. They are written in the transaction that causes them. The text may contain a secret link, so it is
-- encrypted, and deleted when the message was sent or has expired. The row is kept for a day to count the messages of an
-- organization and to an address. The address is a keyed digest.
CREATE TABLE mails (
  id TEXT PRIMARY KEY,
  organization TEXT NOT NULL,
  address BYTEA NOT NULL,
  sealed BYTEA,
  attempts BIGINT NOT NULL DEFAULT 0,
  create_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  next_ms BIGINT NOT NULL
);
CREATE INDEX mails_next ON mails (next_ms) WHERE sealed IS NOT NULL;
CREATE INDEX mails_organization ON mails (organization, create_ms);
CREATE INDEX mails_address ON mails (address, create_ms);
CREATE INDEX mails_create ON mails (create_ms);
