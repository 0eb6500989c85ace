package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/resource"
)

// Setting returns the value kept under a name. It returns fault.NotFound if
// there is none.
func (s *DB) Setting(ctx context.Context, name string) (value []byte, err error) {
	err = s.Row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{name}, &value)
	return value, Missing(err, "setting", resource.UID(name))
}

// SetSetting keeps a value under a name; nil forgets it.
func (s *DB) SetSetting(ctx context.Context, name string, value []byte) error {
	return s.Write(ctx, func(t *Tx) error {
		if value == nil {
			_, err := t.Exec(ctx, `DELETE FROM settings WHERE name = $1`, name)
			return err
		}
		_, err := t.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
		return err
	})
}

// FirstSetting keeps a value under a name unless there is one already, and
// returns the one that is kept: of replicas that start together, one wins.
func (s *DB) InitSetting(ctx context.Context, name string, value []byte) (kept []byte, err error) {
	err = s.Write(ctx, func(t *Tx) error {
		if _, err := t.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, value); err != nil {
			return err
		}
		return t.Row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{name}, &kept)
	})
	return kept, err
}

// TakeSetting forgets the value under a name if it is still this one, and tells
// whether it was: of two who come at once, one takes it.
func (s *DB) DeleteSettingIf(ctx context.Context, name string, value []byte) (taken bool, err error) {
	err = s.Write(ctx, func(t *Tx) error {
		n, err := t.Exec(ctx, `DELETE FROM settings WHERE name = $1 AND value = $2`, name, value)
		taken = n == 1
		return err
	})
	return taken, err
}
