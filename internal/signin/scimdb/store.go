// Package scimdb stores the directories of identity providers: their tokens, and the users that they manage with SCIM.
package scimdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store stores directories in a database. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns a Store over db.
func New(db *store.DB) *Store { return &Store{DB: db} }

// A Tx is a transaction that can change directories.
type Tx struct{ *store.Tx }

// In returns t as a Tx of this package.
func In(t *store.Tx) Tx { return Tx{t} }

// The limits of a new directory, as in the schema.
const (
	DefaultHoldPercent = 20
	DefaultHoldMinimum = 5
)

const selectDirectory = `SELECT t.enabled, t.version, t.digest, t.create_ms, t.expire_ms, t.previous_digest,
	t.previous_expire_ms, t.revoke_ms, t.used_ms, t.required,
	t.hold_percent, t.hold_minimum, t.held,
	(SELECT CAST(coalesce(sum(c.n), 0) AS BIGINT) FROM ` + store.CounterRows + ` AS c
		WHERE c.kind = '` + store.ScimUserCounter + `' AND c.grp = t.provider)
	FROM scim_directories AS t WHERE t.provider = $1`

func scanDirectory(row store.Scanner, provider resource.UID) (resource.Directory, error) {
	d := resource.Directory{Provider: provider, HoldPercent: DefaultHoldPercent, HoldMinimum: DefaultHoldMinimum}
	var created, expires, previous, revoked, used int64
	err := row.Scan(&d.Enabled, &d.Version, &d.Digest, &created, &expires, &d.PreviousDigest, &previous, &revoked, &used,
		&d.Required, &d.HoldPercent, &d.HoldMinimum, &d.Held, &d.Users)
	if errors.Is(err, sql.ErrNoRows) {
		return d, nil
	}
	d.CreateTime, d.ExpireTime, d.PreviousExpireTime = fromMS(created), fromMS(expires), fromMS(previous)
	d.RevokeTime, d.UsedTime = fromMS(revoked), fromMS(used)
	return d, err
}

// fromMS returns the zero time for 0.
func fromMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return store.FromMS(ms)
}

func toMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return store.MS(t)
}

// Directory returns the directory of a provider. A provider without one has a directory that is not enabled and has
// neither tokens nor users.
func (s *Store) Directory(ctx context.Context, provider resource.UID) (resource.Directory, error) {
	return scanDirectory(s.QueryRow(ctx, selectDirectory, store.Segment(provider)), provider)
}

// Directory is Store.Directory inside a transaction.
func (t Tx) Directory(ctx context.Context, provider resource.UID) (resource.Directory, error) {
	return scanDirectory(t.QueryRow(ctx, selectDirectory, store.Segment(provider)), provider)
}

// EditDirectory applies change to the directory of a provider, and records the change as an event of the given type. It
// returns fault.NotFound if there is no such provider, and the error of change.
func (s *Store) EditDirectory(
	ctx context.Context, provider resource.UID, event resource.EventType,
	change func(t *store.Tx, d *resource.Directory) error,
) (d resource.Directory, _ error) {
	err := s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		if err := t.Require(ctx, "identity_providers", "identity provider", provider); err != nil {
			return err
		}
		seg := store.Segment(provider)
		if _, err := t.Exec(ctx, `INSERT INTO scim_directories (provider, enabled, version, create_ms, expire_ms,
			previous_expire_ms, revoke_ms, used_ms) VALUES ($1, $2, 0, 0, 0, 0, 0, 0)
			ON CONFLICT (provider) DO NOTHING`, seg, false); err != nil {
			return err
		}
		before, err := scanDirectory(t.QueryRow(ctx, selectDirectory+s.Engine.ForUpdate, seg), provider)
		if err != nil {
			return err
		}
		d = before
		if err := change(tx, &d); err != nil {
			return err
		}
		d.Version++
		if _, err := t.Exec(ctx, `UPDATE scim_directories SET enabled = $2, version = $3, digest = $4, create_ms = $5,
			expire_ms = $6, previous_digest = $7, previous_expire_ms = $8, revoke_ms = $9, required = $10,
			hold_percent = $11, hold_minimum = $12, held = $13 WHERE provider = $1`,
			seg, d.Enabled, d.Version, d.Digest, toMS(d.CreateTime), toMS(d.ExpireTime), d.PreviousDigest,
			toMS(d.PreviousExpireTime), toMS(d.RevokeTime), d.Required, d.HoldPercent, d.HoldMinimum,
			d.Held); err != nil {
			return err
		}
		return t.Emit(ctx, event, provider, provider.Parent(), before, d)
	})
	return d, err
}

// Hold is Directory inside a transaction. It locks the settings and the tokens of the directory against changes until
// the commit.
func (t Tx) Hold(ctx context.Context, provider resource.UID) (resource.Directory, error) {
	return scanDirectory(t.QueryRow(ctx, selectDirectory+t.DB.Engine.ForHold, store.Segment(provider)), provider)
}

// HoldAlone is Hold for one transaction at a time.
func (t Tx) HoldAlone(ctx context.Context, provider resource.UID) (resource.Directory, error) {
	return scanDirectory(t.QueryRow(ctx, selectDirectory+t.DB.Engine.ForUpdate, store.Segment(provider)), provider)
}

// NoteUse records that a token of a directory was used.
func (s *Store) NoteUse(ctx context.Context, provider resource.UID, used time.Time) error {
	_, err := s.Exec(ctx, `UPDATE scim_directories SET used_ms = $2 WHERE provider = $1 AND used_ms < $2`,
		store.Segment(provider), store.MS(used))
	return err
}

// Admits returns fault.PermissionDenied if the directory of a provider is enabled and has deactivated or removed the
// person with a subject. It locks the settings of the directory against changes until the commit.
func (t Tx) Admits(ctx context.Context, provider resource.UID, subject string) error {
	d, err := t.Hold(ctx, provider)
	if err != nil || !d.Enabled {
		return err
	}
	var one int
	err = t.Row(ctx, `SELECT 1 FROM scim_users WHERE provider = $1 AND external_id = $2 AND NOT active
		UNION ALL SELECT 1 FROM scim_departed WHERE provider = $1 AND external_id = $2`,
		[]any{store.Segment(provider), subject}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.New(fault.PermissionDenied,
		"Permission denied: the directory of your organization has deactivated your account; ask its administrator")
}

// Joined records the identity of a person who signs in and whom the directory of the provider already knows by the
// subject. It returns the user if the identity is not yet recorded, and an empty id otherwise.
func (t Tx) Joined(
	ctx context.Context, provider, identity resource.UID, subject string,
) (id string, before resource.UID, _ error) {
	err := t.Row(ctx, `SELECT id, identity FROM scim_users AS t WHERE provider = $1 AND external_id = $2
		AND external_id <> '' AND identity <> $3`+t.DB.Engine.ForUpdate,
		[]any{store.Segment(provider), subject, string(identity)}, &id, &before)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	return id, before, t.Later(ctx, `UPDATE scim_users SET identity = $3 WHERE provider = $1 AND id = $2`,
		store.Segment(provider), id, string(identity))
}
