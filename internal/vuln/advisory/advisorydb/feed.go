package advisorydb

import (
	"cmp"
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
	Created: resource.FeedCreated, Updated: resource.FeedUpdated, Deleted: resource.FeedDeleted,
	Redact: vuln.AdvisoryFeed.Redacted,
	Columns: func(f *vuln.AdvisoryFeed) []store.Column {
		return []store.Column{
			store.Key(&f.UID),
			store.Text("name", &f.Name).Order("name"),
			store.Text("address", &f.Address),
			store.Text("format", &f.Format),
			store.Milliseconds("interval_ms", &f.Interval),
			store.Flag("paused", &f.Paused),
			store.Derived("due_ms", store.MS(f.UpdateTime)), // a changed feed is due at once, at its update time
			store.JSON("last", &f.Last).Fixed(),             // updates do not write it; see RecordFeedResult
			store.Bytes("state", &f.State).Fixed(),
			store.Time("create_ms", &f.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &f.UpdateTime).Order("update_time"),
		}
	},
}

// InsertFeed adds f, which is due immediately. It returns fault.NotFound if its group does not exist, and
// fault.AlreadyExists if the group has a feed with that name.
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

// UpdateFeed replaces before by after, and makes the feed due immediately. It returns store.ErrStale if the stored feed
// differs from before, and fault.AlreadyExists if the group has another feed with that name.
func (s *Store) UpdateFeed(ctx context.Context, before, after vuln.AdvisoryFeed) (vuln.AdvisoryFeed, error) {
	err := s.write(ctx, func(t Tx) error {
		err := store.Update(ctx, t.Tx, &feeds, before, &after)
		if err != nil || after.Address == before.Address && after.Format == before.Format {
			return err
		}
		after.State = nil // the state belongs to the old address and format
		_, err = t.Exec(ctx, `UPDATE advisory_feeds SET state = $2 WHERE uid = $1`, string(after.UID), []byte{})
		return err
	})
	return after, err
}

// DeleteFeed deletes a feed, but not the advisories that were imported from it. It returns fault.NotFound if the feed
// does not exist.
func (s *Store) DeleteFeed(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		f, err := store.Lock(ctx, t.Tx, &feeds, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		return store.Remove(ctx, t.Tx, &feeds, f)
	})
}

// SetFeedDue sets the time at which a feed is due. It does nothing if the feed is due earlier, is paused, or does not
// exist.
func (s *Store) SetFeedDue(ctx context.Context, uid resource.UID, due time.Time) error {
	_, err := s.Exec(ctx, `UPDATE advisory_feeds SET due_ms = $2 WHERE uid = $1 AND NOT paused AND due_ms > $2`,
		string(uid), store.MS(due))
	return err
}

// ClaimDueFeed returns a feed that is due, and claims it until the given time, so that no other caller on any replica
// gets it. ok is false if no feed is due.
//
// Organizations take turns, so that an organization with many or slow feeds does not delay the feeds of another:
// ClaimDueFeed prefers organizations whose UID is after last, and skips the organizations in except.
func (s *Store) ClaimDueFeed(
	ctx context.Context, until time.Time, last resource.UID, except []resource.UID,
) (f vuln.AdvisoryFeed, ok bool, _ error) {
	due, err := s.dueFeeds(ctx)
	if err != nil {
		return f, false, err
	}
	due = slices.DeleteFunc(due, func(uid resource.UID) bool { return slices.Contains(except, uid.Root()) })
	order := func(uid resource.UID) string { // sorts organizations up to last after all others
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

// duePerOrganization is the number of due feeds of one organization that ClaimDueFeed considers. It is more than one,
// because other replicas may claim some of them first.
const duePerOrganization = 4

// dueFeeds returns the most overdue feeds of every organization, at most duePerOrganization of each, ordered by the
// time at which they became due.
func (s *Store) dueFeeds(ctx context.Context) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, `
		SELECT uid FROM (
			SELECT uid, due_ms, row_number() OVER (PARTITION BY a1 ORDER BY due_ms, seg) AS n FROM advisory_feeds
			WHERE NOT paused AND due_ms <= $1
		) AS t WHERE n <= $2 ORDER BY due_ms`, store.MS(s.Time()), duePerOrganization)
}

// OldestDueFeed returns the time since which the most overdue feed has been due, or the zero time if no feed is due.
func (s *Store) OldestDueFeed(ctx context.Context) (time.Time, error) {
	var due int64
	err := s.Row(ctx, oldestDueQuery, []any{store.MS(s.Time())}, &due)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return store.FromMS(due), err
}

// FailingFeeds returns the number of feeds whose last read failed, without paused feeds.
func (s *Store) FailingFeeds(ctx context.Context) (n int, err error) {
	err = s.Row(ctx, `SELECT count(*) FROM advisory_feeds WHERE NOT paused AND last LIKE '%"error":%'`, nil, &n)
	return n, err
}

const oldestDueQuery = `SELECT due_ms FROM advisory_feeds WHERE NOT paused AND due_ms <= $1 ORDER BY due_ms LIMIT 1`

// RecordFeedResult records the result of reading f, and the time at which the feed is due again. It does nothing if the
// feed was deleted, or if its address or format was changed during the read.
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

// FeedResults returns the names and the last results of the feeds of the given groups and all groups below them, up to
// n. None of the given groups may be below another. Feeds that were never read come first, then the oldest.
func (s *Store) FeedResults(ctx context.Context, under []resource.UID, n int) ([]vuln.AdvisoryFeed, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT t.uid, t.name, t.paused, t.last FROM %s AS s CROSS JOIN advisory_feeds AS t
		WHERE t.uid >= s.v AND t.uid < s.v || '0'`, s.Engine.Unnest(&q, texts(under)))
	found, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (f vuln.AdvisoryFeed, err error) {
		var last []byte
		if err = row.Scan(&f.UID, &f.Name, &f.Paused, &last); err == nil {
			err = json.Unmarshal(last, &f.Last)
		}
		return f, err
	}, text, q.Args...)
	slices.SortFunc(found, func(a, b vuln.AdvisoryFeed) int {
		return cmp.Or(a.Last.Current.Compare(b.Last.Current), cmp.Compare(a.UID, b.UID))
	})
	return found[:min(len(found), n)], err
}
