-- What was granted when, beside the event log and for longer. A row of a history was valid
-- from from_ms on and until before to_ms. Triggers write it, so that it has what every version
-- of the program does; docs/decisions/0014-history-of-grants.md tells why.
--
-- Two numbers stand for times that are not known yet: 9223372036854775807 in to_ms says that
-- the row is still valid, and in from_ms that its transaction has not taken its revision yet;
-- 9223372036854775806 in to_ms says that about the end of the row. Neither is reached by a
-- time that can be asked about.

-- Since when all of it is known.
CREATE TABLE access_history (
  id BIGINT PRIMARY KEY,
  since_ms BIGINT NOT NULL
);

-- When the last revision was taken, which is later for each, and who is taking it: the trigger
-- clears that, because the version before does not write it.
ALTER TABLE revision ADD COLUMN at_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE revision ADD COLUMN actor TEXT NOT NULL DEFAULT '';

-- Role bindings, as far as they decide. The key of its group is grp, of its organization org.
CREATE TABLE binding_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  grp BIGINT NOT NULL,
  org BIGINT NOT NULL,
  identity TEXT NOT NULL,
  role BIGINT NOT NULL,
  create_ms BIGINT NOT NULL,
  start_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL,
  made_by TEXT NOT NULL DEFAULT '',
  ended_by TEXT NOT NULL DEFAULT ''
);

-- Roles, with what they allow.
CREATE TABLE role_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  name TEXT NOT NULL,
  capabilities TEXT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL,
  made_by TEXT NOT NULL DEFAULT '',
  ended_by TEXT NOT NULL DEFAULT ''
);

-- Groups, and identities that are in a group, with their names. Names decide nothing, and
-- creating one takes no revision: their times are those of the statements.
CREATE TABLE group_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  parent BIGINT,
  name TEXT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL
);
CREATE TABLE identity_history (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seg BIGINT NOT NULL,
  uid TEXT NOT NULL,
  name TEXT NOT NULL,
  from_ms BIGINT NOT NULL,
  to_ms BIGINT NOT NULL
);

-- on sqlite
INSERT INTO access_history (id, since_ms) VALUES (1, CAST(unixepoch('subsec') * 1000 AS INTEGER));

CREATE TRIGGER binding_history_made AFTER INSERT ON role_bindings BEGIN
  INSERT INTO binding_history (seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.parent, coalesce(NEW.a1, NEW.parent), NEW.identity, NEW.role, NEW.create_ms,
    NEW.start_ms, NEW.expire_ms, 9223372036854775807, 9223372036854775807);
END;
CREATE TRIGGER binding_history_changed AFTER UPDATE OF identity, role, start_ms, expire_ms ON role_bindings
WHEN OLD.identity <> NEW.identity OR OLD.role <> NEW.role OR OLD.start_ms <> NEW.start_ms OR OLD.expire_ms <> NEW.expire_ms
BEGIN
  UPDATE binding_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO binding_history (seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.parent, coalesce(NEW.a1, NEW.parent), NEW.identity, NEW.role, NEW.create_ms,
    NEW.start_ms, NEW.expire_ms, 9223372036854775807, 9223372036854775807);
END;
CREATE TRIGGER binding_history_ended AFTER DELETE ON role_bindings BEGIN
  UPDATE binding_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER role_history_made AFTER INSERT ON roles BEGIN
  INSERT INTO role_history (seg, uid, name, capabilities, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.name, NEW.capabilities, 9223372036854775807, 9223372036854775807);
END;
CREATE TRIGGER role_history_changed AFTER UPDATE OF name, capabilities ON roles
WHEN OLD.name <> NEW.name OR OLD.capabilities <> NEW.capabilities
BEGIN
  UPDATE role_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO role_history (seg, uid, name, capabilities, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.name, NEW.capabilities, 9223372036854775807, 9223372036854775807);
END;
CREATE TRIGGER role_history_ended AFTER DELETE ON roles BEGIN
  UPDATE role_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER group_history_made AFTER INSERT ON groups BEGIN
  INSERT INTO group_history (seg, uid, parent, name, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.parent, NEW.name, CAST(unixepoch('subsec') * 1000 AS INTEGER), 9223372036854775807);
