package advisorydb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

var feeds = store.Kind[resource.AdvisoryFeed]{
	Table:   "advisory_feeds",
	Columns: "t.uid, t.name, t.address, t.interval_ms, t.paused, t.last, t.state, t.create_ms, t.update_ms",
	Orders:  map[string]string{"uid": "uid", "name": "name", "create_time": "create_ms", "update_time": "update_ms"},
	Scan: func(row store.Scanner) (f resource.AdvisoryFeed, err error) {
		var interval, created, updated int64
		var last string
		if err = row.Scan(&f.UID, &f.Name, &f.Address, &interval, &f.Paused, &last, &f.State, &created, &updated); err != nil {
			return f, err
		}
		f.Interval = time.Duration(interval) * time.Millisecond
		f.CreateTime, f.UpdateTime = store.FromMS(created), store.FromMS(updated)
		if err = json.Unmarshal([]byte(last), &f.Last); err != nil {
			return f, fmt.Errorf("decode feed %s: %w", f.UID, err)
		}
		return f, nil
	},
	Cursor: func(f resource.AdvisoryFeed, col string) page.Cursor {
		return store.CursorAt(col, f.UID, f.Name, f.CreateTime, f.UpdateTime)
	},
}

// InsertFeed adds f, due at once. It returns fault.NotFound if its group is not
// there and fault.AlreadyExists if the group has a feed of that name.
func (s *Store) InsertFeed(ctx context.Context, f resource.AdvisoryFeed) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.MustExist(ctx, f.UID.Parent()); err != nil {
			return err
		}
		_, err := t.Exec(ctx, `
			INSERT INTO advisory_feeds (seg, uid, parent, a1, a2, a3, name, address, interval_ms, paused, due_ms, last, state, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $14)`,
			append(store.TreeColumns(f.UID), f.Name, f.Address, f.Interval.Milliseconds(), f.Paused, store.MS(f.CreateTime), "{}", bytesOf(nil), store.MS(f.CreateTime))...)
		if err != nil {
			return s.Inserted(err, "advisory feed", f.Name, f.UID)
		}
		return t.Added(ctx, "advisory_feeds", resource.FeedCreated, f.UID, f.UID.Parent(), f.Redacted())
	})
}

// Feed returns a feed, or fault.NotFound.
func (s *Store) Feed(ctx context.Context, uid resource.UID) (resource.AdvisoryFeed, error) {
	return store.Get(ctx, s.DB, &feeds, "advisory feed", uid)
}

// Feeds returns one page of feeds.
func (s *Store) Feeds(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (page.Page[resource.AdvisoryFeed], error) {
	return store.List(ctx, s.DB, &feeds, r, f, p)
}

// UpdateFeed applies change to the feed and returns the result; the feed is due
// at once. It returns fault.NotFound if there is none, fault.AlreadyExists if
// its group has another of its new name, and change's own error, with nothing
// written, if it has one. change may run more than once.
func (s *Store) UpdateFeed(ctx context.Context, uid resource.UID, change func(*resource.AdvisoryFeed) error) (f resource.AdvisoryFeed, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &feeds, "advisory feed", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		f = before
		if err := change(&f); err != nil {
			return err
		}
		f.UpdateTime = s.Time()
		if f.Address != before.Address {
			f.State = nil // it is about another source
		}
		if _, err := t.Exec(ctx, `
			UPDATE advisory_feeds SET name = $2, address = $3, interval_ms = $4, paused = $5, due_ms = $6, state = $7, update_ms = $6 WHERE uid = $1`,
			string(uid), f.Name, f.Address, f.Interval.Milliseconds(), f.Paused, store.MS(f.UpdateTime), bytesOf(f.State)); err != nil {
			return s.Inserted(err, "advisory feed", f.Name, uid)
		}
		return t.Emit(ctx, resource.FeedUpdated, uid, uid.Parent(), before.Redacted(), f.Redacted())
	})
	return f, err
}

// DeleteFeed removes a feed; what it brought stays. It returns fault.NotFound if
// there is none.
func (s *Store) DeleteFeed(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		f, err := store.Lock(ctx, t.Tx, &feeds, "advisory feed", uid, s.Engine.LockKey)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM advisory_feeds WHERE uid = $1`, string(uid)); err != nil {
			return err
		}
		return t.Removed(ctx, "advisory_feeds", resource.FeedDeleted, uid, uid.Parent(), f.Redacted())
	})
}

// TakeDueFeed returns a feed whose time has come and keeps it from others, on
// whichever replica, until the time given. ok is false if there is none.
//
// Organizations take turns: it looks first at those whose uid is after that of
// the organization last, and at none of those in except. So an organization with
// many feeds, or slow ones, does not delay the feeds of another.
func (s *Store) TakeDueFeed(ctx context.Context, until time.Time, last resource.UID, except []resource.UID) (f resource.AdvisoryFeed, ok bool, _ error) {
	due, err := s.dueFeeds(ctx)
	if err != nil {
		return f, false, err
	}
	due = slices.DeleteFunc(due, func(uid resource.UID) bool { return slices.Contains(except, uid.Root()) })
	turn := func(uid resource.UID) string { // the organizations up to last come after all others
		if uid.Root() > last {
			return "0" + string(uid.Root())
		}
		return "1" + string(uid.Root())
	}
	slices.SortStableFunc(due, func(a, b resource.UID) int { return strings.Compare(turn(a), turn(b)) })
	for _, uid := range due {
		var n int64
		err = s.write(ctx, func(t Tx) error {
			n, err = t.Exec(ctx, `UPDATE advisory_feeds SET due_ms = $2 WHERE uid = $1 AND NOT paused AND due_ms <= $3`, string(uid), store.MS(until), store.MS(s.Time()))
			return err
		})
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

// dueEach is how many due feeds of one organization TakeDueFeed considers. More
// than one, because other replicas may take some of them first.
const dueEach = 4

// dueFeeds returns the feeds of every organization that have been due for the
// longest, up to dueEach of each, in the order in which they were due.
func (s *Store) dueFeeds(ctx context.Context) (due []resource.UID, _ error) {
	err := s.Rows(ctx, `
		SELECT uid FROM (
			SELECT uid, due_ms, row_number() OVER (PARTITION BY a1 ORDER BY due_ms, seg) AS n FROM advisory_feeds WHERE NOT paused AND due_ms <= $1
		) AS t WHERE n <= $2 ORDER BY due_ms`, []any{store.MS(s.Time()), dueEach}, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		due = append(due, uid)
		return false, err
	})
	return due, err
}

// FeedRead records what came of looking at a feed, and when to look again. A feed
// that has gone meanwhile is left alone; one whose address changed keeps none of
// the state.
func (s *Store) FeedRead(ctx context.Context, f resource.AdvisoryFeed, last resource.FeedResult, state []byte, due time.Time) error {
	text, err := json.Marshal(last)
	if err != nil {
		return fmt.Errorf("encode feed result: %w", err)
	}
	return s.write(ctx, func(t Tx) error {
		_, err := t.Exec(ctx, `UPDATE advisory_feeds SET last = $2, state = $3, due_ms = $4 WHERE uid = $1 AND address = $5`,
			string(f.UID), string(text), bytesOf(state), store.MS(due), f.Address)
		return err
	})
}
