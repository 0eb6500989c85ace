-- owner: vuln/findingdb

-- Why the last count of the findings of an organization failed; empty if it succeeded.
ALTER TABLE finding_day_runs ADD COLUMN failure TEXT NOT NULL DEFAULT '';
