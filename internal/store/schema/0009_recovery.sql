-- What lets the person of an account in, once each, in place of a passkey or an
-- authenticator app.
CREATE TABLE recovery_codes (
  account BIGINT NOT NULL REFERENCES accounts (seg) ON DELETE CASCADE,
  digest BYTEA NOT NULL,
  PRIMARY KEY (account, digest)
);
