-- The last exchanges of an identity that succeeded, at most one a second. They go with the
-- identity by themselves: the version before this one deletes identities and does not know them.
CREATE TABLE exchanges (
  identity BIGINT NOT NULL REFERENCES identities (seg) ON DELETE CASCADE,
  at_ms BIGINT NOT NULL,
  request TEXT NOT NULL,
  detail TEXT NOT NULL
);
CREATE INDEX exchanges_identity ON exchanges (identity, at_ms);
CREATE INDEX exchanges_at ON exchanges (at_ms);
