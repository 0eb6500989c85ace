package scimdb

import (
	"context"
	"math"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Losses returns how many people have lost access through a directory since a time, without the given people, and how
// many of these are not active users of the directory now.
func (t Tx) Losses(
	ctx context.Context, provider resource.UID, since time.Time, except []resource.UID,
) (lost, gone int64, err error) {
	q := store.Query{Engine: t.DB.Engine}
	text := `SELECT count(*), CAST(coalesce(sum(CASE WHEN EXISTS (SELECT 1 FROM scim_users AS u
			WHERE u.identity = l.identity AND u.identity <> '' AND u.provider = l.provider AND u.active)
			THEN 0 ELSE 1 END), 0) AS BIGINT)
		FROM scim_losses AS l WHERE l.provider = ` + q.Arg(store.Segment(provider)) + ` AND l.at_ms > ` +
		q.Arg(store.MS(since)) + ` AND l.identity NOT IN (SELECT v FROM ` + t.DB.Engine.Unnest(&q, except) + ` AS s)`
	err = t.Row(ctx, text, q.Args, &lost, &gone)
	return lost, gone, err
}

// NoteLoss records that a person loses access through a directory, and forgets losses before the time oldest.
func (t Tx) NoteLoss(ctx context.Context, provider, identity resource.UID, at, oldest time.Time) error {
	seg := store.Segment(provider)
	if _, err := t.Exec(ctx, `DELETE FROM scim_losses WHERE provider = $1 AND at_ms <= $2`, seg,
		store.MS(oldest)); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `INSERT INTO scim_losses (provider, identity, at_ms) VALUES ($1, $2, $3)
		ON CONFLICT (provider, identity) DO UPDATE SET at_ms = excluded.at_ms`, seg, string(identity),
		store.MS(at))
	return err
}

// People returns the number of people who are active users of a directory and became active before a time. If the
// directory has no user from before that time, it returns the number of all people who are active users.
func (t Tx) People(ctx context.Context, provider resource.UID, before time.Time) (n int64, err error) {
	seg, limit := store.Segment(provider), store.MS(before)
	var old bool
	if err := t.Row(ctx, `SELECT count(*) > 0 FROM (SELECT 1 FROM scim_users WHERE provider = $1 AND create_ms < $2
		LIMIT 1) AS s`, []any{seg, limit}, &old); err != nil {
		return 0, err
	}
	if !old {
		limit = math.MaxInt64
	}
	err = t.Row(ctx, `SELECT count(*) FROM scim_users WHERE provider = $1 AND active AND identity <> ''
		AND active_ms < $2`, []any{seg, limit}, &n)
	return n, err
}

// maxHeld is the greatest number of held changes of a directory. Further changes are refused and not stored.
const maxHeld = 10000

// AddHeld holds changes of a directory, and returns how many people they add to those whose changes are held. A change
// replaces an earlier one for the same person. AddHeld must be called by one transaction at a time.
func (t Tx) AddHeld(ctx context.Context, d resource.Directory, changes []resource.HeldChange) (added int64, _ error) {
	seg := store.Segment(d.Provider)
	for _, c := range changes {
		n, err := t.Exec(ctx, `UPDATE scim_held SET change = $3, user_id = $4 WHERE provider = $1 AND external_id = $2`,
			seg, c.ExternalID, int64(c.Kind), c.UserID)
		if err != nil {
			return added, err
		}
		if n > 0 || d.Held+added >= maxHeld {
			continue
		}
		if _, err := t.Exec(ctx, `INSERT INTO scim_held (provider, external_id, identity, user_id, change, at_ms)
			VALUES ($1, $2, $3, $4, $5, $6)`, seg, c.ExternalID, string(c.Identity), c.UserID, int64(c.Kind),
			store.MS(c.Time)); err != nil {
			return added, err
		}
		added++
	}
	return added, nil
}

// SetHeld records the number of held changes of a directory, which changes its etag.
func (t Tx) SetHeld(ctx context.Context, d resource.Directory) error {
	_, err := t.Exec(ctx, `UPDATE scim_directories SET held = $2, version = $3 WHERE provider = $1`,
		store.Segment(d.Provider), d.Held, d.Version)
	return err
}

// DropHeld removes the held change for a subject, and reports whether there was one.
func (t Tx) DropHeld(ctx context.Context, provider resource.UID, externalID string) (bool, error) {
	n, err := t.Exec(ctx, `DELETE FROM scim_held WHERE provider = $1 AND external_id = $2`, store.Segment(provider),
		externalID)
	return n > 0, err
}

// IsHeld reports whether a change that would take away the access of a person is held.
func (t Tx) IsHeld(ctx context.Context, provider, identity resource.UID) (held bool, err error) {
	err = t.Row(ctx, `SELECT count(*) > 0 FROM scim_held WHERE provider = $1 AND identity = $2`,
		[]any{store.Segment(provider), string(identity)}, &held)
	return held, err
}

const selectHeld = `SELECT h.external_id, h.identity, coalesce((SELECT i.name FROM identities AS i
	WHERE i.uid = h.identity), ''), h.user_id, h.change, h.at_ms FROM scim_held AS h WHERE h.provider = $1
	ORDER BY h.at_ms, h.external_id LIMIT $2`

func scanHeld(row store.Scanner) (c resource.HeldChange, _ error) {
	var at int64
	err := row.Scan(&c.ExternalID, &c.Identity, &c.Name, &c.UserID, &c.Kind, &at)
	c.Time = store.FromMS(at)
	return c, err
}

// Held returns the first n held changes of a directory, the oldest first.
func (s *Store) Held(ctx context.Context, provider resource.UID, n int) ([]resource.HeldChange, error) {
	return store.ReadAll(ctx, s.Rows, scanHeld, selectHeld, store.Segment(provider), n)
}

// Held is Store.Held inside a transaction.
func (t Tx) Held(ctx context.Context, provider resource.UID, n int) ([]resource.HeldChange, error) {
	return store.ReadAll(ctx, t.Rows, scanHeld, selectHeld, store.Segment(provider), n)
}

// LockUserOf is LockUser for the user with an external id, or fault.NotFound.
func (t Tx) LockUserOf(ctx context.Context, provider resource.UID, externalID string) (User, error) {
	u, err := scanUser(t.QueryRow(ctx, selectUser+` AND t.external_id = $2 AND t.external_id <> ''`+t.DB.Engine.ForUpdate,
		store.Segment(provider), externalID))
	return u, store.Missing(err, "user", resource.UID(externalID))
}
