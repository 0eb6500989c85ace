-- Which provider vouches for a person is part of who they are. A realm is the
-- namespace of subjects that a person is found in: the address of an issuer for
-- the people of the installation, or a provider's own. It is '' for workloads.
ALTER TABLE identities ADD COLUMN realm TEXT NOT NULL DEFAULT '';
ALTER TABLE identity_providers ADD COLUMN realm TEXT NOT NULL DEFAULT '';
-- The epoch changes when what a provider believes does: what it vouched for
-- before is void.
ALTER TABLE identity_providers ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
-- The operator trusts it to speak for its issuer to the whole installation.
ALTER TABLE identity_providers ADD COLUMN trusted BOOLEAN NOT NULL DEFAULT FALSE;

UPDATE identity_providers SET realm = uid;
UPDATE identities SET realm = issuer WHERE parent IS NULL;

-- A person stays who they are, and becomes one of a provider's people, if they
-- came through that provider alone and every role they hold is within its group.
-- Everybody else's old identity stays with the installation: whoever signs in
-- with a provider is somebody new until they are given roles again.
CREATE TABLE claimed (identity TEXT PRIMARY KEY, provider BIGINT NOT NULL);
INSERT INTO claimed (identity, provider)
  SELECT a.identity, min(a.provider) FROM arrivals AS a
  WHERE NOT EXISTS (SELECT 1 FROM accounts AS c WHERE c.identity = a.identity)
  GROUP BY a.identity HAVING count(*) = 1;
DELETE FROM claimed WHERE EXISTS (
  SELECT 1 FROM role_bindings AS b, identity_providers AS p, groups AS g
  WHERE b.identity = claimed.identity AND p.seg = claimed.provider AND g.seg = p.parent
    AND substr(b.uid, 1, length(g.uid) + 1) <> g.uid || '/');
UPDATE identities SET
    provider = (SELECT c.provider FROM claimed AS c WHERE c.identity = identities.uid),
    realm = (SELECT p.realm FROM identity_providers AS p, claimed AS c WHERE c.identity = identities.uid AND p.seg = c.provider)
  WHERE uid IN (SELECT c.identity FROM claimed AS c);
UPDATE identities SET provider = NULL WHERE parent IS NULL AND uid NOT IN (SELECT c.identity FROM claimed AS c);
CREATE UNIQUE INDEX identities_realm ON identities (realm, subject) WHERE realm <> '';

-- A session remembers who vouched for it, the group that answers for it, and what
-- its tokens are narrowed to.
ALTER TABLE sessions ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN home TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN narrowing TEXT NOT NULL DEFAULT '';
UPDATE sessions SET home = coalesce((SELECT g.uid FROM accounts AS a, groups AS g WHERE a.identity = sessions.identity AND g.seg = a.parent), '');
UPDATE sessions SET
    provider = (SELECT p.uid FROM identity_providers AS p, claimed AS c WHERE c.identity = sessions.identity AND p.seg = c.provider),
    home = (SELECT g.uid FROM identity_providers AS p, claimed AS c, groups AS g WHERE c.identity = sessions.identity AND p.seg = c.provider AND g.seg = p.parent)
  WHERE identity IN (SELECT c.identity FROM claimed AS c);
-- Nobody can tell any more which provider began these.
DELETE FROM refresh_tokens WHERE session IN (SELECT s.id FROM sessions AS s
  WHERE s.home = '' AND EXISTS (SELECT 1 FROM arrivals AS a WHERE a.identity = s.identity));
DELETE FROM sessions WHERE home = '' AND EXISTS (SELECT 1 FROM arrivals AS a WHERE a.identity = sessions.identity);
DROP TABLE claimed;

-- Who made a one-time link: what it opens is judged by what they may do when it is
-- followed. Links of before this was kept are void, but for the one that set-up gave
-- the first owner.
ALTER TABLE accounts ADD COLUMN link_maker TEXT NOT NULL DEFAULT '';
UPDATE accounts SET link_ms = 0 WHERE create_ms <> (SELECT g.create_ms FROM groups AS g WHERE g.seg = accounts.parent);

-- Who is known to an organization by an act of their own: they founded it, have an
-- account there, came through one of its providers or accepted an invite. Who was
-- only bound by their uid is not.
CREATE TABLE members (
  org BIGINT NOT NULL REFERENCES groups (seg) ON DELETE CASCADE,
  identity TEXT NOT NULL,
  PRIMARY KEY (org, identity)
);
CREATE INDEX members_identity ON members (identity);
INSERT INTO members (org, identity) SELECT DISTINCT a.a1, a.identity FROM accounts AS a WHERE a.a1 IS NOT NULL;
INSERT INTO members (org, identity) SELECT DISTINCT p.a1, r.identity FROM arrivals AS r, identity_providers AS p
  WHERE p.seg = r.provider AND p.a1 IS NOT NULL ON CONFLICT (org, identity) DO NOTHING;
INSERT INTO members (org, identity) SELECT DISTINCT coalesce(g.a1, g.seg), j.identity FROM joins AS j, groups AS g
  WHERE g.seg = j.grp ON CONFLICT (org, identity) DO NOTHING;
-- The first owner of an organization founded it.
INSERT INTO members (org, identity) SELECT DISTINCT b.parent, b.identity FROM role_bindings AS b, groups AS g
  WHERE g.seg = b.parent AND g.parent IS NULL AND length(b.identity) = 40 AND b.create_ms =
    (SELECT min(x.create_ms) FROM role_bindings AS x WHERE x.parent = b.parent) ON CONFLICT (org, identity) DO NOTHING;
CREATE INDEX sessions_provider ON sessions (provider) WHERE provider <> '';