END;
CREATE TRIGGER group_history_changed AFTER UPDATE OF name ON groups WHEN OLD.name <> NEW.name BEGIN
  UPDATE group_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO group_history (seg, uid, parent, name, from_ms, to_ms)
  SELECT NEW.seg, NEW.uid, NEW.parent, NEW.name, coalesce(max(to_ms), CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    9223372036854775807 FROM group_history WHERE seg = NEW.seg;
END;
CREATE TRIGGER group_history_ended AFTER DELETE ON groups BEGIN
  UPDATE group_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER identity_history_made AFTER INSERT ON identities WHEN NEW.parent IS NOT NULL BEGIN
  INSERT INTO identity_history (seg, uid, name, from_ms, to_ms)
  VALUES (NEW.seg, NEW.uid, NEW.name, CAST(unixepoch('subsec') * 1000 AS INTEGER), 9223372036854775807);
END;
CREATE TRIGGER identity_history_changed AFTER UPDATE OF name ON identities
WHEN NEW.parent IS NOT NULL AND OLD.name <> NEW.name BEGIN
  UPDATE identity_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  INSERT INTO identity_history (seg, uid, name, from_ms, to_ms)
  SELECT NEW.seg, NEW.uid, NEW.name, coalesce(max(to_ms), CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    9223372036854775807 FROM identity_history WHERE seg = NEW.seg;
END;
CREATE TRIGGER identity_history_ended AFTER DELETE ON identities WHEN OLD.parent IS NOT NULL BEGIN
  UPDATE identity_history SET to_ms = max(from_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
  WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
END;

CREATE TRIGGER grant_history_dated AFTER UPDATE OF rev ON revision WHEN NEW.id = 1 BEGIN
  UPDATE revision SET at_ms = max(at_ms + 1, CAST(unixepoch('subsec') * 1000 AS INTEGER)), actor = '' WHERE id = 1;
  UPDATE binding_history SET from_ms = (SELECT at_ms FROM revision WHERE id = 1), made_by = NEW.actor
  WHERE from_ms = 9223372036854775807;
  UPDATE binding_history SET to_ms = (SELECT at_ms FROM revision WHERE id = 1), ended_by = NEW.actor
  WHERE to_ms = 9223372036854775806;
  UPDATE role_history SET from_ms = (SELECT at_ms FROM revision WHERE id = 1), made_by = NEW.actor
  WHERE from_ms = 9223372036854775807;
  UPDATE role_history SET to_ms = (SELECT at_ms FROM revision WHERE id = 1), ended_by = NEW.actor
  WHERE to_ms = 9223372036854775806;
END;

-- on postgresql
INSERT INTO access_history (id, since_ms) VALUES (1, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));

CREATE FUNCTION record_binding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE binding_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO binding_history (seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.parent, coalesce(NEW.a1, NEW.parent), NEW.identity, NEW.role, NEW.create_ms,
      NEW.start_ms, NEW.expire_ms, 9223372036854775807, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER binding_history_made AFTER INSERT OR DELETE ON role_bindings FOR EACH ROW EXECUTE FUNCTION record_binding();
CREATE TRIGGER binding_history_changed AFTER UPDATE OF identity, role, start_ms, expire_ms ON role_bindings FOR EACH ROW
WHEN (OLD.identity <> NEW.identity OR OLD.role <> NEW.role OR OLD.start_ms <> NEW.start_ms OR OLD.expire_ms <> NEW.expire_ms)
EXECUTE FUNCTION record_binding();

CREATE FUNCTION record_role() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE role_history SET to_ms = 9223372036854775806 WHERE seg = OLD.seg AND to_ms = 9223372036854775807;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO role_history (seg, uid, name, capabilities, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.name, NEW.capabilities, 9223372036854775807, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER role_history_made AFTER INSERT OR DELETE ON roles FOR EACH ROW EXECUTE FUNCTION record_role();
CREATE TRIGGER role_history_changed AFTER UPDATE OF name, capabilities ON roles FOR EACH ROW
WHEN (OLD.name <> NEW.name OR OLD.capabilities <> NEW.capabilities) EXECUTE FUNCTION record_role();

CREATE FUNCTION record_group() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  at BIGINT := CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT);
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE group_history SET to_ms = greatest(from_ms, at) WHERE seg = OLD.seg AND to_ms = 9223372036854775807
    RETURNING to_ms INTO at;
    at := coalesce(at, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO group_history (seg, uid, parent, name, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.parent, NEW.name, at, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER group_history_made AFTER INSERT OR DELETE ON groups FOR EACH ROW EXECUTE FUNCTION record_group();
CREATE TRIGGER group_history_changed AFTER UPDATE OF name ON groups FOR EACH ROW
WHEN (OLD.name <> NEW.name) EXECUTE FUNCTION record_group();

CREATE FUNCTION record_identity() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  at BIGINT := CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT);
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE identity_history SET to_ms = greatest(from_ms, at) WHERE seg = OLD.seg AND to_ms = 9223372036854775807
    RETURNING to_ms INTO at;
    at := coalesce(at, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO identity_history (seg, uid, name, from_ms, to_ms)
    VALUES (NEW.seg, NEW.uid, NEW.name, at, 9223372036854775807);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER identity_history_made AFTER INSERT ON identities FOR EACH ROW
WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION record_identity();
CREATE TRIGGER identity_history_changed AFTER UPDATE OF name ON identities FOR EACH ROW
WHEN (NEW.parent IS NOT NULL AND OLD.name <> NEW.name) EXECUTE FUNCTION record_identity();
CREATE TRIGGER identity_history_ended AFTER DELETE ON identities FOR EACH ROW
WHEN (OLD.parent IS NOT NULL) EXECUTE FUNCTION record_identity();

-- The row of the revision is locked by then, and until the commit: the times of transactions are
-- in the order of their commits.
CREATE FUNCTION date_grant_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.at_ms := greatest(OLD.at_ms + 1, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT));
  UPDATE binding_history SET from_ms = NEW.at_ms, made_by = NEW.actor WHERE from_ms = 9223372036854775807;
  UPDATE binding_history SET to_ms = NEW.at_ms, ended_by = NEW.actor WHERE to_ms = 9223372036854775806;
  UPDATE role_history SET from_ms = NEW.at_ms, made_by = NEW.actor WHERE from_ms = 9223372036854775807;
  UPDATE role_history SET to_ms = NEW.at_ms, ended_by = NEW.actor WHERE to_ms = 9223372036854775806;
  NEW.actor := '';
  RETURN NEW;
END $$;
CREATE TRIGGER grant_history_dated BEFORE UPDATE OF rev ON revision FOR EACH ROW
WHEN (NEW.id = 1) EXECUTE FUNCTION date_grant_history();

-- on both
UPDATE revision SET at_ms = (SELECT since_ms FROM access_history WHERE id = 1) WHERE id = 1;

-- History begins with what there is.
INSERT INTO binding_history (seg, uid, grp, org, identity, role, create_ms, start_ms, expire_ms, from_ms, to_ms)
SELECT b.seg, b.uid, b.parent, coalesce(b.a1, b.parent), b.identity, b.role, b.create_ms, b.start_ms, b.expire_ms,
  h.since_ms, 9223372036854775807 FROM role_bindings AS b CROSS JOIN access_history AS h;
INSERT INTO role_history (seg, uid, name, capabilities, from_ms, to_ms)
SELECT r.seg, r.uid, r.name, r.capabilities, h.since_ms, 9223372036854775807 FROM roles AS r CROSS JOIN access_history AS h;
INSERT INTO group_history (seg, uid, parent, name, from_ms, to_ms)
SELECT g.seg, g.uid, g.parent, g.name, h.since_ms, 9223372036854775807 FROM groups AS g CROSS JOIN access_history AS h;
INSERT INTO identity_history (seg, uid, name, from_ms, to_ms)
SELECT i.seg, i.uid, i.name, h.since_ms, 9223372036854775807 FROM identities AS i CROSS JOIN access_history AS h
WHERE i.parent IS NOT NULL;

CREATE INDEX binding_history_grp ON binding_history (grp, to_ms);
CREATE INDEX binding_history_identity ON binding_history (identity, to_ms);
CREATE INDEX binding_history_valid ON binding_history (seg) WHERE to_ms = 9223372036854775807;
CREATE INDEX binding_history_begun ON binding_history (org, from_ms);
CREATE INDEX binding_history_over ON binding_history (org, to_ms) WHERE to_ms < 9223372036854775806;
CREATE INDEX binding_history_start ON binding_history (org, start_ms) WHERE start_ms > 0;
CREATE INDEX binding_history_expire ON binding_history (org, expire_ms) WHERE expire_ms > 0;
CREATE INDEX binding_history_old ON binding_history (to_ms) WHERE to_ms < 9223372036854775806;
CREATE INDEX binding_history_undated ON binding_history (seq) WHERE from_ms = 9223372036854775807;
CREATE INDEX binding_history_ending ON binding_history (seq) WHERE to_ms = 9223372036854775806;
CREATE INDEX role_history_role ON role_history (seg, to_ms);
CREATE INDEX role_history_begun ON role_history (from_ms);
CREATE INDEX role_history_old ON role_history (to_ms) WHERE to_ms < 9223372036854775806;
CREATE INDEX role_history_undated ON role_history (seq) WHERE from_ms = 9223372036854775807;
CREATE INDEX role_history_ending ON role_history (seq) WHERE to_ms = 9223372036854775806;
CREATE INDEX group_history_group ON group_history (seg, to_ms);
CREATE INDEX group_history_parent ON group_history (parent, to_ms);
CREATE INDEX group_history_old ON group_history (to_ms) WHERE to_ms < 9223372036854775806;
CREATE INDEX identity_history_identity ON identity_history (seg, to_ms);
CREATE INDEX identity_history_old ON identity_history (to_ms) WHERE to_ms < 9223372036854775806;
