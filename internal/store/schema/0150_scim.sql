-- Directories that manage the people of identity providers with SCIM.

-- owner: access/iamdb

-- People whom the directory of their provider has deactivated. They keep their bindings, and all their tokens are void.
CREATE TABLE suspensions (
  identity TEXT PRIMARY KEY,
  provider TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);

-- owner: signin/scimdb

-- The directory of a provider. version counts the changes of enabled and of the tokens. Tokens are stored as digests;
-- digest is null without a token. An expire_ms of 0 means never.
CREATE TABLE scim_directories (
  provider BIGINT PRIMARY KEY REFERENCES identity_providers (seg) ON DELETE CASCADE,
  enabled BOOLEAN NOT NULL,
  version BIGINT NOT NULL,
  digest BYTEA,
  create_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  previous_digest BYTEA,
  previous_expire_ms BIGINT NOT NULL,
  revoke_ms BIGINT NOT NULL,
  used_ms BIGINT NOT NULL
);

-- The users of a directory. name_key is user_name in lower case. identity is the person with the subject external_id,
-- or '' while the user has no external_id. attributes is the JSON of all attributes.
CREATE TABLE scim_users (
  id TEXT PRIMARY KEY,
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE,
  name_key TEXT NOT NULL,
  external_id TEXT NOT NULL,
  active BOOLEAN NOT NULL,
  identity TEXT NOT NULL,
  version BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  attributes TEXT NOT NULL
);
CREATE UNIQUE INDEX scim_users_name ON scim_users (provider, name_key);
CREATE UNIQUE INDEX scim_users_external ON scim_users (provider, external_id) WHERE external_id <> '';
CREATE INDEX scim_users_create ON scim_users (provider, create_ms, id);

-- People who were in a directory and no longer are.
CREATE TABLE scim_departed (
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE,
  external_id TEXT NOT NULL,
  identity TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (provider, external_id)
);
