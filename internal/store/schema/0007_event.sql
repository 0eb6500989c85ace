-- Where events are sent. Every event up to the number in cursor_seq was taken by
-- the sink, or is in deliveries, or was none of its business.
CREATE TABLE subscriptions (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES groups (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  sink TEXT NOT NULL,
  cursor_seq BIGINT NOT NULL,
  create_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX subscriptions_uid ON subscriptions (uid);
CREATE INDEX subscriptions_parent_create ON subscriptions (parent, create_ms, seg);
CREATE INDEX subscriptions_parent_seg ON subscriptions (parent, seg);
CREATE INDEX subscriptions_a1_create ON subscriptions (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX subscriptions_a2_create ON subscriptions (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX subscriptions_a3_create ON subscriptions (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- Events that were given up, each with all of itself: the outbox forgets.
CREATE TABLE deliveries (
  seg BIGINT PRIMARY KEY,
  uid TEXT NOT NULL,
  parent BIGINT NOT NULL REFERENCES subscriptions (seg),
  a1 BIGINT,
  a2 BIGINT,
  a3 BIGINT,
  event_seq BIGINT NOT NULL,
  event TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  error TEXT NOT NULL,
  replay BOOLEAN NOT NULL,
  create_ms BIGINT NOT NULL,
  update_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX deliveries_uid ON deliveries (uid);
CREATE UNIQUE INDEX deliveries_once ON deliveries (parent, event_seq);
CREATE INDEX deliveries_replay ON deliveries (parent, event_seq) WHERE replay;
CREATE INDEX deliveries_create ON deliveries (create_ms);
CREATE INDEX deliveries_parent_create ON deliveries (parent, create_ms, seg);
CREATE INDEX deliveries_parent_seg ON deliveries (parent, seg);
CREATE INDEX deliveries_a1_create ON deliveries (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX deliveries_a2_create ON deliveries (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX deliveries_a3_create ON deliveries (a3, create_ms, seg) WHERE a3 IS NOT NULL;

-- Work that one replica does for all. Whoever has it renews it in time.
CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  until_ms BIGINT NOT NULL
);
