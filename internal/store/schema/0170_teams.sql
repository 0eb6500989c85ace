-- Teams: the groups of company directories.

-- owner: access/iamdb

-- The teams of a directory. name_key is the name in lower case. members is the number of rows in team_members.
-- attributes is the JSON of all attributes except the members.
CREATE TABLE teams (
  seg BIGINT PRIMARY KEY,
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE,
  name TEXT NOT NULL,
  name_key TEXT NOT NULL,
  external_id TEXT NOT NULL,
  members BIGINT NOT NULL,
  version BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  attributes TEXT NOT NULL
);
CREATE UNIQUE INDEX teams_name ON teams (provider, name_key);
CREATE UNIQUE INDEX teams_external ON teams (provider, external_id) WHERE external_id <> '';
CREATE INDEX teams_create ON teams (provider, create_ms, seg);

-- The members of teams. member is the directory's id of a user. identity is the person of that user, or '' as long as
-- the directory has no such user or the user is linked to nobody.
CREATE TABLE team_members (
  team BIGINT NOT NULL REFERENCES teams (seg) ON DELETE CASCADE,
  member TEXT NOT NULL,
  identity TEXT NOT NULL,
  PRIMARY KEY (team, member)
);
CREATE INDEX team_members_member ON team_members (member);
CREATE INDEX team_members_identity ON team_members (identity, team) WHERE identity <> '';

-- Whether the mappings of a provider give their roles to the members of teams, and not to the groups in claims.
ALTER TABLE identity_providers ADD COLUMN directory_roles BOOLEAN NOT NULL DEFAULT FALSE;
