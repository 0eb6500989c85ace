-- The last migration that the program of a replica knows. Version 0.1.0 does not set it.
ALTER TABLE replicas ADD COLUMN knows BIGINT NOT NULL DEFAULT 100;
