-- An account of a person who signs in here, with a password or a passkey. name
-- is the e-mail address in lower case, and one of a kind. Of a one-time link
-- there is a digest only.
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
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX accounts_uid ON accounts (uid);
CREATE UNIQUE INDEX accounts_name ON accounts (name);
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

CREATE TABLE passkeys (
  id BYTEA PRIMARY KEY,
  account BIGINT NOT NULL REFERENCES accounts (seg),
  name TEXT NOT NULL,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  used_ms BIGINT NOT NULL
);
CREATE INDEX passkeys_account ON passkeys (account, create_ms);

-- A session of a browser has a cookie in place of refresh tokens.
ALTER TABLE sessions ADD COLUMN cookie BYTEA;
CREATE UNIQUE INDEX sessions_cookie ON sessions (cookie) WHERE cookie IS NOT NULL;

-- What is good once, and was used.
CREATE TABLE spent (
  digest BYTEA PRIMARY KEY,
  expire_ms BIGINT NOT NULL
);
CREATE INDEX spent_expire ON spent (expire_ms);

-- What waits, encrypted, for the program that it is for.
CREATE TABLE handoffs (
  digest BYTEA PRIMARY KEY,
  detail BYTEA NOT NULL,
  expire_ms BIGINT NOT NULL
);
CREATE INDEX handoffs_expire ON handoffs (expire_ms);

-- Programs that ask to be signed in on another device.
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

-- Who has come through which provider.
CREATE TABLE arrivals (
  identity TEXT NOT NULL,
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE,
  first_ms BIGINT NOT NULL,
  last_ms BIGINT NOT NULL,
  PRIMARY KEY (identity, provider)
);

-- Bindings that were made because a provider said that somebody is in a group,
-- and that go when it no longer does.
CREATE TABLE mapped_bindings (
  binding BIGINT PRIMARY KEY REFERENCES role_bindings (seg) ON DELETE CASCADE,
  identity TEXT NOT NULL,
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE
);
CREATE INDEX mapped_bindings_identity ON mapped_bindings (identity, provider);
CREATE INDEX mapped_bindings_provider ON mapped_bindings (provider);

-- Invites that are gone, so that whoever comes with one is told why.
CREATE TABLE ended_invites (
  uid TEXT PRIMARY KEY,
  digest BYTEA NOT NULL,
  reason TEXT NOT NULL,
  end_ms BIGINT NOT NULL
);
CREATE INDEX ended_invites_end ON ended_invites (end_ms);

-- Who joined a group through an invite.
CREATE TABLE joins (
  grp BIGINT NOT NULL REFERENCES groups (seg) ON DELETE CASCADE,
  invite TEXT NOT NULL,
  identity TEXT NOT NULL,
  role TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);
CREATE INDEX joins_grp ON joins (grp, at_ms);

-- What an organization has decided about signing in.
CREATE TABLE sign_in_rules (
  org BIGINT PRIMARY KEY REFERENCES groups (seg) ON DELETE CASCADE,
  local_off BOOLEAN NOT NULL
);

-- A provider that is being tried is not offered yet.
ALTER TABLE identity_providers ADD COLUMN disabled BOOLEAN NOT NULL DEFAULT FALSE;
