-- The password of an account is enough to sign in, though it has passkeys.
ALTER TABLE accounts ADD COLUMN password_alone BOOLEAN NOT NULL DEFAULT FALSE;
