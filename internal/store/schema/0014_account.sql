-- An e-mail address has at most one account in an organization. Different
-- organizations may each have an account of the same address.
DROP INDEX accounts_name;
CREATE UNIQUE INDEX accounts_parent_email ON accounts (parent, name);
CREATE INDEX accounts_email ON accounts (name, create_ms, seg);
