-- Vulnerabilities and the advisories that describe them. An advisory of a distribution fixes several vulnerabilities.

-- owner: vuln/findingdb

-- A JSON array of those names of the advisory that are vulnerabilities which it fixes. It is empty if the previous
-- version wrote the row, or if the matcher has not converted it yet.
ALTER TABLE matched_advisories ADD COLUMN fixes TEXT NOT NULL DEFAULT '';
CREATE INDEX matched_advisories_unconverted ON matched_advisories (advisory) WHERE fixes = '';

-- The vendor's severity of the advisory for the package, from 1 (low) to 4 (critical); 0 if there is none.
ALTER TABLE matches ADD COLUMN vendor BIGINT NOT NULL DEFAULT 0;
ALTER TABLE past_matches ADD COLUMN vendor BIGINT NOT NULL DEFAULT 0;

-- The names of a vulnerability in one group. key is a digest of the group and the name. Two vulnerabilities become one
-- when an advisory names both, and are never split, so that the events about them are consistent.
CREATE TABLE vulnerability_names (
  key TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  vulnerability BIGINT NOT NULL
);
CREATE INDEX vulnerability_names_vulnerability ON vulnerability_names (vulnerability);

-- The vulnerabilities that an advisory describes.
CREATE TABLE advisory_vulnerabilities (
  vulnerability BIGINT NOT NULL,
  advisory BIGINT NOT NULL,
  PRIMARY KEY (vulnerability, advisory)
);
CREATE INDEX advisory_vulnerabilities_advisory ON advisory_vulnerabilities (advisory);
