package eventdb

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// MaxDeliveries is the number of given-up events that are stored per subscription. If there are more, the oldest are
// deleted.
const MaxDeliveries = 10_000

var deliveries = store.Kind[resource.Delivery]{
	Table: "deliveries", Label: "delivery", ParentTables: "subscriptions", Unique: "parent, event_seq",
	Columns: func(d *resource.Delivery) []store.Column {
		return []store.Column{
			store.Key(&d.UID),
			store.Derived("event_seq", d.Event.Seq),
			store.JSON("event", &d.Event),
			store.Number("attempts", &d.Attempts),
			store.Text("error", &d.Error),
			store.Flag("replay", &d.Replaying),
			store.Time("create_ms", &d.CreateTime).Order("create_time"),
			store.Time("update_ms", &d.UpdateTime),
		}
	},
}

// Deliveries returns one page of the events that were given up.
func (s *Store) Deliveries(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Delivery], error) {
	return store.List(ctx, s.DB, &deliveries, r, f, p)
}

// Delivery returns an event that was given up, or fault.NotFound.
func (s *Store) Delivery(ctx context.Context, uid resource.UID) (resource.Delivery, error) {
	return store.Get(ctx, s.DB, &deliveries, uid)
}

// GiveUp stores events that a sink has not accepted, and advances the cursor of the subscription, in one transaction.
// An event that is already stored is unchanged. If the subscription then has more than MaxDeliveries, the oldest are
// deleted. It returns fault.NotFound if the subscription does not exist.
func (s *Store) GiveUp(ctx context.Context, sub resource.UID, cursor int64, expired []resource.Delivery) error {
	return s.write(ctx, func(t Tx) error {
		if _, err := store.Lock(ctx, t.Tx, &subscriptions, sub, s.Engine.ForUpdate); err != nil {
			return err
		}
		added := 0
		for _, d := range expired {
			switch err := store.InsertRow(ctx, t.Tx, &deliveries, d); {
			case err == nil:
				added++
			case !errors.Is(err, fault.AlreadyExists):
				return err
			}
		}
		over, err := t.Exec(ctx, `
			DELETE FROM deliveries WHERE seg IN (
				SELECT seg FROM deliveries WHERE parent = $1 ORDER BY event_seq DESC LIMIT 1000000 OFFSET $2)`,
			store.Segment(sub), MaxDeliveries)
		if err != nil {
			return err
		}
		if err := t.advance(ctx, sub, cursor); err != nil {
			return err
		}
		return t.Count(ctx, "deliveries", sub.NewChild(), added-int(over))
	})
}

// ScheduleReplay schedules given-up events to be sent again: the delivery with a UID, or all deliveries of the
// subscription with that UID. It returns their number.
func (s *Store) ScheduleReplay(ctx context.Context, uid resource.UID) (int, error) {
	n, err := s.Exec(ctx, `UPDATE deliveries SET replay = $4 WHERE uid = $1 OR uid > $2 AND uid < $3`,
		string(uid), string(uid)+"/", string(uid)+"0", true)
	return int(n), err
}

// ScheduledReplays returns up to n deliveries of a subscription for which a replay was requested, oldest event first.
func (s *Store) ScheduledReplays(ctx context.Context, sub resource.UID, n int) ([]resource.Delivery, error) {
	return deliveries.All(ctx, s.Rows, ` WHERE t.replay AND t.parent = $1 ORDER BY t.event_seq LIMIT $2`,
		store.Segment(sub), n)
}

// SubscriptionsToReplay returns the subscriptions with requested replays.
func (s *Store) SubscriptionsToReplay(ctx context.Context) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows,
		`SELECT uid FROM subscriptions WHERE seg IN (SELECT parent FROM deliveries WHERE replay)`)
}

// FinishReplay ends the replay of a delivery. If the sink accepted the event, the delivery is deleted; otherwise its
// attempts and error are updated. It does nothing if the delivery does not exist.
func (s *Store) FinishReplay(ctx context.Context, d resource.Delivery, accepted bool) error {
	return s.write(ctx, func(t Tx) error {
		if !accepted {
			_, err := t.Exec(ctx,
				`UPDATE deliveries SET replay = $2, attempts = $3, error = $4, update_ms = $5 WHERE uid = $1`,
				string(d.UID), false, d.Attempts, d.Error, store.MS(d.UpdateTime))
			return err
		}
		n, err := t.Exec(ctx, `DELETE FROM deliveries WHERE uid = $1`, string(d.UID))
		if err != nil || n == 0 {
			return err
		}
		return t.Count(ctx, "deliveries", d.UID, -1)
	})
}

// PruneDeliveries deletes up to n events that were given up before a time, and returns how many it has deleted.
func (s *Store) PruneDeliveries(ctx context.Context, before time.Time, n int) (deleted int, _ error) {
	err := s.write(ctx, func(t Tx) error {
		uids, err := store.ReadColumn[resource.UID](ctx, t.Rows, `
			DELETE FROM deliveries WHERE seg IN (SELECT seg FROM deliveries WHERE create_ms < $1
			ORDER BY create_ms LIMIT $2) RETURNING uid`,
			store.MS(before), n)
		if err != nil {
			return err
		}
		deleted = len(uids)
		bySubscription := map[resource.UID]int{}
		for _, uid := range uids {
			bySubscription[uid.Parent()]++
		}
		for sub, n := range bySubscription {
			if err := t.Count(ctx, "deliveries", sub.NewChild(), -n); err != nil {
				return err
			}
		}
		return nil
	})
	return deleted, err
}
