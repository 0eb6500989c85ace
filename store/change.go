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
func (t *tx) added(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.emit(ctx, event, uid, group, nil, v); err != nil {
		return err
	}
	return t.count(ctx, kind, uid, 1)
}

// removed is what every delete ends with.
func (t *tx) removed(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.emit(ctx, event, uid, group, v, nil); err != nil {
		return err
	}
	return t.count(ctx, kind, uid, -1)
}

// drop removes a resource that nothing refers to. One that is not there is gone
// already.
func drop[T any](ctx context.Context, t *tx, l *listing[T], kind string, event resource.EventType, uid, group resource.UID) error {
	v, err := take(ctx, t, l, kind, uid, t.s.engine.lockKey)
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, `DELETE FROM `+l.kind+` WHERE uid = $1`, string(uid)); err != nil {
		return err
	}
	return t.removed(ctx, l.kind, event, uid, group, v)
}

// A use is a column of a table that refers to something, and what a person
// calls the rows.
type use struct{ table, column, label string }

// users returns what of these refers to uid.
func (t *tx) users(ctx context.Context, uid resource.UID, uses []use) (labels []string, _ error) {
	for _, u := range uses {
		var n int
		text := `SELECT count(*) FROM (SELECT 1 FROM ` + u.table + ` WHERE ` + u.column + ` = $1 LIMIT 1) AS x`
		if err := t.row(ctx, text, []any{segment(uid)}, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			labels = append(labels, u.label)
		}
	}
	return labels, nil
}

// mustHaveRole holds a role until the commit. It returns fault.NotFound if there
// is none.
func (t *tx) mustHaveRole(ctx context.Context, role resource.UID) error {
	var one int
	err := t.row(ctx, `SELECT 1 FROM roles AS t WHERE t.uid = $1`+t.s.engine.hold, []any{string(role)}, &one)
	return missing(err, "role", role)
}

// cursorAt is the place of a row in the order of a column.
func cursorAt(col string, uid resource.UID, name string, created, updated time.Time) page.Cursor {
	c := page.Cursor{UID: string(uid)}
	switch col {
	case "name":
		c.Key = name
	case "create_ms":
		c.Number = ms(created)
	case "update_ms":
		c.Number = ms(updated)
	}
	return c
}

// get reads one resource.
func get[T any](ctx context.Context, s *Store, l *listing[T], kind string, uid resource.UID) (v T, err error) {
	found := false
	err = s.rows(ctx, `SELECT `+l.columns+` FROM `+l.kind+` AS t`+l.joins+` WHERE t.uid = $1`, []any{string(uid)}, func(row scanner) (bool, error) {
		found = true
		v, err = l.scan(row)
		return true, err
	})
	if err == nil && !found {
		err = fault.Missing(kind, string(uid))
	}
	return v, err
}

// take reads one resource inside a transaction that is about to change it.
func take[T any](ctx context.Context, t *tx, l *listing[T], kind string, uid resource.UID, lock string) (T, error) {
	v, err := l.scan(t.on.QueryRowContext(ctx, `SELECT `+l.columns+` FROM `+l.kind+` AS t`+l.joins+` WHERE t.uid = $1`+lock, string(uid)))
	return v, missing(err, kind, uid)
}

// clone copies a resource with what it points to, as far as its JSON goes.
func clone[T any](v T) (out T, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return out, fmt.Errorf("copy %T: %w", v, err)
	}
	return out, json.Unmarshal(b, &out)
}
