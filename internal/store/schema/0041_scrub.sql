-- When it was found that the bytes of a blob are missing or are not what its digest says. Such a blob is not served, and
-- a push of it replaces the bytes.
ALTER TABLE blobs ADD COLUMN rotten_ms BIGINT;
CREATE INDEX blobs_rotten ON blobs (rotten_ms) WHERE rotten_ms IS NOT NULL;
