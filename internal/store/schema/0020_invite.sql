-- When an invite was last changed. The version before writes 0, because it never changes one.
ALTER TABLE group_invites ADD COLUMN update_ms BIGINT NOT NULL DEFAULT 0;
UPDATE group_invites SET update_ms = create_ms;

-- Tags in the order of their creation.
CREATE INDEX tags_parent_create ON tags (parent, create_ms, seg);
CREATE INDEX tags_a1_create ON tags (a1, create_ms, seg) WHERE a1 IS NOT NULL;
CREATE INDEX tags_a2_create ON tags (a2, create_ms, seg) WHERE a2 IS NOT NULL;
CREATE INDEX tags_a3_create ON tags (a3, create_ms, seg) WHERE a3 IS NOT NULL;
