package iamdb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/access/sessiondb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Suspend takes away the access of a person whom the directory of a provider has deactivated: it ends the person's
// sessions, deletes the pull tokens that the person has created, closes open requests for roles, and makes all tokens
// void, also tokens that are issued later. The bindings of the person stay. Suspend returns the organizations in which
// no permanent owner is left who is not suspended. It changes nothing if the person is already suspended.
func (t Tx) Suspend(ctx context.Context, identity, provider resource.UID) (ownerless []resource.UID, _ error) {
	// This lock waits for transactions that have checked with requireActive that the person is active, and that are about
	// to add a session or a pull token.
	before, err := store.Lock(ctx, t.Tx, &identities, identity, t.DB.Engine.ForDelete)
	if err != nil {
		return nil, err
	}
	n, err := t.Exec(ctx, `INSERT INTO suspensions (identity, provider, at_ms) VALUES ($1, $2, $3)
		ON CONFLICT (identity) DO NOTHING`, string(identity), string(provider), store.MS(t.DB.Time()))
	if err != nil || n == 0 {
		return nil, err
	}
	if _, err := sessiondb.In(t.Tx).EndSessions(ctx, identity, "", resource.EndDirectory); err != nil {
		return nil, err
	}
	if err := sessiondb.In(t.Tx).Revoke(ctx, identity); err != nil {
		return nil, err
	}
	if err := t.closeRequestsWhere(ctx, `t.identity = $1`, string(identity)); err != nil {
		return nil, err
	}
	if err := t.Emit(ctx, resource.IdentityDeactivated, identity, provider.Parent(), before, before); err != nil {
		return nil, err
	}
	if ownerless, err = t.ownerlessWithout(ctx, `identity = $1`, identity); err != nil {
		return nil, err
	}
	without, err := t.dropPullTokens(ctx, identity)
	if err != nil {
		return nil, err
	}
	ownerless = append(ownerless, without...)
	for _, org := range ownerless {
		g, err := store.One(ctx, t.Rows, &groups, org, ` WHERE t.uid = $1`, string(org))
		if err != nil {
			return nil, err
		}
		if err := t.Emit(ctx, resource.GroupOwnerless, org, org, nil, g); err != nil {
			return nil, err
		}
	}
	return ownerless, nil
}

// maxPullTokens is the greatest number of pull tokens that exist by one person, so that Suspend stays fast.
const maxPullTokens = 1000

// requireMaker checks that the person who creates a pull token is active, and does not have too many pull tokens.
func (t Tx) requireMaker(ctx context.Context, maker resource.UID) error {
	if err := t.Require(ctx, "identities", "identity", maker); err != nil {
		return err
	}
	if err := t.requireActive(ctx, maker); err != nil {
		return err
	}
	var n int
	if err := t.Row(ctx, `SELECT count(*) FROM identities WHERE maker = $1 AND maker <> ''`, []any{string(maker)},
		&n); err != nil {
		return err
	}
	if n >= maxPullTokens {
		return fault.Unmet("TOO_MANY_PULL_TOKENS", "you have %d pull tokens; revoke one that nobody uses", n)
	}
	return nil
}

// dropPullTokens deletes the pull tokens that a person has created. It returns the organizations that have lost their
// last permanent owner.
func (t Tx) dropPullTokens(ctx context.Context, maker resource.UID) (ownerless []resource.UID, _ error) {
	made, err := identities.All(ctx, t.Rows, ` WHERE t.maker = $1 AND t.maker <> '' ORDER BY t.seg`+
		t.DB.Engine.ForDelete, string(maker))
	if err != nil {
		return nil, err
	}
	for _, i := range made {
		lost, err := t.ownerlessWithout(ctx, `identity = $1`, i.UID)
		if err != nil {
			return nil, err
		}
		ownerless = append(ownerless, lost...)
		if err := t.dropIdentity(ctx, i); err != nil {
			return nil, err
		}
	}
	return ownerless, nil
}

