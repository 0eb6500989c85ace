package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// LastEvent is a query that selects the number of the newest event.
const LastEvent = `SELECT coalesce(max(seq), 0) FROM outbox`

// Emit adds an event to the outbox, in the transaction that makes the change. before and
// after are the resource before and after the change, or nil if it does not exist then.
func (t *Tx) Emit(ctx context.Context, kind resource.EventType, subject, group resource.UID, before, after any) error {
	row, err := t.Event(ctx, kind, subject, group, before, after)
	if err != nil {
		return err
	}
	return t.EmitAll(ctx, [][]any{row})
}

const outboxInsert = `INSERT INTO outbox (id, type, subject, grp, actor, before_json, after_json, request, at_ms)`

// Added records the event of an insert and increments the counters.
func (t *Tx) Added(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.Emit(ctx, event, uid, group, nil, v); err != nil {
		return err
	}
	return t.Count(ctx, kind, uid, 1)
}

// Removed records the event of a delete and decrements the counters.
func (t *Tx) Removed(ctx context.Context, kind string, event resource.EventType, uid, group resource.UID, v any) error {
	if err := t.Emit(ctx, event, uid, group, v, nil); err != nil {
		return err
	}
	return t.Count(ctx, kind, uid, -1)
}

// EmitAll adds events in their order. On PostgreSQL they are sent with the commit.
func (t *Tx) EmitAll(ctx context.Context, events [][]any) error {
	if t.DB.Engine.Postgres {
		t.events = append(t.events, events...)
		return nil
	}
	return t.InsertRows(ctx, outboxInsert, events, "")
}

// outboxStatement returns the statement that writes events, in their order.
func outboxStatement(events [][]any) engine.Statement {
	columns := make([][]string, len(events[0])-1)
	var at []int64
	for _, row := range events {
		for i := range columns {
			columns[i] = append(columns[i], row[i].(string))
		}
		at = append(at, row[len(columns)].(int64))
	}
	args := make([]any, 0, len(columns)+1)
	for _, c := range columns {
		args = append(args, c)
	}
	return engine.Statement{
		Text: outboxInsert + ` SELECT *
			FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
				$8::text[], $9::bigint[])`,
		Args: append(args, at),
	}
}

// Event returns the row of an event, for EmitAll.
func (t *Tx) Event(
	ctx context.Context, kind resource.EventType, subject, group resource.UID, before, after any,
) ([]any, error) {
	who := resource.ActorFrom(ctx)
	actor, err := Encode(who)
	if err != nil {
		return nil, err
	}
	b, err := Encode(before)
	if err != nil {
		return nil, err
	}
	a, err := Encode(after)
	if err != nil {
		return nil, err
	}
	if group == "" {
		group = "/"
	}
	return []any{
		rand.Text(), string(kind), string(subject), string(group), actor, b, a, who.RequestID, MS(t.DB.Time()),
	}, nil
}

// Encode returns v as JSON, or "" for nil.
func Encode(v any) (string, error) {
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode event: %w", err)
	}
	return string(b), nil
}
