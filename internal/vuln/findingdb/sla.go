package findingdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// SLA returns the SLA that applies to a group: its own, or the SLA of the nearest group above that has one. It returns
// fault.NotFound if there is none.
func (s *Store) SLA(ctx context.Context, group resource.UID) (vuln.SLA, error) {
	q := store.Query{Engine: s.Engine}
	var path []string
	for _, g := range append(group.Ancestors(), group) {
		path = append(path, string(g))
	}
	// The UIDs are prefixes of each other, so the longest sorts last. `uid || ''` keeps the planner from using the
	// index on uid for the order, which would scan all rows.
	text := `SELECT t.uid, t.detail, t.update_ms FROM finding_slas AS t
		WHERE t.uid IN (SELECT v FROM ` + s.Engine.Unnest(&q, path) + ` AS s) ORDER BY t.uid || '' DESC LIMIT 1`
	var uid resource.UID
	var detail string
	var updated int64
	return decodeSLA(group, &uid, &detail, &updated, s.Row(ctx, text, q.Args, &uid, &detail, &updated))
}

// decodeSLA returns the SLA in a row, or fault.NotFound if err says that there is no row.
func decodeSLA(group resource.UID, uid *resource.UID, detail *string, updated *int64, err error) (v vuln.SLA, _ error) {
	if errors.Is(err, sql.ErrNoRows) {
		return v, fault.Missing("SLA", string(group))
	}
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(*detail), &v); err != nil {
		return v, fmt.Errorf("SLA of %s: %w", *uid, err)
	}
	v.UID, v.UpdateTime = *uid, store.FromMS(*updated)
	return v, nil
}

// SLAsFor returns the SLAs of a group, of the groups above it, and of all groups below it, by group.
func (s *Store) SLAsFor(ctx context.Context, group resource.UID) (map[resource.UID]vuln.SLA, error) {
	q := store.Query{Engine: s.Engine}
	var above []string
	for _, g := range group.Ancestors() {
		above = append(above, string(g))
	}
	text := `SELECT t.uid, t.detail, t.update_ms FROM finding_slas AS t
		WHERE t.uid IN (SELECT v FROM ` + s.Engine.Unnest(&q, above) + ` AS s)
		UNION ALL SELECT t.uid, t.detail, t.update_ms FROM finding_slas AS t WHERE t.uid >= ` + q.Arg(string(group)) +
		` AND t.uid < ` + q.Arg(string(group)+"0")
	found, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (vuln.SLA, error) {
		var uid resource.UID
		var detail string
		var updated int64
		err := row.Scan(&uid, &detail, &updated)
		return decodeSLA(group, &uid, &detail, &updated, err)
	}, text, q.Args...)
	byGroup := map[resource.UID]vuln.SLA{}
	for _, v := range found {
		byGroup[v.UID] = v
	}
	return byGroup, err
}

// SetSLA sets the SLA of a group. If it is unchanged, nothing is written. It returns fault.NotFound if there is no such
// group.
func (s *Store) SetSLA(ctx context.Context, v vuln.SLA) (vuln.SLA, error) {
	err := s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		if err := t.RequireGroup(ctx, v.UID); err != nil {
			return err
		}
		before, err := t.ownSLA(ctx, v.UID)
		if err != nil && !errors.Is(err, fault.NotFound) {
			return err
		}
		if err := resource.CheckExpected(ctx, v.UID, before.UpdateTime); err != nil {
			return err
		}
		v.UpdateTime = before.UpdateTime
		if err == nil && before == v {
			return nil
		}
		v.UpdateTime = s.TimeAfter(before.UpdateTime)
		detail, err := store.Encode(v)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `INSERT INTO finding_slas (grp, uid, detail, update_ms) VALUES ($1, $2, $3, $4)
			ON CONFLICT (grp) DO UPDATE SET detail = excluded.detail, update_ms = excluded.update_ms`,
			store.Segment(v.UID), string(v.UID), detail, store.MS(v.UpdateTime)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.SLAUpdated, v.UID, v.UID, before, v)
	})
	return v, err
}

// ownSLA locks and returns the SLA that is set on a group itself. It returns fault.NotFound if there is none.
func (t Tx) ownSLA(ctx context.Context, group resource.UID) (vuln.SLA, error) {
	var uid resource.UID
	var detail string
	var updated int64
	err := t.Row(ctx, `SELECT t.uid, t.detail, t.update_ms FROM finding_slas AS t WHERE t.uid = $1`+t.DB.Engine.ForDelete,
		[]any{string(group)}, &uid, &detail, &updated)
	return decodeSLA(group, &uid, &detail, &updated, err)
}

// DeleteSLA removes the SLA that is set on a group itself. It returns fault.NotFound if there is none.
func (s *Store) DeleteSLA(ctx context.Context, group resource.UID) error {
	return s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		before, err := t.ownSLA(ctx, group)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM finding_slas WHERE uid = $1`, string(group)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.SLADeleted, group, group, before, nil)
	})
}
