-- What people read instead of the name, as it was typed. The version before writes none.
ALTER TABLE groups ADD COLUMN display_name TEXT NOT NULL DEFAULT '';
ALTER TABLE identities ADD COLUMN display_name TEXT NOT NULL DEFAULT '';
