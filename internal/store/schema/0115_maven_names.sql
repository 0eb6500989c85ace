-- owner: vuln/advisory/advisorydb

-- The Maven packages that the advisories of a group name, by the part of the name after the colon. They give a Java
-- archive the group that the archive itself does not name. The row whose artifact is empty says that the names of all
-- advisories that were imported before this table existed are in it.
CREATE TABLE maven_names (
  grp TEXT NOT NULL,
  artifact TEXT NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (artifact, grp, name)
);
