-- Protection against mistakes of directories.

-- owner: signin/scimdb

-- A change that takes away access is held if it is the hold_minimum-th or a later one within an hour, and if more than
-- hold_percent percent of the people of the directory would lose access in that hour. held is the number of rows in
-- scim_held.
ALTER TABLE scim_directories ADD COLUMN hold_percent BIGINT NOT NULL DEFAULT 20;
ALTER TABLE scim_directories ADD COLUMN hold_minimum BIGINT NOT NULL DEFAULT 5;
ALTER TABLE scim_directories ADD COLUMN held BIGINT NOT NULL DEFAULT 0;

-- When the user became active.
ALTER TABLE scim_users ADD COLUMN active_ms BIGINT NOT NULL DEFAULT 0;
CREATE INDEX scim_users_active ON scim_users (provider, active_ms) WHERE active AND identity <> '';

-- People whose access a directory has taken away recently.
CREATE TABLE scim_losses (
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE,
  identity TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (provider, identity)
);
CREATE INDEX scim_losses_time ON scim_losses (provider, at_ms);

-- Changes that take away access and that wait for a decision. identity is the person with the subject external_id, and
-- user_id the user of the request, or '' if the request would have created the user. change is a resource.HeldKind.
CREATE TABLE scim_held (
  provider BIGINT NOT NULL REFERENCES identity_providers (seg) ON DELETE CASCADE,
  external_id TEXT NOT NULL,
  identity TEXT NOT NULL,
  user_id TEXT NOT NULL,
  change BIGINT NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (provider, external_id)
);
