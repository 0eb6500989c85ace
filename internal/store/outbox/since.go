package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Position separates the events that were visible at one time from all others.
type Position struct {
	Seq  int64   `json:"s"`           // number of the newest visible event
	ID   string  `json:"i"`           // its id; another history of the database has another event with the number
	Gaps []int64 `json:"g,omitempty"` // lower numbers that were not visible, and may become visible
}

// maxGap is the distance, in numbers, in which a Position looks for gaps. An event gets its number shortly before its
// transaction is committed, so not many other events can become visible in between.
const maxGap = 256

// ErrPositionLost is the error of Since if events after the position may have been removed.
var ErrPositionLost = errors.New("the events since then are no longer stored")

// Now returns the current position.
func Now(ctx context.Context, db *store.DB) (p Position, _ error) {
	next := int64(0) // number above the next gap
	err := db.Rows(ctx, `SELECT seq, id FROM outbox ORDER BY seq DESC LIMIT $1`, []any{maxGap},
		func(row store.Scanner) (bool, error) {
			var seq int64
			var id string
			err := row.Scan(&seq, &id)
			if p.Seq == 0 {
				p.Seq, p.ID, next = seq, id, seq
			}
			for n := next - 1; n > seq && n > p.Seq-maxGap; n-- {
				p.Gaps = append(p.Gaps, n)
			}
			next = seq
			return false, err
		})
	return p, err
}

// Since returns up to n events in a group and below it that were not visible at a position and that keep selects,
// without their resources. It also returns the number of such events. It returns ErrPositionLost if it cannot know
// them, or if there were too many events.
func Since(
	ctx context.Context, db *store.DB, group resource.UID, p Position, n int, keep func(resource.Event) bool,
) (events []resource.Event, total int, _ error) {
	if err := stored(ctx, db, p); err != nil {
		return nil, 0, err
	}
	gaps := map[int64]bool{}
	oldest := p.Seq + 1
	for _, gap := range p.Gaps {
		gaps[gap] = true
		oldest = min(oldest, gap)
	}
	err := db.Rows(ctx, `SELECT seq, id, type, subject, grp, actor, at_ms FROM outbox WHERE seq >= $1
		AND (grp = $2 OR grp > $3 AND grp < $4 OR subject > $3 AND subject < $4) ORDER BY seq`,
		[]any{oldest, string(group), string(group) + "/", string(group) + "0"},
		func(row store.Scanner) (bool, error) {
			var e resource.Event
			var actor string
			var at int64
			if err := row.Scan(&e.Seq, &e.ID, &e.Type, &e.Subject, &e.Group, &actor, &at); err != nil {
				return false, err
			}
			if e.Seq <= p.Seq && !gaps[e.Seq] {
				return false, nil
			}
			e.Time = store.FromMS(at)
			if err := json.Unmarshal([]byte(actor), &e.Actor); err != nil {
				return false, err
			}
			if !keep(e) {
				return false, nil
			}
			if total++; len(events) < n {
				events = append(events, e)
			}
			return false, nil
		})
	return events, total, err
}

// maxSince is the greatest number of events that Since examines.
const maxSince = 1_000_000

// stored returns nil if all events after a position are stored.
func stored(ctx context.Context, db *store.DB, p Position) error {
	last, err := Last(ctx, db)
	if err != nil {
		return err
	}
	var id string
	err = db.Row(ctx, `SELECT id FROM outbox WHERE seq = $1`, []any{p.Seq}, &id)
	if errors.Is(err, sql.ErrNoRows) && p.Seq == 0 && last == 0 {
		return nil
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && (id != p.ID || last-p.Seq > maxSince) {
		return ErrPositionLost
	}
	return err
}
