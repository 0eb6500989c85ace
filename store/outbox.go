package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/resource"
)

// emit appends an event; it leaves with the transaction or not at all. before
// and after are what the change was made to, nil where there was nothing.
func (t *tx) emit(ctx context.Context, kind resource.EventType, subject, group resource.UID, before, after any) error {
	actor, err := json.Marshal(resource.ActorFrom(ctx))
	if err != nil {
		return fmt.Errorf("encode actor: %w", err)
	}
	b, err := encode(before)
	if err != nil {
		return err
	}
	a, err := encode(after)
	if err != nil {
		return err
	}
	if group == "" {
		group = "/"
	}
	return t.later(ctx, `
		INSERT INTO outbox (id, type, subject, grp, actor, at_ms, before_json, after_json)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		rand.Text(), string(kind), string(subject), string(group), string(actor), ms(t.s.now()), b, a)
}

func encode(v any) (string, error) {
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode event: %w", err)
	}
	return string(b), nil
}

// Events returns up to n events that follow the one numbered after.
func (s *Store) Events(ctx context.Context, after int64, n int) ([]resource.Event, error) {
	var all []resource.Event
	err := s.rows(ctx, `
		SELECT seq, id, type, subject, grp, actor, at_ms, before_json, after_json
		FROM outbox WHERE seq > $1 ORDER BY seq LIMIT $2`, []any{after, n}, func(row scanner) (bool, error) {
		var e resource.Event
		var actor, before, after string
		var at int64
		if err := row.Scan(&e.Seq, &e.ID, &e.Type, &e.Subject, &e.Group, &actor, &at, &before, &after); err != nil {
			return false, err
		}
		e.Time, e.Before, e.After = fromMS(at), []byte(before), []byte(after)
		all = append(all, e)
		return false, json.Unmarshal([]byte(actor), &all[len(all)-1].Actor)
	})
	return all, err
}
