-- The log of requests to the sinks of subscriptions, and the state of each sink.

-- owner: events/eventdb

-- The latest requests to each sink. status is the status of the response, or 0 if there was none. next_ms is the time
-- of the next attempt, or 0 if there is none.
CREATE TABLE delivery_attempts (
  subscription BIGINT NOT NULL REFERENCES subscriptions (seg),
  at_us BIGINT NOT NULL,
  event_id TEXT NOT NULL,
  event_seq BIGINT NOT NULL,
  event_type TEXT NOT NULL,
  subject TEXT NOT NULL,
  status BIGINT NOT NULL,
  latency_ms BIGINT NOT NULL,
  error TEXT NOT NULL,
  response TEXT NOT NULL,
  next_ms BIGINT NOT NULL,
  PRIMARY KEY (subscription, at_us, event_id)
);

-- failing_ms is the time of the first failure since the last success, or 0. failing_error is the latest error.
-- failing_reported is true if the owners were notified.
ALTER TABLE subscriptions ADD COLUMN failing_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE subscriptions ADD COLUMN failing_error TEXT NOT NULL DEFAULT '';
ALTER TABLE subscriptions ADD COLUMN failing_reported BOOLEAN NOT NULL DEFAULT FALSE;
