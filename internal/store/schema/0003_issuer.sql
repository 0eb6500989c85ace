-- A session is one sign-in. Its refresh tokens follow one another; of each there
-- is a digest only. One that was used stays until the session ends, so that
-- whoever uses it again is found out.
CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  identity TEXT NOT NULL,
  act TEXT NOT NULL,
  email TEXT NOT NULL,
  agent TEXT NOT NULL,
  address TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  used_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL
);
CREATE INDEX sessions_identity ON sessions (identity, create_ms);
CREATE INDEX sessions_expire ON sessions (expire_ms);

CREATE TABLE refresh_tokens (
  digest BYTEA PRIMARY KEY,
  session TEXT NOT NULL REFERENCES sessions (id),
  expire_ms BIGINT NOT NULL,
  used BOOLEAN NOT NULL
);
CREATE INDEX refresh_tokens_session ON refresh_tokens (session);

-- The last exchanges that an identity was refused for.
CREATE TABLE denials (
  identity BIGINT NOT NULL REFERENCES identities (seg),
  at_ms BIGINT NOT NULL,
  request TEXT NOT NULL,
  detail TEXT NOT NULL
);
CREATE INDEX denials_identity ON denials (identity, at_ms);
CREATE INDEX denials_at ON denials (at_ms);

-- How the last look at an issuer went, for as long as an identity trusts it.
CREATE TABLE issuers (
  issuer TEXT PRIMARY KEY,
  check_ms BIGINT NOT NULL,
  success_ms BIGINT NOT NULL,
  problem TEXT NOT NULL,
  keys TEXT NOT NULL
);

-- Those who accept tokens of any issuer that fits a pattern, or of given keys.
CREATE INDEX identities_static_keys ON identities (relationship, seg) WHERE issuer = '';
