-- A process that remembers groups looks here whether others have changed them since:
-- a revision of its own counts the changes and deletions, one after the other.
INSERT INTO revision (id, rev) VALUES (2, 0);
CREATE TABLE group_changes (
  rev BIGINT PRIMARY KEY,
  grp TEXT NOT NULL
);
