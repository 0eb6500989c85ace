// Package outbox reads the events of a database: in order and without gaps, backwards, or by request.
package outbox

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Tail reads the outbox to its end, in order, and skips no event. It is not safe for
// concurrent use.
//
// PostgreSQL numbers events when transactions write them, and shows them when the
// transactions commit. So an event may appear after one with a higher number, or
// never, if its transaction is rolled back. If a number is missing, a tail waits
// until every transaction that was running at that time has ended.
type Tail struct {
	db      *store.DB
	at      int64 // every event up to this number has been returned, or is older than the tail
	final   int64 // no event up to this number can still appear
	pending int64 // the value that final gets when the awaited transactions have ended
	awaited int64 // highest id of the awaited transactions; 0 if none
}

// NewTail returns a Tail that starts after the event numbered after. It returns no
// events until every event up to that number has appeared.
func NewTail(ctx context.Context, db *store.DB, after int64) (*Tail, error) {
	t := &Tail{db: db, at: after, final: after}
	if !db.Engine.Postgres {
		return t, nil
	}
	return t, t.waitForTransactions(ctx, after)
}

// Complete reports whether no event up to At can still appear.
func (t *Tail) Complete(ctx context.Context) (bool, error) {
	if t.awaited != 0 {
		if err := t.checkTransactions(ctx); err != nil {
			return false, err
		}
	}
	return t.awaited == 0 || t.pending > t.at, nil
}

// At returns the number up to which all events have been returned.
func (t *Tail) At() int64 { return t.at }

// Next returns up to n of the following events. It returns no events if there are none
// yet, or if an earlier event may still appear.
func (t *Tail) Next(ctx context.Context, n int) ([]resource.Event, error) {
	if complete, err := t.Complete(ctx); err != nil || !complete {
		return nil, err
	}
	events, err := Read(ctx, t.db, t.at, n)
	if err != nil {
		return nil, err
	}
	usable := len(events)
	if t.db.Engine.Postgres {
		usable = t.contiguous(events)
	}
	if usable > 0 {
		t.at = events[usable-1].Seq
	}
	if usable < len(events) && t.awaited == 0 {
		err = t.waitForTransactions(ctx, events[len(events)-1].Seq)
	}
	return events[:usable], err
}

// Skip passes over up to n of the following events without reading them, and returns
// how many it passed. If one of them has the type unless, or a number is missing, Skip
// passes over none and returns ok = false: the caller then uses Next.
func (t *Tail) Skip(ctx context.Context, n int, unless resource.EventType) (skipped int, ok bool, err error) {
	if complete, err := t.Complete(ctx); err != nil || !complete {
		return 0, err == nil, err
	}
	var last, kept int64
	err = t.db.Row(ctx, `
		SELECT count(*), coalesce(max(e.seq), 0), coalesce(sum(CASE WHEN e.type = $3 THEN 1 ELSE 0 END), 0)
		FROM (SELECT seq, type FROM outbox WHERE seq > $1 ORDER BY seq LIMIT $2) AS e`, []any{t.at, n, string(unless)},
		&skipped, &last, &kept)
	if err != nil || skipped == 0 {
		return 0, err == nil, err
	}
	if kept > 0 || t.db.Engine.Postgres && last-t.at != int64(skipped) {
		return 0, false, nil
	}
	t.at = last
	return skipped, true, nil
}

// contiguous returns how many of the first events have consecutive numbers.
func (t *Tail) contiguous(events []resource.Event) int {
	last := t.at
	for i, e := range events {
		if e.Seq > last+1 && e.Seq-1 > t.final {
			return i
		}
		last = e.Seq
	}
	return len(events)
}

// waitForTransactions makes the tail wait for the running transactions. Their ids are
// lower than the id of a new transaction. The upper bound in a PostgreSQL snapshot
// cannot be used, because it may be below the id of a running transaction.
func (t *Tail) waitForTransactions(ctx context.Context, seen int64) error {
	t.pending = seen
	return t.db.Row(ctx, `SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)`, nil, &t.awaited)
}

// checkTransactions ends the wait if the awaited transactions have ended.
func (t *Tail) checkTransactions(ctx context.Context) error {
	var oldest int64
	err := t.db.Row(ctx, `SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)`, nil, &oldest)
	if err == nil && oldest > t.awaited {
		t.final, t.awaited = t.pending, 0
	}
	return err
}
