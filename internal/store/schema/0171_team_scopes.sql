-- Finds the roles that mappings give to teams on groups.

-- owner: access/iamdb

CREATE INDEX external_group_role_mappings_scope ON external_group_role_mappings (scope);
