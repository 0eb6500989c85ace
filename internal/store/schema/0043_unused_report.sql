-- When the organization of a group with a webhook was last told what of its access is not used.
CREATE TABLE unused_reports (
  grp BIGINT PRIMARY KEY REFERENCES groups (seg) ON DELETE CASCADE,
  last_ms BIGINT NOT NULL
);

-- The bindings of an organization that end, in the order in which they do.
CREATE INDEX role_bindings_ending ON role_bindings (a1, expire_ms) WHERE expire_ms > 0 AND end_ms = 0;

-- The end of an invite that was told of, so that it is told once, and again if it was put off.
ALTER TABLE group_invites ADD COLUMN told_ms BIGINT NOT NULL DEFAULT 0;
CREATE INDEX group_invites_due ON group_invites (expire_ms) WHERE told_ms <> expire_ms;

-- on sqlite
UPDATE group_invites SET told_ms = expire_ms WHERE expire_ms < CAST(strftime('%s', 'now') AS INTEGER) * 1000;

-- on postgresql
UPDATE group_invites SET told_ms = expire_ms WHERE expire_ms < extract(epoch FROM now()) * 1000;
