-- Finds the identities of an organization that may trust a token.
CREATE INDEX identities_a1_issuer ON identities (a1, issuer, subject, seg) WHERE a1 IS NOT NULL;
