-- Counts the failing subscriptions for operators without a scan of all subscriptions.

-- owner: events/eventdb

CREATE INDEX subscriptions_failing ON subscriptions (failing_ms) WHERE failing_ms > 0;
