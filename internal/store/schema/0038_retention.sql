-- Which images are kept: the rules of a group or of a repo, whose segment place is. There is no
-- foreign key, because the version before deletes both and knows nothing of the rules. due_ms is
-- when they are next applied without being asked to, taken the last repo that this came to.
CREATE TABLE retention (
  place BIGINT PRIMARY KEY,
  root BIGINT NOT NULL,
  uid TEXT NOT NULL,
  detail TEXT NOT NULL,
  update_ms BIGINT NOT NULL,
  due_ms BIGINT NULL,
  taken TEXT NOT NULL
);
CREATE UNIQUE INDEX retention_uid ON retention (uid);
CREATE INDEX retention_due ON retention (due_ms, root) WHERE due_ms IS NOT NULL;

-- When a manifest of a repo was last pulled.
CREATE INDEX pulls_parent_digest ON pulls (parent, digest, create_ms);

-- Images that name the image that they were built on.
CREATE INDEX manifests_based ON manifests (repo)
  WHERE replace(annotations, 'org.opencontainers.image.base.digest', '') <> annotations;
