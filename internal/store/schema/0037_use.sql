-- When a capability of a role binding was last used, to the minute.
CREATE TABLE binding_uses (
  binding BIGINT NOT NULL REFERENCES role_bindings (seg) ON DELETE CASCADE,
  capability BIGINT NOT NULL,
  last_ms BIGINT NOT NULL,
  PRIMARY KEY (binding, capability)
);
