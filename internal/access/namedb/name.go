// Package namedb stores the names that organizations have given up. They stay reserved for some time, so that nobody
// else can take over their image addresses.
package namedb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store reads and writes the reserved names of a database. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the Store of a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is an open transaction with methods that change reserved names.
type Tx struct{ *store.Tx }

// In returns t with the methods of this package.
func In(t *store.Tx) Tx { return Tx{t} }

// maxReservedNames is the number of names that an organization can have reserved by renaming itself. Without a limit,
// an owner could take many names from others.
const maxReservedNames = 10

// Claim returns the error of a name in use if the name of an organization is reserved for somebody else. The
// organization that had the name, and the identity that deleted that organization, may use it again, which ends the
// reservation.
//
// The caller must have written the row of g. On PostgreSQL, that statement waits for a transaction that gives up the
// name, so that Claim sees its reservation.
func (t Tx) Claim(ctx context.Context, g resource.Group) error {
	var holder resource.UID
	err := t.Row(ctx, `SELECT holder FROM reserved_names WHERE name = $1 AND until_ms > $2`,
		[]any{g.Name, store.MS(t.DB.Time())}, &holder)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if holder == "" || holder != g.UID && holder != resource.ActorFrom(ctx).Subject {
		return fault.Exists("group", g.Name)
	}
	return t.release(ctx, g.Name)
}

// reserve reserves the name that an organization gives up, for the time of store.DB.KeepNames.
func (t Tx) reserve(ctx context.Context, name string, holder resource.UID) error {
	if t.DB.KeepNames < 0 {
		return nil
	}
	_, err := t.Exec(ctx, `INSERT INTO reserved_names (name, holder, until_ms) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms`,
		name, string(holder), store.MS(t.DB.Time().Add(t.DB.KeepNames)))
	return err
}

// Rename checks the new name of an organization and reserves its previous name. The caller must have
// written the row of after.
func (t Tx) Rename(ctx context.Context, before, after resource.Group) error {
	if err := t.Claim(ctx, after); err != nil {
		return err
	}
	if err := t.reserve(ctx, before.Name, after.UID); err != nil {
		return err
	}
	var reserved int
	if err := t.Row(ctx, `SELECT count(*) FROM reserved_names WHERE holder = $1 AND until_ms > $2`,
		[]any{string(after.UID), store.MS(t.DB.Time())}, &reserved); err != nil {
		return err
	}
	if reserved > maxReservedNames {
		return fault.Unmet("RENAMED_TOO_OFTEN",
			"the organization already reserves its last %d names; rename it to one of them, or wait until one expires",
			maxReservedNames)
	}
	return nil
}

// Inherit reserves the names of a deleted organization for the identity that deleted it.
func (t Tx) Inherit(ctx context.Context, g resource.Group, by resource.UID) error {
	if _, err := t.Exec(ctx, `UPDATE reserved_names SET holder = $2 WHERE holder = $1`,
		string(g.UID), string(by)); err != nil {
		return err
	}
	return t.reserve(ctx, g.Name, by)
}

func (t Tx) release(ctx context.Context, name string) error {
	_, err := t.Exec(ctx, `DELETE FROM reserved_names WHERE name = $1`, name)
	return err
}

// Release ends the reservation of a name, so that any organization can use it. It returns fault.NotFound if the
// name is not reserved.
func (s *Store) Release(ctx context.Context, name string) error {
	n, err := s.Exec(ctx, `DELETE FROM reserved_names WHERE name = $1 AND until_ms > $2`, name, store.MS(s.Time()))
	if err == nil && n == 0 {
		return fault.Missing("reserved name", name)
	}
	return err
}

// Prune deletes reservations that have ended before a time.
func (s *Store) Prune(ctx context.Context, before time.Time) error {
	_, err := s.Exec(ctx, `DELETE FROM reserved_names WHERE until_ms <= $1`, store.MS(before))
	return err
}
