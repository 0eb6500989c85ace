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
	Created: resource.SubscriptionCreated, Deleted: resource.SubscriptionDeleted, Redact: resource.Subscription.Redacted,
	Columns: func(v *resource.Subscription) []store.Column {
		return []store.Column{
			store.Key(&v.UID),
			store.Text("sink", &v.Sink),
			store.Time("create_ms", &v.CreateTime).Order("create_time"),
			store.Derived("cursor_seq", int64(0)), // see InsertSubscription
		}
	},
}

// InsertSubscription adds v, to be sent every event that follows. It returns
// fault.NotFound if its group is not there.
func (s *Store) InsertSubscription(ctx context.Context, v resource.Subscription) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, v.UID.Parent()); err != nil {
			return err
		}
		if err := store.InsertRow(ctx, t.Tx, &subscriptions, v); err != nil {
			return err
		}
		_, err := t.Exec(ctx,
			`UPDATE subscriptions SET cursor_seq = (SELECT coalesce(max(seq), 0) FROM outbox) WHERE seg = $1`,
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

// DeleteSubscription removes a subscription and what could not be delivered to
// it. It returns fault.NotFound if there is none.
func (s *Store) DeleteSubscription(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		v, err := store.Lock(ctx, t.Tx, &subscriptions, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		gone, err := t.Exec(ctx, `DELETE FROM deliveries WHERE parent = $1`, store.Segment(uid))
		if err != nil {
			return err
		}
		if err := store.Remove(ctx, t.Tx, &subscriptions, v); err != nil {
			return err
		}
		if err := t.Count(ctx, "deliveries", uid.NewChild(), -int(gone)); err != nil {
			return err
		}
		return t.DropCounters(ctx, uid)
	})
}

// A Sink is a subscription and how far it has come: its sink needs no event of a
// number up to Cursor any more.
type Sink struct {
	resource.Subscription
	Cursor int64
}

// Sinks returns up to n subscriptions with how far they have come, in the order
// of their uids, those that follow after.
func (s *Store) Sinks(ctx context.Context, after resource.UID, n int) ([]Sink, error) {
	return store.ReadAll(ctx, s.Rows, scanSink, selectSink+` WHERE uid > $1 ORDER BY uid LIMIT $2`, string(after), n)
}

// Sink returns one subscription and how far it has come, or fault.NotFound.
func (s *Store) Sink(ctx context.Context, uid resource.UID) (Sink, error) {
	v, err := scanSink(s.QueryRow(ctx, selectSink+` WHERE uid = $1`, string(uid)))
	return v, store.Missing(err, "subscription", uid)
}

const selectSink = `SELECT uid, sink, create_ms, cursor_seq FROM subscriptions`

func scanSink(row store.Scanner) (v Sink, err error) {
	var created int64
	err = row.Scan(&v.UID, &v.Sink, &created, &v.Cursor)
	v.CreateTime = store.FromMS(created)
	return v, err
}

// Advance records how far subscriptions have come, in one transaction. None ever
// goes back, and those that are gone are left out. It returns fault.Aborted if the
// database no longer has the history that the cursors are of: its events have other
// numbers.
func (s *Store) SaveCursors(ctx context.Context, history int64, cursors map[resource.UID]int64) error {
	return s.write(ctx, func(t Tx) error {
		if s.History() != history { // asked within the transaction: its connection is not to a later one
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
