-- owner: access/namedb

-- Names that an organization had before it was renamed or deleted. Until until_ms, nobody else may use them, because
-- images are still pulled from their addresses. holder is the UID of the renamed organization, or of the identity
-- that deleted it.
CREATE TABLE reserved_names (
  name TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  until_ms BIGINT NOT NULL
);
CREATE INDEX reserved_names_holder ON reserved_names (holder, until_ms);
CREATE INDEX reserved_names_until ON reserved_names (until_ms);
