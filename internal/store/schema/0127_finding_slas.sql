-- owner: vuln/findingdb

-- Within how many days the findings of a group must be fixed. detail is a vuln.SLA in JSON.
CREATE TABLE finding_slas (
  grp BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  detail TEXT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX finding_slas_uid ON finding_slas (uid);
