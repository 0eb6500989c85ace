package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

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

const eventColumns = `seq, id, type, subject, grp, actor, at_ms, before_json, after_json`

// Events returns up to n events after the one numbered after. If transactions run
// concurrently, an event with a lower number may still appear later: see outbox.Tail.
func (s *DB) Events(ctx context.Context, after int64, n int) ([]resource.Event, error) {
	return s.events(ctx, `SELECT `+eventColumns+` FROM outbox WHERE seq > $1 ORDER BY seq LIMIT $2`, after, n)
}

// EventsBefore returns up to n events before the one numbered before, newest first. It
// selects the events in group and in the groups below it; "" selects the events in all
// groups. It reads at most reach events. It also returns the number of the event at which
// it stopped, or 0 if there are no older events.
func (s *DB) EventsBefore(
	ctx context.Context, group resource.UID, before int64, n, reach int,
) (events []resource.Event, stopped int64, _ error) {
	err := s.Row(ctx, `SELECT coalesce(min(seq), 0) FROM (SELECT seq FROM outbox WHERE seq < $1
		ORDER BY seq DESC LIMIT $2) AS t`,
		[]any{before, reach}, &stopped)
	if err != nil || stopped == 0 {
		return nil, 0, err
	}
	text, args := `SELECT `+eventColumns+` FROM outbox WHERE seq < $1 AND seq >= $2`, []any{before, stopped}
	if group != "" {
		text += ` AND (grp = $4 OR grp > $5 AND grp < $6 OR subject > $5 AND subject < $6)`
		args = append(args, n, string(group), string(group)+"/", string(group)+"0")
	} else {
		args = append(args, n)
	}
	if events, err = s.events(ctx, text+` ORDER BY seq DESC LIMIT $3`, args...); err != nil {
		return nil, 0, err
	}
	if len(events) == n {
		stopped = events[n-1].Seq
	}
	return events, stopped, nil
}

// EventsOfRequest returns up to n events in an organization that one request caused.
// The organization is needed because clients choose the ids of their requests, so
// clients of other organizations may have used the same id.
func (s *DB) EventsOfRequest(ctx context.Context, request string, org resource.UID, n int) ([]resource.Event, error) {
	args, text := eventsOfRequest(request, org, n)
	return s.events(ctx, text, args...)
}

// eventsOfRequest returns the statement that EventsOfRequest runs.
func eventsOfRequest(request string, org resource.UID, n int) (args []any, text string) {
	return []any{request, string(org), string(org) + "0", n}, `SELECT ` + eventColumns + ` FROM outbox
		WHERE request = $1 AND request <> '' AND grp >= $2 AND grp < $3 ORDER BY grp, seq LIMIT $4`
}

// EventNumber returns the number of the first event that was recorded at a time or later.
// It is only as exact as the clocks of the replicas. If there is no such event, it returns
// the number after the last event.
func (s *DB) EventNumber(ctx context.Context, at time.Time) (int64, error) {
	var low, high int64 // every event before low is older than at, and event high is not older
	err := s.Row(ctx, `SELECT (SELECT coalesce(min(seq), 1) FROM outbox),
		(SELECT coalesce(max(seq), 0) + 1 FROM outbox)`, nil, &low, &high)
	for err == nil && low < high {
		middle := low + (high-low)/2
		var seq, when int64
		if err = s.Row(ctx, `SELECT seq, at_ms FROM outbox WHERE seq >= $1 ORDER BY seq LIMIT 1`, []any{middle}, &seq,
			&when); err != nil {
			break
		}
		if when < MS(at) {
			low = seq + 1
		} else {
			high = middle
		}
	}
	return low, err
}

// PruneEvents removes up to n of the oldest events that were recorded before a
// time, and returns how many it removed.
func (s *DB) PruneEvents(ctx context.Context, before time.Time, n int) (int, error) {
	gone, err := s.Exec(ctx,
		`DELETE FROM outbox WHERE seq IN (SELECT seq FROM outbox ORDER BY seq LIMIT $2) AND at_ms < $1`,
		MS(before), n)
	return int(gone), err
}

func (s *DB) events(ctx context.Context, text string, args ...any) ([]resource.Event, error) {
	return ReadAll(ctx, s.Rows, func(row Scanner) (e resource.Event, _ error) {
		var actor, before, after string
		var at int64
		if err := row.Scan(&e.Seq, &e.ID, &e.Type, &e.Subject, &e.Group, &actor, &at, &before, &after); err != nil {
			return e, err
		}
		e.Time, e.Before, e.After = FromMS(at), []byte(before), []byte(after)
		return e, json.Unmarshal([]byte(actor), &e.Actor)
	}, text, args...)
}

// LastEvent returns the number of the newest visible event, or 0.
func (s *DB) LastEvent(ctx context.Context) (n int64, err error) {
	err = s.Row(ctx, `SELECT coalesce(max(seq), 0) FROM outbox`, nil, &n)
	return n, err
}
