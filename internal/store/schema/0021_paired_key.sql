-- The RSA key that is published and rotates with a signing key: some verifiers take no
-- other. It is not a row of signing_keys, because the version before this one refuses to
-- start with a key of another algorithm there. That version makes and drops signing keys,
-- too: one that it made gets its pair from this version, and the pair of one that it
-- drops goes with it.
CREATE TABLE paired_keys (
  id TEXT PRIMARY KEY,
  pair TEXT NOT NULL UNIQUE REFERENCES signing_keys (id) ON DELETE CASCADE,
  algorithm TEXT NOT NULL,
  sealed BYTEA NOT NULL,
  create_ms BIGINT NOT NULL
);
