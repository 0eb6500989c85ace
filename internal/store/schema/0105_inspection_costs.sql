-- owner: registry/imagedb

-- The processor time of the inspections of each tenant, as positions in the queue: see imagedb/share.go. The row of
-- tenant 0 has the position of the queue.
CREATE TABLE inspection_shares (
  tenant BIGINT PRIMARY KEY,
  spent_us BIGINT NOT NULL
);

-- The cost of reading a layer, in the images of one tenant. version is the version of the code that has read it.
CREATE TABLE layer_costs (
  tenant BIGINT NOT NULL,
  digest TEXT NOT NULL,
  version BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  processor_us BIGINT NOT NULL,
  update_ms BIGINT NOT NULL,
  PRIMARY KEY (tenant, digest)
);
CREATE INDEX layer_costs_update ON layer_costs (update_ms);
