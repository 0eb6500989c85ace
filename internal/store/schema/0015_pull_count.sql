-- How many more pulls like it a record stands for: those of strangers are
-- recorded together.
ALTER TABLE pulls ADD COLUMN more BIGINT NOT NULL DEFAULT 0;
