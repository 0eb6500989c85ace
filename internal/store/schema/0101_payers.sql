-- The organizations that callers have created, and the organization that pays for each of them. The budgets of the payer
-- and its share of the server apply to both. No organization pays for a payer.

-- owner: access/iamdb

CREATE TABLE payers (
  seg BIGINT PRIMARY KEY,
  payer BIGINT NOT NULL REFERENCES groups (seg),
  payer_uid TEXT NOT NULL,
  creator TEXT NOT NULL
);
CREATE INDEX payers_payer ON payers (payer);
CREATE INDEX payers_creator ON payers (creator);
