-- Sign-ins that need an entry in the directory.

-- owner: signin/scimdb

-- Whether only people who are active users of the directory may sign in with the provider.
ALTER TABLE scim_directories ADD COLUMN required BOOLEAN NOT NULL DEFAULT FALSE;

CREATE INDEX scim_users_identity ON scim_users (identity, provider) WHERE identity <> '';
