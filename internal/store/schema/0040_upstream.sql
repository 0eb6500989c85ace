-- The registry that a group fetches images from when they are asked for: one of a group. secret is
-- sealed. There is no foreign key, because the version before this one deletes groups and knows
-- nothing of upstreams.
CREATE TABLE registry_upstreams (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  detail TEXT NOT NULL,
  secret BYTEA NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX registry_upstreams_uid ON registry_upstreams (uid);
CREATE UNIQUE INDEX registry_upstreams_parent ON registry_upstreams (parent);
CREATE INDEX registry_upstreams_a1_name ON registry_upstreams (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX registry_upstreams_a2_name ON registry_upstreams (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX registry_upstreams_a3_name ON registry_upstreams (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX registry_upstreams_a1_create ON registry_upstreams (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX registry_upstreams_a2_create ON registry_upstreams (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX registry_upstreams_a3_create ON registry_upstreams (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- When a tag of a mirrored repo was last seen at the upstream. It goes with its repo by itself.
CREATE TABLE upstream_tags (
  repo BIGINT NOT NULL REFERENCES repos (seg) ON DELETE CASCADE,
  name TEXT NOT NULL,
  seen_ms BIGINT NOT NULL,
  PRIMARY KEY (repo, name)
);

-- What a manifest of a mirrored repo needs and its repo does not have yet: need is the digest of a
-- manifest or of a blob. It goes with its manifest by itself.
CREATE TABLE awaited (
  repo BIGINT NOT NULL,
  need TEXT NOT NULL,
  digest TEXT NOT NULL,
  manifest BOOLEAN NOT NULL,
  PRIMARY KEY (repo, need, digest),
  FOREIGN KEY (repo, digest) REFERENCES manifests (repo, digest) ON DELETE CASCADE
);
CREATE INDEX awaited_digest ON awaited (repo, digest);

-- The version of all upstreams, by which replicas see whether theirs are current.
INSERT INTO revision (id, rev) VALUES (40, 0);
