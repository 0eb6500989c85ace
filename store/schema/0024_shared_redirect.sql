-- The client at the provider is registered with the redirect address that all providers share. Providers that the
-- version before makes have an address of their own.
ALTER TABLE identity_providers ADD COLUMN shared_redirect BOOLEAN NOT NULL DEFAULT FALSE;
