-- The rest of IAM.

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
  update_ms BIGINT NOT NULL
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

-- The provider a person came through, once they sign in.
ALTER TABLE identities ADD COLUMN provider BIGINT REFERENCES identity_providers (seg);
CREATE INDEX identities_provider ON identities (provider) WHERE provider IS NOT NULL;

-- One for a group: the key and the place are the group's.
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

-- Of the code there is a digest only.
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
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX group_invites_uid ON group_invites (uid);
CREATE INDEX group_invites_key ON group_invites (key_id, uid);
CREATE INDEX group_invites_role ON group_invites (role);
CREATE INDEX group_invites_parent_create ON group_invites (parent, create_ms, seg);
CREATE INDEX group_invites_parent_seg ON group_invites (parent, seg);
CREATE INDEX group_invites_a1_create ON group_invites (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX group_invites_a2_create ON group_invites (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX group_invites_a3_create ON group_invites (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- The parent is a provider.
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
