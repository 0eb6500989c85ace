-- owner: vuln/findingdb

-- People who get the weekly report of a group by e-mail. last_ms is 0 until the first was sent. problem says why the
-- last one was not sent.
CREATE TABLE report_subscriptions (
  identity TEXT NOT NULL,
  grp BIGINT NOT NULL,
  uid TEXT NOT NULL,
  voucher TEXT NOT NULL,
  create_ms BIGINT NOT NULL,
  next_ms BIGINT NOT NULL,
  last_ms BIGINT NOT NULL DEFAULT 0,
  problem TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (identity, grp)
);
CREATE INDEX report_subscriptions_grp ON report_subscriptions (grp);
CREATE INDEX report_subscriptions_uid ON report_subscriptions (uid);
CREATE INDEX report_subscriptions_due ON report_subscriptions (next_ms);
