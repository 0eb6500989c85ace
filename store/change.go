package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// added is what every insert ends with: its event, and its count.
func (t *Tx) Added(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.Emit(ctx, event, uid, group, nil, v); err != nil {
		return err
	}
	return t.Count(ctx, kind, uid, 1)
}

// removed is what every delete ends with.
func (t *Tx) Removed(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.Emit(ctx, event, uid, group, v, nil); err != nil {
		return err
	}
	return t.Count(ctx, kind, uid, -1)
}

// drop removes a resource that nothing refers to. One that is not there is gone
// already.
func Delete[T any](ctx context.Context, t *Tx, l *Kind[T], kind string, event resource.EventType, uid, group resource.UID) error {
	v, err := Lock(ctx, t, l, kind, uid, t.DB.Engine.LockKey)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM `+l.Table+` WHERE uid = $1`, string(uid)); err != nil {
		return err
	}
	return t.Removed(ctx, l.Table, event, uid, group, v)
}

// A use is a column of a table that refers to something, and what a person
// calls the rows.
type Use struct{ Table, Column, Label string }

// users returns what of these refers to uid.
func (t *Tx) Users(ctx context.Context, uid resource.UID, uses []Use) (labels []string, _ error) {
	for _, u := range uses {
		var n int
		text := `SELECT count(*) FROM (SELECT 1 FROM ` + u.Table + ` WHERE ` + u.Column + ` = $1 LIMIT 1) AS x`
		if err := t.Row(ctx, text, []any{Segment(uid)}, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			labels = append(labels, u.Label)
		}
	}
	return labels, nil
}

// mustHaveRole holds a role until the commit. It returns fault.NotFound if there
// is none.
func (t *Tx) MustHaveRole(ctx context.Context, role resource.UID) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM roles AS t WHERE t.uid = $1`+t.DB.Engine.Hold, []any{string(role)}, &one)
	return Missing(err, "role", role)
}

// cursorAt is the place of a row in the order of a column.
func CursorAt(col string, uid resource.UID, name string, created, updated time.Time) page.Cursor {
	c := page.Cursor{UID: string(uid)}
	switch col {
	case "name":
		c.Key = name
	case "create_ms":
		c.Number = MS(created)
	case "update_ms":
		c.Number = MS(updated)
	}
	return c
}

// get reads one resource.
func Get[T any](ctx context.Context, s *DB, l *Kind[T], kind string, uid resource.UID) (v T, err error) {
	found := false
	err = s.Rows(ctx, `SELECT `+l.Columns+` FROM `+l.Table+` AS t`+l.Joins+` WHERE t.uid = $1`, []any{string(uid)}, func(row Scanner) (bool, error) {
		found = true
		v, err = l.Scan(row)
		return true, err
	})
	if err == nil && !found {
		err = fault.Missing(kind, string(uid))
	}
	return v, err
}

// take reads one resource inside a transaction that is about to change it.
func Lock[T any](ctx context.Context, t *Tx, l *Kind[T], kind string, uid resource.UID, lock string) (T, error) {
	v, err := l.Scan(t.on.QueryRowContext(ctx, `SELECT `+l.Columns+` FROM `+l.Table+` AS t`+l.Joins+` WHERE t.uid = $1`+lock, string(uid)))
	return v, Missing(err, kind, uid)
}

// clone copies a resource with what it points to, as far as its JSON goes.
func Clone[T any](v T) (out T, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return out, fmt.Errorf("copy %T: %w", v, err)
	}
	return out, json.Unmarshal(b, &out)
}
