package store

import (
	"context"
	"sync/atomic"
	"time"
)

// maxStepBack is the greatest step by which a clock may be set back. After a smaller
// step, the time that DB.Clock returns stands still until the clock has caught up. A
// clock that is set back further was probably wrong before.
const maxStepBack = 5 * time.Minute

// clockRounding is the largest error of a time that the database returns, because it
// has no fractions of a millisecond.
const clockRounding = time.Millisecond

// Clock returns bounds for the time of the database: the time is not before earliest and
// not after latest. That time decides when a grant with a time limit begins and ends.
// Compare a beginning with earliest and an end with latest, so that no grant is valid
// too early or too late. The difference between the bounds is the duration of the last
// heartbeat plus the rounding of its time. The clocks of replicas need not agree, and
// may be set while they run. If the time is not known, the bounds are such that nothing
// has begun and everything has ended.
//
// On SQLite the time comes from the clock of this process.
func (s *DB) Clock() (earliest, latest time.Time) {
	if !s.Engine.Postgres {
		current := s.steady.after(s.Now())
		return current, current
	}
	r := s.replica.Clock()
	if r == nil {
		return time.Time{}, FromMS(1<<62 - 1)
	}
	current := time.Now()
	return r.Time.Add(current.Sub(r.Received) - clockRounding),
		s.steady.after(r.Time.Add(current.Sub(r.Requested) + clockRounding))
}

// Clock returns the time of the database.
func (t *Tx) Clock(ctx context.Context) (time.Time, error) {
	if !t.DB.Engine.Postgres {
		_, latest := t.DB.Clock()
		return latest.UTC().Truncate(time.Millisecond), nil
	}
	var ms int64
	err := t.Row(ctx, `SELECT `+t.DB.Engine.Clock, nil, &ms)
	return FromMS(ms), err
}

// A steadyClock keeps the time from going backwards if a clock is set back a little, so
// that a grant that has ended does not become valid again.
type steadyClock struct{ last atomic.Int64 } // the last time that after returned, in milliseconds

// after returns now, or the latest time that it has returned if that is later by at most
// maxStepBack.
func (c *steadyClock) after(now time.Time) time.Time {
	ms := now.UnixMilli()
	for {
		last := c.last.Load()
		if behind := last - ms; behind > 0 && behind <= maxStepBack.Milliseconds() {
			return FromMS(last)
		}
		if ms == last || c.last.CompareAndSwap(last, ms) {
			return now
		}
	}
}
