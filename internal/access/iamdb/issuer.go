package iamdb

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// RecordLastSeen records when an identity was last assumed. This does not count as a
// change of the identity: there is no event, and its update time stays.
func (s *Store) RecordLastSeen(ctx context.Context, identity resource.UID, seen time.Time) error {
	_, err := s.Exec(ctx, `UPDATE identities SET last_seen_ms = $2 WHERE uid = $1 AND last_seen_ms < $2`,
		string(identity), store.MS(seen))
	return err
}

// NextIssuer returns the first issuer after the given one, in byte order, that an
// identity trusts, or "" if there is none.
func (s *Store) NextIssuer(ctx context.Context, after string) (string, error) {
	var next sql.NullString
	err := s.Row(ctx, `SELECT min(issuer) FROM identities WHERE issuer > $1`, []any{after}, &next)
	return next.String, err
}

// IdentitiesOf returns identities within the reach r that trust an issuer by name. If issuer is "", it returns
// identities that trust issuers by a pattern or by static keys. It returns at most limit identities and reads at most
// ten times as many; complete is false if there may be more.
func (s *Store) IdentitiesOf(
	ctx context.Context, r store.Reach, issuer string, limit int,
) (trusting []resource.Identity, complete bool, _ error) {
	read := 0
	complete = true
	err := s.Rows(ctx, identities.Select()+` WHERE t.issuer = $1 ORDER BY t.subject, t.seg`, []any{issuer},
		func(row store.Scanner) (bool, error) {
			if read++; read > 10*limit || len(trusting) == limit {
				complete = false
				return true, nil
			}
			i, err := identities.Scan(row)
			if err == nil && (store.Covered(r.Under, i.UID.Parent()) || slices.Contains(r.Also, i.UID)) {
				trusting = append(trusting, i)
			}
			return false, err
		})
	return trusting, complete, err
}

// IdentitiesTrusting returns the UIDs of identities of an organization that may trust a token: identities that name its
// issuer and its subject, or that accept patterns or have static keys. It returns at most limit UIDs.
func (s *Store) IdentitiesTrusting(
	ctx context.Context, organization resource.UID, issuer, subject string, limit int,
) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, trusting,
		store.Segment(organization), issuer, subject, limit)
}

const trusting = `SELECT uid FROM identities WHERE a1 = $1 AND issuer IN ($2, '') AND subject IN ($3, '')
	AND realm = '' LIMIT $4`
