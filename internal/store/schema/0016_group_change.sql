-- Groups are no longer cached, so that replicas need not tell each other about
-- changes to them.
DROP TABLE group_changes;
DELETE FROM revision WHERE id = 2;
ALTER TABLE replicas DROP COLUMN groups_at;
