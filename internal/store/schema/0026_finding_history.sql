-- What a list over many images needs to know of a match without reading the advisory:
-- score is that of CVSS in tenths, fixed a JSON array of the versions that fix it.
-- opened_by names what brought the advisory.
ALTER TABLE matches ADD COLUMN score BIGINT NOT NULL DEFAULT 0;
ALTER TABLE matches ADD COLUMN fixed TEXT NOT NULL DEFAULT '[]';
ALTER TABLE matches ADD COLUMN opened_by TEXT NOT NULL DEFAULT '';

-- The advisories that affect a package, or did. names is a JSON array of the ID and all
-- aliases. They outlive the advisory, because history does.
CREATE TABLE matched_advisories (
  advisory BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  names TEXT NOT NULL
);

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

-- When an image was first indexed, and whether events have told what is wrong with it.
ALTER TABLE images ADD COLUMN indexed_ms BIGINT;
ALTER TABLE images ADD COLUMN announced BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX images_news ON images (root, number) WHERE NOT announced AND number IS NOT NULL;
