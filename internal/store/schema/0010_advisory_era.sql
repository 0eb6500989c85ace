-- Keys of names and aliases are spread over all of their index, so that an import
-- into a million advisories would change a page of it for every one. They are
-- therefore kept by era: so many advisories of a group that were written one
-- after the other have their keys together. Those written before there were
-- eras are in -1. n is how many an era has, about.
CREATE TABLE advisory_eras (
  grp TEXT NOT NULL,
  era BIGINT NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (grp, era)
);
INSERT INTO advisory_eras (grp, era, n) SELECT DISTINCT grp, -1, 0 FROM advisory_shelves;
ALTER TABLE advisories ADD COLUMN era BIGINT NOT NULL DEFAULT -1;
