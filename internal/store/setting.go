package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Setting returns the value of a setting, or fault.NotFound.
func (s *DB) Setting(ctx context.Context, name string) (value []byte, err error) {
	err = s.Row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{name}, &value)
	return value, Missing(err, "setting", resource.UID(name))
}

// SetSetting stores the value of a setting; nil deletes it.
func (s *DB) SetSetting(ctx context.Context, name string, value []byte) (err error) {
	if value == nil {
		_, err = s.Exec(ctx, `DELETE FROM settings WHERE name = $1`, name)
		return err
	}
	_, err = s.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}

// InitSetting stores the value of a setting unless it has a value already, and returns the
// stored value. If replicas start together, the value of the first one is stored.
func (s *DB) InitSetting(ctx context.Context, name string, value []byte) (stored []byte, err error) {
	err = s.Write(ctx, func(t *Tx) error {
		if _, err := t.Exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name,
			value); err != nil {
			return err
		}
		return t.Row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{name}, &stored)
	})
	return stored, err
}

// DeleteSettingIf deletes a setting if it still has the given value, and reports whether it
// did. If two callers do so concurrently, it returns true to only one of them.
func (s *DB) DeleteSettingIf(ctx context.Context, name string, value []byte) (deleted bool, err error) {
	n, err := s.Exec(ctx, `DELETE FROM settings WHERE name = $1 AND value = $2`, name, value)
	return n == 1, err
}
