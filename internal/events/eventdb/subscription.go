package eventdb

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var subscriptions = store.Kind[resource.Subscription]{
	Table: "subscriptions", Label: "subscription",
	Created: resource.SubscriptionCreated, Deleted: resource.SubscriptionDeleted,
	Redact: resource.Subscription.Redacted,
	Columns: func(v *resource.Subscription) []store.Column {
		return []store.Column{
			store.Key(&v.UID),
			store.Text("sink", &v.Sink),
			store.Time("create_ms", &v.CreateTime).Order("create_time"),
			store.OptionalTime("failing_ms", &v.Failing.Since),
			store.Text("failing_error", &v.Failing.Error),
			store.Derived("cursor_seq", int64(0)), // InsertSubscription sets the real value
		}
	},
}

// InsertSubscription adds v, whose cursor starts at the end of the outbox, so that it receives every later event. It
// returns fault.NotFound if the group of v does not exist.
func (s *Store) InsertSubscription(ctx context.Context, v resource.Subscription) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, v.UID.Parent()); err != nil {
			return err
		}
		if err := store.InsertRow(ctx, t.Tx, &subscriptions, v); err != nil {
			return err
		}
		_, err := t.Exec(ctx,
			`UPDATE subscriptions SET cursor_seq = (`+store.LastEvent+`) WHERE seg = $1`,
			store.Segment(v.UID))
		if err != nil {
			return err
		}
		return t.Added(ctx, "subscriptions", resource.SubscriptionCreated, v.UID, v.UID.Parent(), v.Redacted())
	})
}

// Subscription returns a subscription, or fault.NotFound.
func (s *Store) Subscription(ctx context.Context, uid resource.UID) (resource.Subscription, error) {
	return store.Get(ctx, s.DB, &subscriptions, uid)
}

// Subscriptions returns one page of subscriptions.
func (s *Store) Subscriptions(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Subscription], error) {
	return store.List(ctx, s.DB, &subscriptions, r, f, p)
}

// DeleteSubscription deletes a subscription and its given-up events. It returns fault.NotFound if the subscription does
// not exist.
func (s *Store) DeleteSubscription(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		v, err := store.Lock(ctx, t.Tx, &subscriptions, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		deleted, err := t.Exec(ctx, `DELETE FROM deliveries WHERE parent = $1`, store.Segment(uid))
		if err == nil {
			_, err = t.Exec(ctx, `DELETE FROM delivery_attempts WHERE subscription = $1`, store.Segment(uid))
		}
		if err != nil {
			return err
		}
		if err := store.Remove(ctx, t.Tx, &subscriptions, v); err != nil {
			return err
		}
		if err := t.Count(ctx, "deliveries", uid.NewChild(), -int(deleted)); err != nil {
			return err
		}
		return t.DropCounters(ctx, uid)
	})
}

// A Sink is a subscription with its cursor.
type Sink struct {
	resource.Subscription
	Cursor   int64 // every event up to this sequence number is delivered or given up
	Reported bool  // ReportFailing has recorded the present failures
}

// Sinks returns up to n subscriptions with a UID greater than after and their cursors, ordered by UID.
func (s *Store) Sinks(ctx context.Context, after resource.UID, n int) ([]Sink, error) {
	return store.ReadAll(ctx, s.Rows, scanSink, selectSink+` WHERE uid > $1 ORDER BY uid LIMIT $2`, string(after), n)
}

// Sink returns one subscription with its cursor, or fault.NotFound.
func (s *Store) Sink(ctx context.Context, uid resource.UID) (Sink, error) {
	v, err := scanSink(s.QueryRow(ctx, selectSink+` WHERE uid = $1`, string(uid)))
	return v, store.Missing(err, "subscription", uid)
}

const selectSink = `SELECT uid, sink, create_ms, cursor_seq, failing_ms, failing_error, failing_reported
	FROM subscriptions`

func scanSink(row store.Scanner) (v Sink, err error) {
	var created, failing int64
	err = row.Scan(&v.UID, &v.Sink, &created, &v.Cursor, &failing, &v.Failing.Error, &v.Reported)
	v.CreateTime = store.FromMS(created)
	if failing != 0 {
		v.Failing.Since = store.FromMS(failing)
	}
	return v, err
}

// SaveCursors stores the cursors of subscriptions in one transaction. A cursor never moves back. Deleted subscriptions
// are ignored. It returns fault.Aborted if history differs from store.DB.History. In that case the database was
// replaced, for example by a restore, and its events have other sequence numbers.
func (s *Store) SaveCursors(ctx context.Context, history int64, cursors map[resource.UID]int64) error {
	return s.write(ctx, func(t Tx) error {
		// The check is inside the transaction, so that its connection belongs to this history.
		if s.History() != history {
			return fault.New(fault.Aborted, "the history of the database has changed")
		}
		for _, uid := range slices.Sorted(maps.Keys(cursors)) {
			if err := t.advance(ctx, uid, cursors[uid]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t Tx) advance(ctx context.Context, uid resource.UID, cursor int64) error {
	return t.Later(ctx, `UPDATE subscriptions SET cursor_seq = $2 WHERE seg = $1 AND cursor_seq < $2`,
		store.Segment(uid), cursor)
}
