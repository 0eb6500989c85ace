-- Which programs can serve this schema: those that know at least the migration of this
-- number. It is what lets the version before an upgrade run beside the one after it, and
-- again after a step back. CONTRIBUTING.md says when a migration may raise it.
CREATE TABLE schema_needs (
  id BIGINT PRIMARY KEY,
  version BIGINT NOT NULL
);
INSERT INTO schema_needs (id, version) VALUES (1, 17);
