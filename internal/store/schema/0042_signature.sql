-- Whose signatures of images count.
CREATE TABLE signers (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL,
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  name TEXT NOT NULL,
  detail TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX signers_uid ON signers (uid);
CREATE UNIQUE INDEX signers_parent_name ON signers (parent, name);
CREATE INDEX signers_parent_create ON signers (parent, create_ms, seg);
CREATE INDEX signers_parent_seg ON signers (parent, seg);
CREATE INDEX signers_a1_name ON signers (a1, name, seg) WHERE a1 IS NOT NULL;
CREATE INDEX signers_a2_name ON signers (a2, name, seg) WHERE a2 IS NOT NULL;
CREATE INDEX signers_a3_name ON signers (a3, name, seg) WHERE a3 IS NOT NULL;
CREATE INDEX signers_a1_create ON signers (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX signers_a2_create ON signers (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX signers_a3_create ON signers (a3, create_ms, seg) WHERE a3 IS NOT NULL;
