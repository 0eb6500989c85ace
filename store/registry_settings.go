package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast/resource"
)

// RegistrySettings returns the settings that count for the repos of a group:
// those of the nearest group, itself or above, that has any. Where none has, it
// returns the zero value.
func (s *Store) RegistrySettings(ctx context.Context, group resource.UID) (resource.RegistrySettings, error) {
	q := query{engine: s.engine}
	var groups []int64
	for _, g := range append(group.Ancestors(), group) {
		groups = append(groups, segment(g))
	}
	var detail string
	var updated int64
	var set resource.RegistrySettings
	// Of uids on one path, the longest is the last.
	err := s.row(ctx, `SELECT uid, detail, update_ms FROM registry_settings WHERE grp IN (SELECT v FROM `+s.engine.each(&q, groups)+` AS s) ORDER BY uid DESC LIMIT 1`,
		q.args, &set.UID, &detail, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return resource.RegistrySettings{}, nil
	}
	if err != nil {
		return set, err
	}
	uid := set.UID
	if err := json.Unmarshal([]byte(detail), &set); err != nil {
		return set, fmt.Errorf("registry settings of %s: %w", uid, err)
	}
	set.UID, set.UpdateTime = uid, fromMS(updated)
	return set, nil
}

// SetRegistrySettings gives the group set.UID settings of its own. It returns
// fault.NotFound if there is no such group.
func (s *Store) SetRegistrySettings(ctx context.Context, set resource.RegistrySettings) (resource.RegistrySettings, error) {
	set.UpdateTime = s.now()
	err := s.write(ctx, func(t *tx) error {
		if err := t.mustExist(ctx, set.UID); err != nil {
			return err
		}
		detail, err := encode(set)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, `
			INSERT INTO registry_settings (grp, uid, detail, update_ms) VALUES ($1, $2, $3, $4)
			ON CONFLICT (grp) DO UPDATE SET detail = excluded.detail, update_ms = excluded.update_ms`,
			segment(set.UID), string(set.UID), detail, ms(set.UpdateTime)); err != nil {
			return err
		}
		return t.emit(ctx, resource.RegistrySettingsUpdated, set.UID, set.UID, nil, set)
	})
	return set, err
}

// DeleteRegistrySettings takes a group's own settings away, if it has any.
func (s *Store) DeleteRegistrySettings(ctx context.Context, group resource.UID) error {
	return s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, `DELETE FROM registry_settings WHERE grp = $1`, segment(group))
		if err != nil || n == 0 {
			return err
		}
		return t.emit(ctx, resource.RegistrySettingsUpdated, group, group, nil, resource.RegistrySettings{UID: group, UpdateTime: s.now()})
	})
}
