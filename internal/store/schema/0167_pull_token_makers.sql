-- The person who created a pull token, or '' for other identities and for pull tokens from before this version.
ALTER TABLE identities ADD COLUMN maker TEXT NOT NULL DEFAULT '';
CREATE INDEX identities_maker ON identities (maker, seg) WHERE maker <> '';
