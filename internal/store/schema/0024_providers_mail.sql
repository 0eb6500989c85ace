-- The client at the provider is registered with the redirect address that all providers share. Providers that the
-- version before makes have an address of their own.
ALTER TABLE identity_providers ADD COLUMN shared_redirect BOOLEAN NOT NULL DEFAULT FALSE;

-- Messages to people, from the transaction that they are about until they were sent. What a message says may be a
-- secret link: it is sealed, and gone when the message was sent or has expired. The row stays for a day, to count how
-- many an organization has sent, and how many an address was sent. The address is a keyed digest.
CREATE TABLE mails (
  id TEXT PRIMARY KEY,
  organization TEXT NOT NULL,
  address BYTEA NOT NULL,
  sealed BYTEA,
  attempts BIGINT NOT NULL DEFAULT 0,
  create_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL,
  next_ms BIGINT NOT NULL
);
CREATE INDEX mails_next ON mails (next_ms) WHERE sealed IS NOT NULL;
CREATE INDEX mails_organization ON mails (organization, create_ms);
CREATE INDEX mails_address ON mails (address, create_ms);
CREATE INDEX mails_create ON mails (create_ms);
