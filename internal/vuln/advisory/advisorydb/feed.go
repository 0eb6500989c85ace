package advisorydb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

var feeds = store.Kind[vuln.AdvisoryFeed]{
	Table: "advisory_feeds", Label: "advisory feed",
	Created: resource.FeedCreated, Updated: resource.FeedUpdated, Deleted: resource.FeedDeleted, Redact: vuln.AdvisoryFeed.Redacted,
	Columns: func(f *vuln.AdvisoryFeed) []store.Column {
		return []store.Column{
			store.Key(&f.UID),
			store.Text("name", &f.Name).Order("name"),
			store.Text("address", &f.Address),
			store.Text("format", &f.Format),
			store.Milliseconds("interval_ms", &f.Interval),
			store.Flag("paused", &f.Paused),
			store.Derived("due_ms", store.MS(f.UpdateTime)), // a feed that was changed is due at once
			store.JSON("last", &f.Last).Fixed(),             // see RecordFeedResult
			store.Bytes("state", &f.State).Fixed(),
			store.Time("create_ms", &f.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &f.UpdateTime).Order("update_time"),
		}
	},
}

// InsertFeed adds f, due at once. It returns fault.NotFound if its group is not
// there and fault.AlreadyExists if the group has a feed of that name.
func (s *Store) InsertFeed(ctx context.Context, f vuln.AdvisoryFeed) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, f.UID.Parent()); err != nil {
			return err
		}
		return store.Insert(ctx, t.Tx, &feeds, f)
	})
}

// Feed returns a feed, or fault.NotFound.
func (s *Store) Feed(ctx context.Context, uid resource.UID) (vuln.AdvisoryFeed, error) {
	return store.Get(ctx, s.DB, &feeds, uid)
}

// Feeds returns one page of feeds.
func (s *Store) Feeds(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[vuln.AdvisoryFeed], error) {
	return store.List(ctx, s.DB, &feeds, r, f, p)
}

// UpdateFeed replaces before by after; the feed is due at once. It returns
// store.ErrStale if the feed is not as before any more, and fault.AlreadyExists if
// its group has another feed of that name.
func (s *Store) UpdateFeed(ctx context.Context, before, after vuln.AdvisoryFeed) (vuln.AdvisoryFeed, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := store.Update(ctx, t.Tx, &feeds, before, &after); err != nil || after.Address == before.Address && after.Format == before.Format {
			return err
		}
		after.State = nil // it is about another source, or about one that was read in another way
		_, err := t.Exec(ctx, `UPDATE advisory_feeds SET state = $2 WHERE uid = $1`, string(after.UID), []byte{})
		return err
	})
	return after, err
}

// DeleteFeed removes a feed; what it brought stays. It returns fault.NotFound if
// there is none.
func (s *Store) DeleteFeed(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		f, err := store.Lock(ctx, t.Tx, &feeds, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		return store.Remove(ctx, t.Tx, &feeds, f)
	})
}

// SetFeedDue has a feed be due at a time, unless it is due before, paused or gone.
func (s *Store) SetFeedDue(ctx context.Context, uid resource.UID, at time.Time) error {
	_, err := s.Exec(ctx, `UPDATE advisory_feeds SET due_ms = $2 WHERE uid = $1 AND NOT paused AND due_ms > $2`,
		string(uid), store.MS(at))
	return err
}

// ClaimDueFeed returns a feed that is due, and claims it until the time given, so
// that no other caller on any replica gets it. ok is false if there is none.
//
// Organizations take turns: it looks first at those whose uid is after that of
// the organization last, and at none of those in except. So an organization with
// many feeds, or slow ones, does not delay the feeds of another.
func (s *Store) ClaimDueFeed(
	ctx context.Context, until time.Time, last resource.UID, except []resource.UID,
) (f vuln.AdvisoryFeed, ok bool, _ error) {
	due, err := s.dueFeeds(ctx)
	if err != nil {
		return f, false, err
	}
	due = slices.DeleteFunc(due, func(uid resource.UID) bool { return slices.Contains(except, uid.Root()) })
	order := func(uid resource.UID) string { // the organizations up to last come after all others
		if uid.Root() > last {
			return "0" + string(uid.Root())
		}
		return "1" + string(uid.Root())
	}
	slices.SortStableFunc(due, func(a, b resource.UID) int { return strings.Compare(order(a), order(b)) })
	for _, uid := range due {
		n, err := s.Exec(ctx, `UPDATE advisory_feeds SET due_ms = $2 WHERE uid = $1 AND NOT paused AND due_ms <= $3`,
			string(uid), store.MS(until), store.MS(s.Time()))
		if err != nil {
			return f, false, err
		}
		if n == 1 {
			f, err = s.Feed(ctx, uid)
			return f, err == nil, err
		}
	}
	return f, false, nil
}

// duePerOrganization is how many due feeds of one organization ClaimDueFeed
// considers. It is more than one, because other replicas may claim some first.
const duePerOrganization = 4

// dueFeeds returns the feeds of every organization that have been due for the
// longest, up to duePerOrganization of each, in the order in which they were due.
func (s *Store) dueFeeds(ctx context.Context) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, `
		SELECT uid FROM (
			SELECT uid, due_ms, row_number() OVER (PARTITION BY a1 ORDER BY due_ms, seg) AS n FROM advisory_feeds
			WHERE NOT paused AND due_ms <= $1
		) AS t WHERE n <= $2 ORDER BY due_ms`, store.MS(s.Time()), duePerOrganization)
}

// OldestDueFeed returns since when the feed is due that is due the longest, or the
// zero time if none is.
func (s *Store) OldestDueFeed(ctx context.Context) (time.Time, error) {
	var due int64
	err := s.Row(ctx, oldestDueQuery, []any{store.MS(s.Time())}, &due)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return store.FromMS(due), err
}

const oldestDueQuery = `SELECT due_ms FROM advisory_feeds WHERE NOT paused AND due_ms <= $1 ORDER BY due_ms LIMIT 1`

// RecordFeedResult records the result of reading a feed, and when to read it again.
// If the feed was deleted or its address or format changed meanwhile, it does nothing.
func (s *Store) RecordFeedResult(
	ctx context.Context, f vuln.AdvisoryFeed, last vuln.FeedResult, state []byte, due time.Time,
) error {
	text, err := json.Marshal(last)
	if err != nil {
		return fmt.Errorf("encode feed result: %w", err)
	}
	_, err = s.Exec(ctx, `UPDATE advisory_feeds SET last = $2, state = $3, due_ms = $4
		WHERE uid = $1 AND address = $5 AND format = $6`,
		string(f.UID), string(text), nonNil(state), store.MS(due), f.Address, string(f.Format))
	return err
}
