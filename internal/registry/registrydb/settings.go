package registrydb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// RegistrySettings returns the settings that apply to the repos of a group: the settings of the group, or of the
// nearest group above that has any. If no group has any, it returns the zero value.
func (s *Store) RegistrySettings(ctx context.Context, group resource.UID) (registry.Settings, error) {
	return s.settingsAbove(ctx, group, s.Row)
}

func (s *Store) settingsAbove(
	ctx context.Context, group resource.UID, row func(context.Context, string, []any, ...any) error,
) (set registry.Settings, _ error) {
	q := store.Query{Engine: s.Engine}
	var groups []string
	for _, g := range append(group.Ancestors(), group) {
		groups = append(groups, string(g))
	}
	var detail string
	var uid resource.UID
	var updated int64
	// The UIDs are prefixes of each other, so the longest sorts last. `uid || ''` keeps the planner from using the
	// index on uid for the order, which would scan all settings.
	text := `SELECT uid, detail, update_ms FROM registry_settings WHERE uid IN (SELECT v FROM ` + s.Engine.Unnest(&q,
		groups) + ` AS s) ORDER BY uid || '' DESC LIMIT 1`
	err := row(ctx, text, q.Args, &uid, &detail, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return set, nil
	}
	if err != nil {
		return set, err
	}
	if err := json.Unmarshal([]byte(detail), &set); err != nil {
		return set, fmt.Errorf("registry settings of %s: %w", uid, err)
	}
	set.UID, set.UpdateTime = uid, store.FromMS(updated)
	return set, nil
}

// UpdateRegistrySettings applies change to the settings that apply to a group, and stores the result as the
// settings of the group. If the group has settings and change changes nothing, nothing is written. It returns
// fault.NotFound if there is no such group, fault.Aborted if the settings have another version than the request
// expects, and the error of change.
func (s *Store) UpdateRegistrySettings(
	ctx context.Context, group resource.UID, change func(*registry.Settings) error,
) (set registry.Settings, _ error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.LockGroup(ctx, group); err != nil {
			return err
		}
		before, err := s.settingsAbove(ctx, group, t.Row)
		if err != nil {
			return err
		}
		if err := resource.CheckExpected(ctx, group, before.UpdateTime); err != nil {
			return err
		}
		if set, err = store.Clone(before); err != nil {
			return err
		}
		if err := change(&set); err != nil || before.UID == group && reflect.DeepEqual(before, set) {
			return err
		}
		set.UID, set.UpdateTime = group, s.TimeAfter(before.UpdateTime)
		detail, err := store.Encode(set)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `
			INSERT INTO registry_settings (grp, uid, detail, update_ms) VALUES ($1, $2, $3, $4)
			ON CONFLICT (grp) DO UPDATE SET detail = excluded.detail, update_ms = excluded.update_ms`,
			store.Segment(group), string(group), detail, store.MS(set.UpdateTime)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.RegistrySettingsUpdated, group, group, before, set)
	})
	return set, err
}

// DeleteRegistrySettings removes the settings of a group, if it has any. Then the settings of the nearest group above
// it apply again.
func (s *Store) DeleteRegistrySettings(ctx context.Context, group resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		n, err := t.Exec(ctx, `DELETE FROM registry_settings WHERE uid = $1`, string(group))
		if err != nil || n == 0 {
			return err
		}
		return t.Emit(ctx, resource.RegistrySettingsUpdated, group, group, nil,
			registry.Settings{UID: group, UpdateTime: s.Time()})
	})
}
