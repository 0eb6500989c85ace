package outbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const eventColumns = `seq, id, type, subject, grp, actor, at_ms, before_json, after_json`

// Read returns up to n events after the one numbered after. If transactions run
// concurrently, an event with a lower number may still appear later: see Tail.
func Read(ctx context.Context, db *store.DB, after int64, n int) ([]resource.Event, error) {
	return read(ctx, db, `SELECT `+eventColumns+` FROM outbox WHERE seq > $1 ORDER BY seq LIMIT $2`, after, n)
}

// ReadBack returns up to n events before the one numbered before, newest first. It
// selects the events in group and in the groups below it; "" selects the events in all
// groups. It reads at most reach events. It also returns the number of the event at which
// it stopped, or 0 if there are no older events.
func ReadBack(
	ctx context.Context, db *store.DB, group resource.UID, before int64, n, reach int,
) (events []resource.Event, stopped int64, _ error) {
	err := db.Row(ctx, `SELECT coalesce(min(seq), 0) FROM (SELECT seq FROM outbox WHERE seq < $1
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
	if events, err = read(ctx, db, text+` ORDER BY seq DESC LIMIT $3`, args...); err != nil {
		return nil, 0, err
	}
	if len(events) == n {
		stopped = events[n-1].Seq
	}
	return events, stopped, nil
}

// OfRequest returns up to n events in an organization that one request caused.
// The organization is needed because clients choose the ids of their requests, so
// clients of other organizations may have used the same id.
func OfRequest(
	ctx context.Context, db *store.DB, request string, org resource.UID, n int,
) ([]resource.Event, error) {
	args, text := RequestQuery(request, org, n)
	return read(ctx, db, text, args...)
}

// RequestQuery returns the statement that OfRequest runs, for tests of its plan.
func RequestQuery(request string, org resource.UID, n int) (args []any, text string) {
	return []any{request, string(org), string(org) + "0", n}, `SELECT ` + eventColumns + ` FROM outbox
		WHERE request = $1 AND request <> '' AND grp >= $2 AND grp < $3 ORDER BY grp, seq LIMIT $4`
}

// NumberAt returns the number of the first event that was recorded at a time or later.
// It is only as exact as the clocks of the replicas. If there is no such event, it returns
// the number after the last event.
func NumberAt(ctx context.Context, db *store.DB, at time.Time) (int64, error) {
	var low, high int64 // every event before low is older than at, and event high is not older
	err := db.Row(ctx, `SELECT (SELECT coalesce(min(seq), 1) FROM outbox),
		(SELECT coalesce(max(seq), 0) + 1 FROM outbox)`, nil, &low, &high)
	for err == nil && low < high {
		middle := low + (high-low)/2
		var seq, when int64
		if err = db.Row(ctx, `SELECT seq, at_ms FROM outbox WHERE seq >= $1 ORDER BY seq LIMIT 1`, []any{middle}, &seq,
			&when); err != nil {
			break
		}
		if when < store.MS(at) {
			low = seq + 1
		} else {
			high = middle
		}
	}
	return low, err
}

// Prune removes up to n of the oldest events that were recorded before a
// time, and returns how many it removed.
func Prune(ctx context.Context, db *store.DB, before time.Time, n int) (int, error) {
	gone, err := db.Exec(ctx,
		`DELETE FROM outbox WHERE seq IN (SELECT seq FROM outbox ORDER BY seq LIMIT $2) AND at_ms < $1`,
		store.MS(before), n)
	return int(gone), err
}

func read(ctx context.Context, db *store.DB, text string, args ...any) ([]resource.Event, error) {
	return store.ReadAll(ctx, db.Rows, func(row store.Scanner) (e resource.Event, _ error) {
		var actor, before, after string
		var at int64
		if err := row.Scan(&e.Seq, &e.ID, &e.Type, &e.Subject, &e.Group, &actor, &at, &before, &after); err != nil {
			return e, err
		}
		e.Time, e.Before, e.After = store.FromMS(at), []byte(before), []byte(after)
		return e, json.Unmarshal([]byte(actor), &e.Actor)
	}, text, args...)
}

// Last returns the number of the newest visible event, or 0.
func Last(ctx context.Context, db *store.DB) (n int64, err error) {
	err = db.Row(ctx, store.LastEvent, nil, &n)
	return n, err
}