// Unsuspend gives a person the access back that Suspend has taken away. Tokens that were issued before stay void. It
// changes nothing if the person is not suspended.
func (t Tx) Unsuspend(ctx context.Context, identity, provider resource.UID) error {
	before, err := t.LockIdentity(ctx, identity)
	if err != nil {
		return err
	}
	n, err := t.Exec(ctx, `DELETE FROM suspensions WHERE identity = $1`, string(identity))
	if err != nil || n == 0 {
		return err
	}
	if err := sessiondb.In(t.Tx).Revoke(ctx, identity); err != nil {
		return err
	}
	return t.Emit(ctx, resource.IdentityReactivated, identity, provider.Parent(), before, before)
}

// admitSession returns fault.NotFound if the identity of a session does not exist, fault.PermissionDenied if it is
// suspended or not in the directory although its provider requires that, and fault.Aborted if the provider that vouched
// for the session has begun a new epoch since.
func admitSession(ctx context.Context, t *store.Tx, n resource.Session) error {
	if n.Voucher != "" { // locks the directory, which transactions lock before people
		if err := scimdb.In(t).RequireListed(ctx, n.Voucher.Provider(), n.Identity); err != nil {
			return err
		}
	}
	if err := t.Require(ctx, "identities", "identity", n.Identity); err != nil {
		return err
	}
	if err := In(t).requireActive(ctx, n.Identity); err != nil {
		return err
	}
	return In(t).StillVouched(ctx, n.Voucher)
}

// StillVouched locks the provider of a voucher against changes until the commit. It
// returns fault.Aborted if the provider has begun a new epoch, because the voucher no
// longer proves who the person is, and if the provider was disabled after the person
// was sent to it.
func (t Tx) StillVouched(ctx context.Context, v resource.Voucher) error {
	if v == "" {
		return nil
	}
	var one int
	err := t.Row(ctx, `SELECT 1 FROM identity_providers AS t WHERE t.uid = $1 AND t.epoch = $2
		AND t.disabled = $3`+t.DB.Engine.ForHold, []any{string(v.Provider()), v.Epoch(), false}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.Aborted, "Aborted: the identity provider has changed or was disabled; sign in again")
	}
	return err
}

// requireActive returns fault.PermissionDenied if a person is suspended. The identity must be locked.
func (t Tx) requireActive(ctx context.Context, identity resource.UID) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM suspensions WHERE identity = $1`, []any{string(identity)}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.New(fault.PermissionDenied,
		"Permission denied: the directory of your organization has deactivated your account; ask its administrator")
}

// IsSuspended reports whether a person is suspended.
func (t Tx) IsSuspended(ctx context.Context, identity resource.UID) (bool, error) {
	err := t.requireActive(ctx, identity)
	if errors.Is(err, fault.PermissionDenied) {
		return true, nil
	}
	return false, err
}

// Suspended returns the suspended ones among the given identities.
func (s *Store) Suspended(ctx context.Context, identities []resource.UID) ([]resource.UID, error) {
	if len(identities) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: s.Engine}
	text := `SELECT t.identity FROM ` + s.Engine.Unnest(&q, resource.Distinct(identities)) + ` AS s
		CROSS JOIN suspensions AS t WHERE t.identity = s.v`
	return store.ReadColumn[resource.UID](ctx, s.Rows, text, q.Args...)
}

// AllSuspended returns all identities that are suspended.
func (s *Store) AllSuspended(ctx context.Context) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT identity FROM suspensions`)
}

// activeOwner is the SQL condition that the identity of a binding is not suspended.
const activeOwner = `NOT EXISTS (SELECT 1 FROM suspensions AS d WHERE d.identity = role_bindings.identity)`

// RemoveSuspended removes the bindings of a suspended person in the organization of a provider. It changes nothing if
// the person is not suspended.
func (t Tx) RemoveSuspended(ctx context.Context, identity, provider resource.UID) error {
	if _, err := t.LockIdentity(ctx, identity); err != nil {
		if errors.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	if suspended, err := t.IsSuspended(ctx, identity); err != nil || !suspended {
		return err
	}
	org := store.Segment(provider.Root())
	return t.deleteBindings(ctx, `t.identity = $1 AND (t.a1 = $2 OR t.parent = $2)`, string(identity), org)
}
