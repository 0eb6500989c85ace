-- The history that the database has: which server, database and timeline of PostgreSQL
-- it was in when a process first saw that this had changed, at which revision that was,
-- and when. A standby that was promoted and a back-up that was restored continue another
-- history than the one that replicas know. SQLite has one process, and no row here.
CREATE TABLE history (
  id BIGINT PRIMARY KEY,
  name TEXT NOT NULL,
  rev BIGINT NOT NULL,
  since_ms BIGINT NOT NULL
);
