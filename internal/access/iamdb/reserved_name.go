package iamdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// maxReservedNames is the number of names that an organization can have reserved by renaming itself. Without a limit,
// an owner could take many names from others.
const maxReservedNames = 10

// claimName returns the error of a name in use if the name of an organization is reserved for somebody else. The
// organization that had the name, and the identity that deleted that organization, may use it again, which ends the
// reservation.
//
// The caller must have written the row of g. On PostgreSQL, that statement waits for a transaction that gives up the
// name, so that claimName sees its reservation.
func (t Tx) claimName(ctx context.Context, g resource.Group) error {
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
		return fault.Exists(groups.Label, g.Name)
	}
	return t.releaseName(ctx, g.Name)
}

// reserveName reserves the name that an organization gives up, for the time of store.DB.KeepNames.
func (t Tx) reserveName(ctx context.Context, name string, holder resource.UID) error {
	if t.DB.KeepNames < 0 {
		return nil
	}
	_, err := t.Exec(ctx, `INSERT INTO reserved_names (name, holder, until_ms) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms`,
		name, string(holder), store.MS(t.DB.Time().Add(t.DB.KeepNames)))
	return err
}

// renameOrganization checks the new name of an organization and reserves its previous name. The caller must have
// written the row of after.
func (t Tx) renameOrganization(ctx context.Context, before, after resource.Group) error {
	if err := t.claimName(ctx, after); err != nil {
		return err
	}
	if err := t.reserveName(ctx, before.Name, after.UID); err != nil {
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

// inheritNames reserves the names of a deleted organization for the identity that deleted it.
func (t Tx) inheritNames(ctx context.Context, g resource.Group, by resource.UID) error {
	if _, err := t.Exec(ctx, `UPDATE reserved_names SET holder = $2 WHERE holder = $1`,
		string(g.UID), string(by)); err != nil {
		return err
	}
	return t.reserveName(ctx, g.Name, by)
}

func (t Tx) releaseName(ctx context.Context, name string) error {
	_, err := t.Exec(ctx, `DELETE FROM reserved_names WHERE name = $1`, name)
	return err
}

// ReleaseName ends the reservation of a name, so that any organization can use it. It returns fault.NotFound if the
// name is not reserved.
func (s *Store) ReleaseName(ctx context.Context, name string) error {
	n, err := s.Exec(ctx, `DELETE FROM reserved_names WHERE name = $1 AND until_ms > $2`, name, store.MS(s.Time()))
	if err == nil && n == 0 {
		return fault.Missing("reserved name", name)
	}
	return err
}

// PruneNames deletes reservations that have ended before a time.
func (s *Store) PruneNames(ctx context.Context, before time.Time) error {
	_, err := s.Exec(ctx, `DELETE FROM reserved_names WHERE until_ms <= $1`, store.MS(before))
	return err
}
