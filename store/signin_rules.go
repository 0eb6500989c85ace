package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/resource"
)

// SignInRules returns what an organization has decided, or what goes for one
// that has not.
func (s *Store) SignInRules(ctx context.Context, org resource.UID) (resource.SignInRules, error) {
	r := resource.SignInRules{Organization: org}
	err := s.row(ctx, `SELECT local_off FROM sign_in_rules WHERE org = $1`, []any{segment(org)}, &r.LocalOff)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, err
}
