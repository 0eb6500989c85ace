-- Where images run, as clients tell it. Like the tables of images, these have no foreign
-- keys, because the version before deletes groups and knows nothing of them.

-- A place where images run, such as a cluster: who has last told what runs there, when,
-- and until when that is worth something. grp is the group that it was told to, uid the
-- uid of that group. entries is how many there are, unknown how many have no digest.
CREATE TABLE inventory_places (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  grp BIGINT NOT NULL,
  root BIGINT NOT NULL,
  uid TEXT NOT NULL,
  name TEXT NOT NULL,
  identity TEXT NOT NULL,
  push_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  entries BIGINT NOT NULL,
  unknown BIGINT NOT NULL
);
CREATE UNIQUE INDEX inventory_places_name ON inventory_places (grp, name);
CREATE INDEX inventory_places_root ON inventory_places (root);

-- What runs at a place. digest is '' where it is not known.
CREATE TABLE inventory_entries (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  place BIGINT NOT NULL,
  root BIGINT NOT NULL,
  digest TEXT NOT NULL,
  namespace TEXT NOT NULL,
  workload TEXT NOT NULL,
  container TEXT NOT NULL,
  image TEXT NOT NULL,
  platform TEXT NOT NULL,
  copies BIGINT NOT NULL
);
CREATE INDEX inventory_entries_place ON inventory_entries (place, seq);
CREATE INDEX inventory_entries_digest ON inventory_entries (root, digest, place);

-- The images of an organization with a digest, and those whose packages are not known.
CREATE INDEX images_root_digest ON images (root, digest);
CREATE INDEX images_unknown ON images (root, state) WHERE state = 0 OR state = 2;

-- Who has pulled from an organization, and when.
CREATE INDEX pulls_a1_identity ON pulls (a1, identity, create_ms) WHERE a1 IS NOT NULL;

-- When records of pulls and pushes were lost.
CREATE TABLE pull_losses (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  n BIGINT NOT NULL,
  at_ms BIGINT NOT NULL
);
