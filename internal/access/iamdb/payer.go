package iamdb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// An organization that a caller has created is paid for by another organization, if the caller has one. The budgets of
// the payer limit both together, and both share one tenant: see store.DB.Tenant. Payers do not form chains: a payer
// always pays for itself.

// InsertOrganization adds the organization g with its owner. creator is the identity that creates it. payer is the
// organization that pays for g, or "" if the creator has none. Then g is paid for by the first organization that the
// creator has created, or by itself. InsertOrganization returns the errors of InsertGroup, and fault.NotFound if payer
// does not exist.
func (s *Store) InsertOrganization(
	ctx context.Context, g resource.Group, owner resource.RoleBinding, payer resource.UID,
) (resource.Group, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.insertGroupWith(ctx, &g, []resource.RoleBinding{owner}); err != nil {
			return err
		}
		payer, err := t.findPayer(ctx, payer, owner.Identity)
		if err != nil {
			return err
		}
		if payer == "" {
			payer = g.UID
		}
		if _, err := t.Exec(ctx, `INSERT INTO payers (seg, payer, payer_uid, creator) VALUES ($1, $2, $3, $4)`,
			store.Segment(g.UID), store.Segment(payer), string(payer), string(owner.Identity)); err != nil {
			return err
		}
		return t.BudgetsChanged(ctx)
	})
	return g, err
}

// findPayer returns the organization that pays for org, and holds it until the commit. If org is "", it returns the
// payer of the organization that the creator created first, or "" if there is none.
func (t Tx) findPayer(ctx context.Context, org, creator resource.UID) (payer resource.UID, _ error) {
	text, arg := `SELECT payer_uid FROM payers WHERE seg = $1`, any(store.Segment(org))
	if org == "" {
		text, arg = `SELECT p.payer_uid FROM payers AS p JOIN groups AS g ON g.seg = p.seg
			WHERE p.creator = $1 ORDER BY g.create_ms, g.seg LIMIT 1`, string(creator)
	}
	err := t.Row(ctx, text, []any{arg}, &payer)
	if errors.Is(err, sql.ErrNoRows) {
		payer, err = org, nil
	}
	if err != nil {
		return "", err
	}
	return payer, t.RequireGroup(ctx, payer)
}

// SetPayer makes payer pay for org. If org itself pays for other organizations, payer pays for them, too. It returns
// fault.NotFound if an organization does not exist.
func (s *Store) SetPayer(ctx context.Context, org, payer resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.LockGroup(ctx, org); err != nil { // InsertOrganization holds the payer that it has found
			return err
		}
		if org != payer {
			var err error
			if payer, err = t.findPayer(ctx, payer, ""); err != nil {
				return err
			}
		}
		if _, err := t.Exec(ctx, `INSERT INTO payers (seg, payer, payer_uid, creator) VALUES ($1, $2, $3, '')
			ON CONFLICT (seg) DO UPDATE SET payer = excluded.payer, payer_uid = excluded.payer_uid`,
			store.Segment(org), store.Segment(payer), string(payer)); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `UPDATE payers SET payer = $1, payer_uid = $2 WHERE payer = $3`,
			store.Segment(payer), string(payer), store.Segment(org)); err != nil {
			return err
		}
		return t.BudgetsChanged(ctx)
	})
}

// deletePayer removes the record of the organization that pays for org.
func (t Tx) deletePayer(ctx context.Context, org resource.UID) error {
	n, err := t.Exec(ctx, `DELETE FROM payers WHERE seg = $1`, store.Segment(org))
	if err != nil || n == 0 {
		return err
	}
	return t.BudgetsChanged(ctx)
}
