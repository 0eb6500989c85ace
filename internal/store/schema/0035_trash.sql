-- What was deleted from the registry and can be restored. None of these tables has a foreign
-- key, because the version before this one deletes groups, repos and blobs and knows nothing
-- of the trash; what it leaves behind is swept up.

-- One thing that was deleted. The parent is the repo that it was in, or was; kind is a
-- resource.TrashKind. One that went together with a manifest is a tag of it.
CREATE TABLE trash (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  kind BIGINT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  together BOOLEAN NOT NULL,
  size BIGINT NOT NULL,
  detail TEXT NOT NULL,
  expire_ms BIGINT NOT NULL,
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX trash_uid ON trash (uid);
CREATE UNIQUE INDEX trash_what ON trash (parent, kind, name, digest);
CREATE INDEX trash_expire ON trash (expire_ms);
CREATE INDEX trash_digest ON trash (digest, uid);
CREATE INDEX trash_parent_create ON trash (parent, create_ms, seg);
CREATE INDEX trash_parent_seg ON trash (parent, seg);
CREATE INDEX trash_a1_create ON trash (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX trash_a2_create ON trash (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX trash_a3_create ON trash (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- Repos in the trash. The rest of one is in the detail of its entry.
CREATE TABLE trash_repos (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  readme TEXT NOT NULL,
  deployment TEXT NULL,
  deployment_create_ms BIGINT,
  deployment_update_ms BIGINT
);
CREATE UNIQUE INDEX trash_repos_uid ON trash_repos (uid);
CREATE INDEX trash_repos_parent ON trash_repos (parent);

-- The tags of repos in the trash, as they were. Other tags are in the detail of their entry.
CREATE TABLE trash_tags (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  class BIGINT NOT NULL,
  deprecated BOOLEAN NOT NULL,
  bundles TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE INDEX trash_tags_parent ON trash_tags (parent);

-- The tag_history of repos in the trash.
CREATE TABLE trash_tag_history (
  seq BIGINT PRIMARY KEY,
  repo BIGINT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  actor TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);
CREATE INDEX trash_tag_history_repo ON trash_tag_history (repo, seq);

-- Manifests in the trash. entry is the seg of a manifest's own entry, or of that of its repo.
CREATE TABLE trash_manifests (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  entry BIGINT NOT NULL,
  media_type TEXT NOT NULL,
  size BIGINT NOT NULL,
  subject TEXT NOT NULL,
  artifact_type TEXT NOT NULL,
  annotations TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  body BYTEA NOT NULL,
  actor TEXT NOT NULL,
  PRIMARY KEY (repo, digest)
);
CREATE INDEX trash_manifests_subject ON trash_manifests (repo, subject, digest) WHERE subject <> '';

-- What a manifest in the trash needs of its repo.
CREATE TABLE trash_refs (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  blob TEXT NULL,
  child TEXT NULL
);
CREATE INDEX trash_refs_digest ON trash_refs (repo, digest);
CREATE INDEX trash_refs_blob ON trash_refs (repo, blob) WHERE blob IS NOT NULL;

-- Blobs that a repo no longer serves, and that something in its trash needs.
CREATE TABLE trash_blobs (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  uid TEXT NOT NULL,
  PRIMARY KEY (repo, digest)
);
CREATE INDEX trash_blobs_digest ON trash_blobs (digest);
