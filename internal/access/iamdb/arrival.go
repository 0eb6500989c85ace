package iamdb

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// LockIdentity reads and locks an identity, or returns fault.NotFound.
func (t Tx) LockIdentity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	return store.Lock(ctx, t.Tx, &identities, uid, t.DB.Engine.ForUpdate)
}

// LockPerson reads and locks the person with a subject in a realm, or returns fault.NotFound.
func (t Tx) LockPerson(ctx context.Context, realm, subject string) (resource.Identity, error) {
	return store.One(ctx, t.Rows, &identities, resource.UserUID(realm, subject), personWhere+t.DB.Engine.ForUpdate, realm,
		subject)
}

// NewPersonUID returns the UID for a new person with a subject in a realm.
func (t Tx) NewPersonUID(ctx context.Context, realm, subject string) (resource.UID, error) {
	return unusedUID(ctx, t.Row, realm, subject)
}

// HasIdentity reports whether an identity exists, and locks it against deletion until the commit.
func (t Tx) HasIdentity(ctx context.Context, uid resource.UID) (bool, error) {
	err := t.Require(ctx, "identities", "identity", uid)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// NoteArrival records that a person has signed in with a provider, and reports whether it was their first sign-in with
// it.
func (t Tx) NoteArrival(ctx context.Context, identity, provider resource.UID) (first bool, _ error) {
	if err := t.AddMember(ctx, provider.Root(), identity); err != nil {
		return false, err
	}
	seg, currentTime := store.Segment(provider), store.MS(t.DB.Time())
	n, err := t.Exec(ctx, `INSERT INTO arrivals (identity, provider, first_ms, last_ms) VALUES ($1, $2, $3, $3)
		ON CONFLICT (identity, provider) DO NOTHING`, string(identity), seg, currentTime)
	if err == nil && n == 0 {
		_, err = t.Exec(ctx, `UPDATE arrivals SET last_ms = $3 WHERE identity = $1 AND provider = $2`, string(identity),
			seg, currentTime)
	}
	if err == nil {
		_, err = t.Exec(ctx, `UPDATE identities SET provider = $2 WHERE uid = $1 AND (provider IS NULL OR provider <> $2)`,
			string(identity), seg)
	}
	return n == 1, err
}

// DefaultRole returns the role that a provider gives to people who sign in with it for the first time.
func (t Tx) DefaultRole(ctx context.Context, provider resource.UID) (role resource.UID, err error) {
	err = t.Row(ctx, `SELECT (SELECT r.uid FROM roles AS r WHERE r.seg = t.default_role) FROM identity_providers AS t
		WHERE t.uid = $1`,
		[]any{string(provider)}, &role)
	return role, err
}

// MappedBindings returns the bindings that an identity got from the mappings of a provider.
func (t Tx) MappedBindings(ctx context.Context, identity, provider resource.UID) ([]resource.RoleBinding, error) {
	return bareBindings.All(ctx, t.Rows, ` WHERE t.seg IN
		(SELECT m.binding FROM mapped_bindings AS m WHERE m.identity = $1 AND m.provider = $2) ORDER BY t.uid`,
		string(identity), store.Segment(provider))
}

// EnsureMapped gives an identity a role in scope because of a mapping of a provider, unless the identity already has
// the role there.
func (t Tx) EnsureMapped(ctx context.Context, scope, identity, role, provider resource.UID) error {
	uid, err := t.EnsureBinding(ctx, scope, identity, role)
	if err != nil || uid == "" {
		return err
	}
	_, err = t.Exec(ctx, `INSERT INTO mapped_bindings (binding, identity, provider) VALUES ($1, $2, $3)`,
		store.Segment(uid), string(identity), store.Segment(provider))
	return err
}

// ArrivedThrough returns the groups that have the identity providers with which an identity has signed in.
func (s *Store) ArrivedThrough(ctx context.Context, identity resource.UID) ([]resource.UID, error) {
	providers, err := store.ReadColumn[resource.UID](ctx, s.Rows, `
		SELECT p.uid FROM identity_providers AS p JOIN arrivals AS a ON a.provider = p.seg WHERE a.identity = $1
		ORDER BY p.uid`,
		string(identity))
	groups := make([]resource.UID, len(providers))
	for i, provider := range providers {
		groups[i] = provider.Parent()
	}
	return groups, err
}
