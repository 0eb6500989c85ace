package iamdb

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// LockIdentity reads an identity that is about to change, or returns
// fault.NotFound.
func (t Tx) LockIdentity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	return store.Lock(ctx, t.Tx, &identities, uid, t.DB.Engine.ForUpdate)
}

// LockPerson reads who a realm knows by subject, who is about to change, or
// returns fault.NotFound.
func (t Tx) LockPerson(ctx context.Context, realm, subject string) (resource.Identity, error) {
	return store.One(ctx, t.Rows, &identities, resource.UserUID(realm, subject), personWhere+t.DB.Engine.ForUpdate, realm,
		subject)
}

// NewPersonUID returns the UID of somebody whom a realm does not know yet.
func (t Tx) NewPersonUID(ctx context.Context, realm, subject string) (resource.UID, error) {
	return unusedUID(ctx, t.Row, realm, subject)
}

// HasIdentity reports whether there is an identity, and holds it until the commit.
func (t Tx) HasIdentity(ctx context.Context, uid resource.UID) (bool, error) {
	err := t.Require(ctx, "identities", "identity", uid)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// NoteArrival records that a person has come through a provider, and reports
// whether it was the first time.
func (t Tx) NoteArrival(ctx context.Context, identity, provider resource.UID) (first bool, _ error) {
	if err := t.AddMember(ctx, provider.Root(), identity); err != nil {
		return false, err
	}
	at, now := store.Segment(provider), store.MS(t.DB.Time())
	n, err := t.Exec(ctx, `INSERT INTO arrivals (identity, provider, first_ms, last_ms) VALUES ($1, $2, $3, $3)
		ON CONFLICT (identity, provider) DO NOTHING`, string(identity), at, now)
	if err == nil && n == 0 {
		_, err = t.Exec(ctx, `UPDATE arrivals SET last_ms = $3 WHERE identity = $1 AND provider = $2`, string(identity),
			at, now)
	}
	if err == nil {
		_, err = t.Exec(ctx, `UPDATE identities SET provider = $2 WHERE uid = $1 AND (provider IS NULL OR provider <> $2)`,
			string(identity), at)
	}
	return n == 1, err
}

// DefaultRole returns the role that a provider gives newcomers.
func (t Tx) DefaultRole(ctx context.Context, provider resource.UID) (role resource.UID, err error) {
	err = t.Row(ctx, `SELECT (SELECT r.uid FROM roles AS r WHERE r.seg = t.default_role) FROM identity_providers AS t
		WHERE t.uid = $1`,
		[]any{string(provider)}, &role)
	return role, err
}

// MappedBindings returns the bindings that an identity was given for the groups it
// has at a provider.
func (t Tx) MappedBindings(ctx context.Context, identity, provider resource.UID) ([]resource.RoleBinding, error) {
	return bareBindings.All(ctx, t.Rows, ` WHERE t.seg IN
		(SELECT m.binding FROM mapped_bindings AS m WHERE m.identity = $1 AND m.provider = $2) ORDER BY t.uid`,
		string(identity), store.Segment(provider))
}

// EnsureMapped gives an identity a role for a group it has at a provider, unless
// it has the role.
func (t Tx) EnsureMapped(ctx context.Context, scope, identity, role, provider resource.UID) error {
	uid, err := t.EnsureBinding(ctx, scope, identity, role)
	if err != nil || uid == "" {
		return err
	}
	_, err = t.Exec(ctx, `INSERT INTO mapped_bindings (binding, identity, provider) VALUES ($1, $2, $3)`,
		store.Segment(uid), string(identity), store.Segment(provider))
	return err
}

// ArrivedThrough returns the groups whose providers an identity has come through.
func (s *Store) ArrivedThrough(ctx context.Context, identity resource.UID) ([]resource.UID, error) {
	all, err := store.ReadColumn[resource.UID](ctx, s.Rows, `
		SELECT p.uid FROM identity_providers AS p JOIN arrivals AS a ON a.provider = p.seg WHERE a.identity = $1
		ORDER BY p.uid`,
		string(identity))
	for i, provider := range all {
		all[i] = provider.Parent()
	}
	return all, err
}
