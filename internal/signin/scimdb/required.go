package scimdb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// RequireListed returns fault.PermissionDenied if a provider admits only active users of its directory and identity is
// not the person of one. It locks the settings of the directory against changes until the commit. The directory need
// not be enabled: its list of users stays in force until somebody ends the requirement.
func (t Tx) RequireListed(ctx context.Context, provider, identity resource.UID) error {
	d, err := t.Hold(ctx, provider)
	if err != nil || !d.Required {
		return err
	}
	var one int
	err = t.Row(ctx, `SELECT 1 FROM scim_users WHERE provider = $1 AND identity = $2 AND identity <> '' AND active`,
		[]any{store.Segment(provider), string(identity)}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.PermissionDenied, "Permission denied: only people in the directory of your organization "+
			"can sign in with this identity provider; ask its administrator to assign you to Holdfast in the directory")
	}
	return err
}

// RefuseRequired returns fault.FailedPrecondition if a provider admits only active users of its directory. If the
// operator trusts a provider, the exchange of its tokens does not ask a directory.
func (t Tx) RefuseRequired(ctx context.Context, provider resource.UID) error {
	d, err := t.Hold(ctx, provider)
	if err == nil && d.Required {
		err = fault.Unmet("DIRECTORY_REQUIRED", "the provider admits only users of its directory; its organization must end "+
			"this requirement first")
	}
	return err
}

// RequireListed is Tx.RequireListed in a transaction of its own. If it has returned nil, a requirement that
// begins later begins after this call. It writes nothing and costs one read if the directory is not enabled.
func (s *Store) RequireListed(ctx context.Context, provider, identity resource.UID) error {
	var asks bool // every exchange of a provider's token reads this, so it reads no more
	err := s.Row(ctx, `SELECT enabled OR required FROM scim_directories WHERE provider = $1`,
		[]any{store.Segment(provider)}, &asks)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !asks {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Write(ctx, func(tx *store.Tx) error { return In(tx).RequireListed(ctx, provider, identity) })
}

// IsListed reports whether identity is the person of an active user of a directory.
func (t Tx) IsListed(ctx context.Context, provider, identity resource.UID) (listed bool, err error) {
	err = t.Row(ctx, `SELECT count(*) > 0 FROM scim_users WHERE provider = $1 AND identity = $2 AND identity <> ''
		AND active`, []any{store.Segment(provider), string(identity)}, &listed)
	return listed, err
}

// Unlisted returns up to n people in a realm who are not the person of an active user of a directory, and locks them.
func (t Tx) Unlisted(ctx context.Context, provider resource.UID, realm string, n int) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT t.uid FROM identities AS t WHERE t.realm = $1
		AND NOT EXISTS (SELECT 1 FROM scim_users AS u WHERE u.identity = t.uid AND u.identity <> '' AND u.provider = $2
			AND u.active) ORDER BY t.uid LIMIT $3`+t.DB.Engine.ForUpdate, realm, store.Segment(provider), n)
}
