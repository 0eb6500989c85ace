-- A process that answers from what it remembers says here, again and again, that it is
-- there, and which changes to grants and to groups it has taken in. Whoever makes a
-- change waits for it.
CREATE TABLE replicas (
  id TEXT PRIMARY KEY,
  beat BIGINT NOT NULL,
  renew_ms BIGINT NOT NULL,
  grants_at BIGINT NOT NULL,
  groups_at BIGINT NOT NULL
);
