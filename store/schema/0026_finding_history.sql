-- What a list over many images needs to know of a match without reading the advisory:
-- score is that of CVSS in tenths, fixed a JSON array of the versions that fix it.
-- opened_by names what brought the advisory.
ALTER TABLE matches ADD COLUMN score BIGINT NOT NULL DEFAULT 0;
ALTER TABLE matches ADD COLUMN fixed TEXT NOT NULL DEFAULT '[]';
ALTER TABLE matches ADD COLUMN opened_by TEXT NOT NULL DEFAULT '';

-- The advisories that affect a package, or did. names is a JSON array of the ID and all
-- aliases. They outlive the advisory, because history does.
--
-- Advisories of a group that share a name, or ever did, are an alias set, which has the
-- key of one of them. Such sets grow together, and never fall apart, so that events about
-- them add up.
CREATE TABLE matched_advisories (
  advisory BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  names TEXT NOT NULL,
  alias_set BIGINT NOT NULL
);
CREATE INDEX matched_advisories_set ON matched_advisories (alias_set);

-- The names of an alias set. key is a digest of the group and the name.
CREATE TABLE alias_names (
  key TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  alias_set BIGINT NOT NULL
);
CREATE INDEX alias_names_set ON alias_names (alias_set);

-- Matches that have come to their end.
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

-- What brought a change: the feed, or how else it came.
ALTER TABLE advisory_changes ADD COLUMN source TEXT NOT NULL DEFAULT '';

-- When an image was first indexed.
ALTER TABLE images ADD COLUMN indexed_ms BIGINT;
UPDATE images SET indexed_ms = update_ms WHERE number IS NOT NULL;

-- Which tags stood for an image.
CREATE INDEX tag_history_digest ON tag_history (repo, digest, seq);

-- Images whose packages have changed since events told what is wrong with them; told are
-- the packages that these events were about. If quiet, no event tells of the difference.
CREATE TABLE image_news (
  number BIGINT PRIMARY KEY,
  root BIGINT NOT NULL,
  told BYTEA NOT NULL,
  quiet BOOLEAN NOT NULL
);
CREATE INDEX image_news_root ON image_news (root);
