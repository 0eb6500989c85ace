-- owner: registry/imagedb

-- How many images of an organization were taken from the queue for their first inspection since from_ms, and in the
-- period before, which began at before_ms. See imagedb/backlog.go.
CREATE TABLE inspection_rates (
  root BIGINT PRIMARY KEY,
  from_ms BIGINT NOT NULL,
  taken BIGINT NOT NULL,
  before_ms BIGINT NOT NULL,
  taken_before BIGINT NOT NULL
);
