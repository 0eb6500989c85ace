package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/resource"
)

// Added is what every insert ends with: its event, and its count.
func (t *Tx) Added(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.Emit(ctx, event, uid, group, nil, v); err != nil {
		return err
	}
	return t.Count(ctx, kind, uid, 1)
}

// Removed is what every delete ends with.
func (t *Tx) Removed(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.Emit(ctx, event, uid, group, v, nil); err != nil {
		return err
	}
	return t.Count(ctx, kind, uid, -1)
}

// A Use is a column of a table that refers to something, and what a person
// calls the rows.
type Use struct{ Table, Column, Label string }

// Users returns what of these refers to uid.
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

// MustHaveRole holds a role until the commit. It returns fault.NotFound if there
// is none.
func (t *Tx) RequireRole(ctx context.Context, role resource.UID) error {
	var one int
	err := t.Row(ctx, `SELECT 1 FROM roles AS t WHERE t.uid = $1`+t.DB.Engine.Hold, []any{string(role)}, &one)
	return Missing(err, "role", role)
}
