package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	jointCommits = 2                // at a time: one works while the disk syncs the other
	jointLimit   = 60 * time.Second // for one of them

	jointPatience = 5 * time.Millisecond // of those who are fewer than the ones under way
)

// joint commits transactions of PostgreSQL in which nothing waits for a
// statement. Those that come while others commit share the next commit, its
// round trip and its counters. It leaves when it is as large as the one under
// way, or when that has ended, or takes long: fewer and larger ones cost less.
// If the database refuses one of them, each is sent by itself.
type joint struct {
	s       *Store
	send    func(context.Context, ...*tx) error // runs them as one
	mu      sync.Mutex
	waiting []*parcel
	running int  // commits
	leaving int  // transactions in them
	soon    bool // those who wait will leave, at the latest
}

// A parcel is a transaction that is to be committed. Its error stands once done
// is closed.
type parcel struct {
	t    *tx
	err  error
	done chan struct{}
}

// errAlone says that a transaction is undone, and to be sent by itself.
var errAlone = errors.New("refused with others")

// commit returns when t is on disk, or refused. If ctx ends before, what becomes
// of t is not known.
func (j *joint) commit(ctx context.Context, t *tx) error {
	if len(t.rest)+len(t.events)+len(t.counts) == 0 {
		return nil
	}
	e := j.add(t)
	select {
	case <-e.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(e.err, errAlone) {
		return j.send(ctx, t)
	}
	return e.err
}

func (j *joint) add(t *tx) *parcel {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := &parcel{t: t, done: make(chan struct{})}
	j.waiting = append(j.waiting, e)
	j.depart(len(j.waiting) >= j.leaving)
	return e
}

// depart has those who wait leave, at once or before long: the commit under way
// may itself be waiting, for a lock.
func (j *joint) depart(now bool) {
	switch {
	case j.running == jointCommits || len(j.waiting) == 0: // one of them takes those who wait along
	case now:
		j.running++
		go j.work(j.next())
	case !j.soon:
		j.soon = true
		time.AfterFunc(jointPatience, func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.soon = false
			j.depart(true)
		})
	}
}

// work commits all, and then those who wait, as long as there are enough.
func (j *joint) work(all []*parcel) {
	for len(all) > 0 {
		err := j.settle(all)
		for _, e := range all {
			e.err = err
			close(e.done)
		}
		all = j.after(all)
	}
}

// after returns who leaves after these have. If nobody does, a commit less is
// running.
func (j *joint) after(all []*parcel) []*parcel {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.leaving -= len(all)
	if len(j.waiting) > 0 && len(j.waiting) >= j.leaving {
		return j.next()
	}
	j.running--
	j.depart(false)
	return nil
}

// next returns those who leave.
func (j *joint) next() []*parcel {
	n := min(len(j.waiting), maxBatch)
	all := j.waiting[:n:n]
	j.waiting = j.waiting[n:]
	j.leaving += n
	return all
}

func (j *joint) settle(all []*parcel) error {
	ctx, cancel := context.WithTimeout(context.Background(), jointLimit)
	defer cancel()
	var ts []*tx
	for _, e := range all {
		ts = append(ts, e.t)
	}
	err := j.send(ctx, ts...)
	if err != nil && len(all) > 1 && undone(err) {
		return errAlone
	}
	return j.s.inOurTime(err)
}

// undone tells whether an error means that nothing of a transaction stands, for
// certain: the data were refused, or a lock.
func undone(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code[:2] {
	case "22", "23", "40", "55":
		return true
	}
	return false
}

// merged makes one statement of those that do the same one after the other.
func merged(all []deferred) (out []deferred) {
	for len(all) > 0 {
		n := 1
		for all[0].many != nil && n < len(all) && all[n].text == all[0].text {
			n++
		}
		if n > 1 {
			out = append(out, all[0].many(all[:n]))
		} else {
			out = append(out, all[0])
		}
		all = all[n:]
	}
	return out
}

// column is what statements have as the argument of a number, nil for NULL.
func column[T any](all []deferred, i int) []*T {
	out := make([]*T, len(all))
	for n, d := range all {
		if v, ok := d.args[i].(T); ok {
			out[n] = &v
		}
	}
	return out
}
