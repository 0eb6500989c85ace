-- owner: vuln/findingdb

-- The findings of a group and everything below it on a day in UTC, which is a vuln.Day. counts is a vuln.FindingDay in
-- JSON.
CREATE TABLE finding_days (
  grp BIGINT NOT NULL REFERENCES groups (seg) ON DELETE CASCADE,
  day BIGINT NOT NULL,
  counts TEXT NOT NULL,
  PRIMARY KEY (grp, day)
);

-- The time at which the findings of an organization are counted next. A replica that counts them moves it into the
-- future, so that no other replica counts them, too.
CREATE TABLE finding_day_runs (
  root BIGINT PRIMARY KEY REFERENCES groups (seg) ON DELETE CASCADE,
  due_ms BIGINT NOT NULL
);
