-- How the images of a repo are deployed.
CREATE TABLE deployments (
  repo BIGINT PRIMARY KEY REFERENCES repos (seg),
  uid TEXT NOT NULL,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX deployments_uid ON deployments (uid);

-- The few tags that have come to their end.
CREATE INDEX tags_deprecated ON tags (uid) WHERE deprecated;

-- Where a manifest is, for who knows only its digest.
CREATE INDEX manifests_digest ON manifests (digest, repo);
