package imagedb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The end of the backlog is estimated from the number of images that were taken from the queue in the last minutes, in
// two periods: the current one and the one before. A period ends with the first image after ratePeriod.

const (
	ratePeriod = time.Minute
	minRateAge = 5 * time.Second // a rate is not known before
	maxRateAge = 4 * time.Minute // the rate of a longer time says nothing about the present
)

// countTaken counts an image of an organization that was taken from the queue for its first inspection.
func (t Tx) countTaken(ctx context.Context, root int64) error {
	const over = `inspection_rates.from_ms <= excluded.from_ms - $3`
	_, err := t.Exec(ctx, `INSERT INTO inspection_rates (root, from_ms, taken, before_ms, taken_before)
		VALUES ($1, $2, 1, 0, 0) ON CONFLICT (root) DO UPDATE SET
		before_ms = CASE WHEN `+over+` THEN inspection_rates.from_ms ELSE inspection_rates.before_ms END,
		taken_before = CASE WHEN `+over+` THEN inspection_rates.taken ELSE inspection_rates.taken_before END,
		taken = CASE WHEN `+over+` THEN 1 ELSE inspection_rates.taken + 1 END,
		from_ms = CASE WHEN `+over+` THEN excluded.from_ms ELSE inspection_rates.from_ms END`,
		root, store.MS(t.DB.Time()), ratePeriod.Milliseconds())
	return err
}

// A rate contains the counts of an organization.
type rate struct{ from, taken, before, takenBefore int64 }

// perImage returns the time after which the next image was taken, on average. It returns 0 if it is not known.
func (r rate) perImage(now time.Time) time.Duration {
	start, n := r.from, r.taken
	if r.from-r.before < maxRateAge.Milliseconds() {
		start, n = r.before, r.taken+r.takenBefore
	}
	age := now.Sub(store.FromMS(start))
	if n == 0 || age < minRateAge || age > maxRateAge+ratePeriod {
		return 0
	}
	return age / time.Duration(n)
}

// BacklogEnd estimates when all images of organizations that wait now are inspected, if no others are pushed. It
// returns the zero time if that is not known, because no images of one of them were inspected in the last minutes.
func (s *Store) BacklogEnd(ctx context.Context, organizations []resource.UID) (end time.Time, _ error) {
	q := store.Query{Engine: s.Engine}
	rates, currentTime := map[int64]rate{}, s.Time()
	err := s.Rows(ctx, `SELECT t.root, t.from_ms, t.taken, t.before_ms, t.taken_before FROM `+
		s.Engine.Unnest(&q, rootsOf(organizations))+` AS s CROSS JOIN inspection_rates AS t WHERE t.root = s.v`, q.Args,
		func(row store.Scanner) (bool, error) {
			var root int64
			var r rate
			err := row.Scan(&root, &r.from, &r.taken, &r.before, &r.takenBefore)
			rates[root] = r
			return false, err
		})
	if err != nil {
		return end, err
	}
	q = store.Query{Engine: s.Engine}
	waiting, err := store.ReadMap[int64, int64](ctx, s.Rows, `SELECT i.root, count(*) FROM `+
		s.Engine.Unnest(&q, rootsOf(organizations))+` AS s CROSS JOIN images AS i WHERE i.root = s.v AND i.state = 0
		GROUP BY i.root`, q.Args...)
	for root, n := range waiting {
		each := rates[root].perImage(currentTime)
		if each == 0 {
			return time.Time{}, err
		}
		if until := currentTime.Add(time.Duration(n) * each); until.After(end) {
			end = until
		}
	}
	return end, err
}

// sweepRates removes rates that no longer say anything.
func (s *Store) sweepRates(ctx context.Context) error {
	_, err := s.Exec(ctx, `DELETE FROM inspection_rates WHERE from_ms < $1`, store.MS(s.Time().Add(-time.Hour)))
	return err
}
