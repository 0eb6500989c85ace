-- SBOMs that were attached to images. What one says is what somebody claims who may push to
-- the repo, so it is kept for each repo, unlike what was found in the image itself.

-- Who has pushed a manifest: the uid of an identity. It is empty for those that the version
-- before has stored.
ALTER TABLE manifests ADD COLUMN actor TEXT NOT NULL DEFAULT '';

-- An image whose attached documents are to be looked through has sbom_due_ms; it, sbom_rank
-- and the lease on it are as those of the image. sbom_reader is the version of what has
-- looked through them. platform is the system that the image is for.
ALTER TABLE images ADD COLUMN platform TEXT NOT NULL DEFAULT '';
ALTER TABLE images ADD COLUMN sbom_due_ms BIGINT;
ALTER TABLE images ADD COLUMN sbom_rank BIGINT NOT NULL DEFAULT 0;
ALTER TABLE images ADD COLUMN sbom_reader BIGINT NOT NULL DEFAULT 0;
CREATE INDEX images_sbom_due ON images (sbom_rank, root, sbom_due_ms) WHERE sbom_due_ms IS NOT NULL;
CREATE INDEX images_sbom_reader ON images (sbom_reader) WHERE sbom_due_ms IS NULL;

-- The packages that the documents of one attached manifest say that an image has, encoded by
-- findingdb; with what could not be understood of them.
CREATE TABLE image_sboms (
  repo BIGINT NOT NULL,
  image TEXT NOT NULL,
  manifest TEXT NOT NULL,
  actor TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  format TEXT NOT NULL,
  tool TEXT NOT NULL,
  warnings TEXT NOT NULL,
  packages BYTEA NOT NULL,
  PRIMARY KEY (repo, image, manifest)
);
CREATE INDEX image_sboms_manifest ON image_sboms (repo, manifest);
CREATE INDEX image_sboms_image ON image_sboms (image);
