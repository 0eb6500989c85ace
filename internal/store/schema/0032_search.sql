-- What a search needs. The version before writes no request; its changes are in the audit
-- log, but are not found by their request.
ALTER TABLE outbox ADD COLUMN request TEXT NOT NULL DEFAULT '';
CREATE INDEX outbox_request ON outbox (request, grp, seq) WHERE request <> '';

CREATE INDEX identities_email ON identities (email, uid) WHERE email <> '';
