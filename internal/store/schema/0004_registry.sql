-- The registry: what is in which repo. The bytes of blobs are elsewhere.

CREATE TABLE repos (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  detail TEXT NOT NULL,
  readme TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX repos_uid ON repos (uid);
CREATE UNIQUE INDEX repos_parent_name ON repos (parent, name);
CREATE INDEX repos_parent_create ON repos (parent, create_ms, seg);
CREATE INDEX repos_parent_seg ON repos (parent, seg);
CREATE INDEX repos_a1_name ON repos (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX repos_a2_name ON repos (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX repos_a3_name ON repos (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX repos_a1_create ON repos (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX repos_a2_create ON repos (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX repos_a3_create ON repos (a3, create_ms, seg) WHERE a3 IS NOT NULL;
CREATE INDEX repos_a1_update ON repos (a1, update_ms, seg) WHERE a1 IS NOT NULL;

-- Bytes that exist in the storage, at path. A row here promises that they are
-- complete, verified and on disk.
CREATE TABLE blobs (
  digest TEXT PRIMARY KEY,
  size BIGINT NOT NULL,
  path TEXT NOT NULL,
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX blobs_path ON blobs (path);

-- Which repos may serve a blob. A blob in no repo is garbage. idle_ms is when
-- the collector first saw that no manifest of the repo needs it; who is told
-- that it is there takes the mark away.
CREATE TABLE repo_blobs (
  repo BIGINT NOT NULL REFERENCES repos (seg),
  digest TEXT NOT NULL REFERENCES blobs (digest),
  create_ms BIGINT NOT NULL,
  idle_ms BIGINT,
  PRIMARY KEY (repo, digest)
);
CREATE INDEX repo_blobs_digest ON repo_blobs (digest);
CREATE INDEX repo_blobs_idle ON repo_blobs (idle_ms) WHERE idle_ms IS NOT NULL;

CREATE TABLE manifests (
  repo BIGINT NOT NULL REFERENCES repos (seg),
  digest TEXT NOT NULL,
  media_type TEXT NOT NULL,
  size BIGINT NOT NULL,
  subject TEXT NOT NULL,
  artifact_type TEXT NOT NULL,
  annotations TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (repo, digest)
);
CREATE INDEX manifests_subject ON manifests (repo, subject, digest) WHERE subject <> '';

-- What a manifest needs in its repo. Exactly one of blob and child is set, so
-- that the database itself refuses to lose either.
CREATE TABLE manifest_refs (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  blob TEXT NULL,
  child TEXT NULL,
  FOREIGN KEY (repo, digest) REFERENCES manifests (repo, digest),
  FOREIGN KEY (repo, blob) REFERENCES repo_blobs (repo, digest),
  FOREIGN KEY (repo, child) REFERENCES manifests (repo, digest)
);
CREATE INDEX manifest_refs_digest ON manifest_refs (repo, digest);
CREATE INDEX manifest_refs_blob ON manifest_refs (repo, blob) WHERE blob IS NOT NULL;
CREATE INDEX manifest_refs_child ON manifest_refs (repo, child) WHERE child IS NOT NULL;

-- The parent of a tag is its repo. class is a resource.TagClass.
CREATE TABLE tags (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES repos (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  class BIGINT NOT NULL,
  deprecated BOOLEAN NOT NULL,
  bundles TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  FOREIGN KEY (parent, digest) REFERENCES manifests (repo, digest)
);
CREATE UNIQUE INDEX tags_uid ON tags (uid);
CREATE UNIQUE INDEX tags_parent_name ON tags (parent, name);
CREATE INDEX tags_parent_update ON tags (parent, update_ms, seg);
CREATE INDEX tags_parent_seg ON tags (parent, seg);
CREATE INDEX tags_digest ON tags (digest, uid);
CREATE INDEX tags_a1_name ON tags (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX tags_a2_name ON tags (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX tags_a3_name ON tags (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX tags_a1_update ON tags (a1, update_ms, seg) WHERE a1 IS NOT NULL;

-- Every move of a tag; digest is '' where it was deleted.
CREATE TABLE tag_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  repo BIGINT NOT NULL REFERENCES repos (seg),
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  actor TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);
CREATE INDEX tag_history_name ON tag_history (repo, name, seq);

-- Sessions that have not become blobs. state is the running hash of the first
-- size bytes. Until lease_ms only the holder may write.
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  grp TEXT NOT NULL,
  repo TEXT NOT NULL,
  algorithm TEXT NOT NULL,
  size BIGINT NOT NULL,
  state BYTEA NOT NULL,
  holder TEXT NOT NULL,
  lease_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE INDEX uploads_update ON uploads (update_ms);

-- Who fetched and pushed what. The parent is the repo.
CREATE TABLE pulls (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES repos (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  push BOOLEAN NOT NULL,
  digest TEXT NOT NULL,
  tag TEXT NOT NULL,
  identity TEXT NOT NULL,
  remote TEXT NOT NULL,
  agent TEXT NOT NULL,
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX pulls_uid ON pulls (uid);
-- By the day, to prune: one by the time alone would tempt a planner to walk it
-- for the lists.
CREATE INDEX pulls_day ON pulls ((create_ms / 86400000));
CREATE INDEX pulls_digest ON pulls (digest, uid);
CREATE INDEX pulls_identity ON pulls (identity, uid);
CREATE INDEX pulls_parent_create ON pulls (parent, create_ms, seg);
CREATE INDEX pulls_parent_seg ON pulls (parent, seg);
CREATE INDEX pulls_a1_create ON pulls (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX pulls_a2_create ON pulls (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX pulls_a3_create ON pulls (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- A group's rules for the repos in it and below.
CREATE TABLE registry_settings (
  grp BIGINT PRIMARY KEY REFERENCES groups (seg),
  uid TEXT NOT NULL,
  detail TEXT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX registry_settings_uid ON registry_settings (uid);
