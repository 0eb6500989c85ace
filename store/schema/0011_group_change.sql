-- A process that remembers groups looks here whether others have changed them. grp
-- is the UID of a group that was changed or deleted, or '' in changes to grants.
ALTER TABLE grant_changes ADD COLUMN grp TEXT NOT NULL DEFAULT '';
