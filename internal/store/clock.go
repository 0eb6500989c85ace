package store

import (
	"context"
	"sync/atomic"
	"time"
)

// maxStepBack is how far a clock may be set back without time running back here. A clock that is set back further
// was wrong before.
const maxStepBack = 5 * time.Minute

// clockRounding is how far a time of the database may be from the one that it tells, which has no parts of a millisecond.
const clockRounding = time.Millisecond

// A clockReading is a time of the database, and when it was asked for and received, by the clock of this process.
type clockReading struct{ at, asked, received time.Time }

// Clock returns the time of the database, which decides when something begins and ends that is granted for a time:
// it is not before earliest and not after latest. What begins is compared with earliest and what ends with latest, so
// that nothing counts too early or too late. The two are as far apart as the last heartbeat took and its time was
// rounded. The clocks of replicas need not agree, and may be set while they run. If the time is not known, nothing has
// begun and everything is over.
//
// SQLite has the clock of this process.
func (s *DB) Clock() (earliest, latest time.Time) {
	if !s.Engine.Postgres {
		now := s.steady.after(s.Now())
		return now, now
	}
	r := s.replica.clock.Load()
	if r == nil {
		return time.Time{}, FromMS(1<<62 - 1)
	}
	now := time.Now()
	return r.at.Add(now.Sub(r.received) - clockRounding), s.steady.after(r.at.Add(now.Sub(r.asked) + clockRounding))
}

// Clock returns the time of the database.
func (t *Tx) Clock(ctx context.Context) (time.Time, error) {
	if !t.DB.Engine.Postgres {
		_, now := t.DB.Clock()
		return now.UTC().Truncate(time.Millisecond), nil
	}
	var ms int64
	err := t.Row(ctx, `SELECT `+t.DB.Engine.Clock, nil, &ms)
	return FromMS(ms), err
}

// A steadyClock keeps time from running back when a clock is set back a little, so that what is over stays over.
type steadyClock struct{ last atomic.Int64 } // in milliseconds

// after returns now, or the latest time that it has returned if that is a little later.
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
