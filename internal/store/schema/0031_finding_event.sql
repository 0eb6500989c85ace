-- What events about findings need to know.

-- Advisories of a group that share a name, or ever did, are an alias set, which has the
-- key of one of them. Such sets grow together, and never fall apart, so that events about
-- them add up. 0 is an advisory of the version before, which is in none yet.
ALTER TABLE matched_advisories ADD COLUMN alias_set BIGINT NOT NULL DEFAULT 0;
CREATE INDEX matched_advisories_set ON matched_advisories (alias_set);

-- The names of an alias set. key is a digest of the group and the name.
CREATE TABLE alias_names (
  key TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  alias_set BIGINT NOT NULL
);
CREATE INDEX alias_names_set ON alias_names (alias_set);

-- Images whose packages have changed since events told what is wrong with them; told are
-- the packages that these events were about. If quiet, no event tells of the difference.
-- images.announced, which was meant for this, is not used.
CREATE TABLE image_news (
  number BIGINT PRIMARY KEY,
  root BIGINT NOT NULL,
  told BYTEA NOT NULL,
  quiet BOOLEAN NOT NULL
);
CREATE INDEX image_news_root ON image_news (root);
DROP INDEX images_news;

UPDATE images SET indexed_ms = update_ms WHERE number IS NOT NULL AND indexed_ms IS NULL;

-- Which tags stood for an image.
CREATE INDEX tag_history_digest ON tag_history (repo, digest, seq);

-- Which tags stand for an image.
CREATE INDEX tags_parent_digest ON tags (parent, digest, name);
