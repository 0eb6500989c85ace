-- owner: vuln/findingdb

-- When the image was started at the place, as the client reports it; 0 if it is not known.
ALTER TABLE inventory_entries ADD COLUMN start_ms BIGINT NOT NULL DEFAULT 0;
