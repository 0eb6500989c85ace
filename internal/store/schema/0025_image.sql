-- What images contain. None of these tables has a foreign key to those of the registry,
-- because the version before this one deletes repos and manifests and knows nothing of
-- images; what it leaves behind, or pushes, is found from time to time.

-- An image that was pushed to a repo, and whether its packages are known. number is its
-- place in the bitmaps below, and not used for another image again. due_ms is when it is
-- to be inspected, or tried again; whoever inspects it moves due_ms on, and so keeps
-- others from it. The lowest rank comes first, and within a rank one organization after
-- the other. state is a resource.ImageState.
CREATE TABLE images (
  repo BIGINT NOT NULL,
  digest TEXT NOT NULL,
  root BIGINT NOT NULL,
  uid TEXT NOT NULL,
  number BIGINT,
  state BIGINT NOT NULL,
  reason TEXT NOT NULL,
  extractors BIGINT NOT NULL,
  tries BIGINT NOT NULL,
  rank BIGINT NOT NULL,
  due_ms BIGINT,
  update_ms BIGINT NOT NULL,
  PRIMARY KEY (repo, digest)
);
CREATE UNIQUE INDEX images_number ON images (number) WHERE number IS NOT NULL;
CREATE INDEX images_digest ON images (digest);
CREATE INDEX images_due ON images (rank, root, due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX images_extractors ON images (extractors) WHERE due_ms IS NULL;

-- Images are numbered, and 2,048 numbers are a chunk. Whoever changes a bitmap of a chunk
-- locks its row here first. used is how many of its numbers are taken, gone how many of
-- these belong to images that are no more.
CREATE TABLE image_chunks (
  chunk BIGINT PRIMARY KEY,
  used BIGINT NOT NULL,
  gone BIGINT NOT NULL
);

-- The images of a chunk that are in a repo, or in a group and below it.
CREATE TABLE group_images (
  grp BIGINT NOT NULL,
  chunk BIGINT NOT NULL,
  bits BYTEA NOT NULL,
  PRIMARY KEY (grp, chunk)
);

-- Every version of a package that was found in an image. key is a digest of the columns
-- below it, so that one is found by one short key. One that is owned is part of a
-- package of a distribution, whose advisories tell about it. One that is not matched has
-- not been compared with the advisories yet.
CREATE TABLE packages (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key TEXT NOT NULL,
  ecosystem TEXT NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  source_name TEXT NOT NULL,
  source_version TEXT NOT NULL,
  purl TEXT NOT NULL,
  owned BOOLEAN NOT NULL,
  matched BOOLEAN NOT NULL
);
CREATE UNIQUE INDEX packages_key ON packages (key);
CREATE INDEX packages_unmatched ON packages (seq) WHERE NOT matched;
CREATE INDEX packages_name ON packages (name, ecosystem);
CREATE INDEX packages_source ON packages (source_name, ecosystem) WHERE source_name <> '';

-- The images of a chunk that have a package. Bits of images that are gone may be left.
CREATE TABLE package_images (
  chunk BIGINT NOT NULL,
  package BIGINT NOT NULL,
  bits BYTEA NOT NULL,
  PRIMARY KEY (chunk, package)
);

-- What inspecting an image has found, whichever repos have it. packages and places are
-- encoded by findingdb.
CREATE TABLE inspections (
  digest TEXT PRIMARY KEY,
  extractors BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  distribution TEXT NOT NULL,
  warnings TEXT NOT NULL,
  packages BYTEA NOT NULL,
  places BYTEA NOT NULL
);

-- Which advisories affect a version of a package, since when. root is the organization of
-- the advisory, so that nobody has to read past another's.
CREATE TABLE matches (
  package BIGINT NOT NULL,
  root BIGINT NOT NULL,
  advisory BIGINT NOT NULL,
  since_ms BIGINT NOT NULL,
  PRIMARY KEY (package, root, advisory)
);
CREATE INDEX matches_advisory ON matches (advisory, package);

-- Advisories that have changed, or are gone, since packages were last compared with them.
CREATE TABLE advisory_changes (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  root BIGINT NOT NULL,
  advisory BIGINT NOT NULL
);
CREATE INDEX advisory_changes_root ON advisory_changes (root);

-- The ecosystems that advisories of a group are about, or were.
CREATE TABLE advisory_ecosystems (
  ecosystem TEXT NOT NULL,
  grp TEXT NOT NULL,
  PRIMARY KEY (ecosystem, grp)
);
