-- Bindings with a start and an end, in milliseconds; 0 is none. end_ms is when a binding that is over
-- was recorded as such, with its event; 0 is not yet.
ALTER TABLE role_bindings ADD COLUMN start_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE role_bindings ADD COLUMN expire_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE role_bindings ADD COLUMN end_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE role_bindings ADD COLUMN reason TEXT NOT NULL DEFAULT '';
CREATE INDEX role_bindings_due ON role_bindings (expire_ms) WHERE expire_ms > 0 AND end_ms = 0;

-- One that is over, or ends, stands beside another of the same identity and role.
DROP INDEX role_bindings_once;
-- refuses less than role_bindings_once
CREATE UNIQUE INDEX role_bindings_once_at ON role_bindings (parent, identity, role, expire_ms, start_ms);

-- The times and the reason of the binding that an invite gives.
ALTER TABLE group_invites ADD COLUMN role_start_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE group_invites ADD COLUMN role_expire_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE group_invites ADD COLUMN reason TEXT NOT NULL DEFAULT '';
