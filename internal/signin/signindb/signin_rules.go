package signindb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// SignInRules returns the sign-in rules of an organization. An organization that has
// set none has the default rules.
func (s *Store) SignInRules(ctx context.Context, org resource.UID) (resource.SignInRules, error) {
	r := resource.SignInRules{Organization: org}
	err := s.Row(ctx, `SELECT local_off FROM sign_in_rules WHERE org = $1`, []any{store.Segment(org)}, &r.LocalOff)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, err
}

// SetSignInRules stores the sign-in rules of an organization. It returns
// fault.NotFound if there is no such organization.
func (t Tx) SetSignInRules(ctx context.Context, r resource.SignInRules) error {
	if err := t.RequireGroup(ctx, r.Organization); err != nil {
		return err
	}
	before := resource.SignInRules{Organization: r.Organization}
	err := t.Row(ctx, `SELECT t.local_off FROM sign_in_rules AS t WHERE t.org = $1`+t.DB.Engine.ForUpdate,
		[]any{store.Segment(r.Organization)}, &before.LocalOff)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if _, err := t.Exec(ctx, `INSERT INTO sign_in_rules (org, local_off) VALUES ($1, $2)
		ON CONFLICT (org) DO UPDATE SET local_off = excluded.local_off`, store.Segment(r.Organization),
		r.LocalOff); err != nil {
		return err
	}
	return t.Emit(ctx, resource.SignInRulesUpdated, r.Organization, r.Organization, before, r)
}
