-- Who could at a time is found without reading the rows that were not valid then.
CREATE INDEX binding_history_on ON binding_history (grp, to_ms, from_ms);
DROP INDEX binding_history_grp;
CREATE INDEX binding_history_of ON binding_history (identity, to_ms, from_ms);
DROP INDEX binding_history_identity;
