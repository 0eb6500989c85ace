package event

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// liveEvery is how often the outbox is read while somebody watches it.
const liveEvery = 250 * time.Millisecond

// A live reads the outbox once for all who watch it, and only while somebody does.
type live struct {
	store *eventdb.Store

	mu       sync.Mutex
	watchers int
	now      *reading // nil if nobody watches
}

// A reading reads the outbox from one moment on.
type reading struct {
	cache *cache
	ready chan struct{} // is closed when cache, or err, is set
	stop  context.CancelFunc

	mu    sync.Mutex
	grown chan struct{} // is closed when there are new events
	err   error         // why it has ended
}

// join returns a reading that goes on until leave is called. The events that follow its
// head are all that are committed from now on.
func (l *live) join(ctx context.Context) (r *reading, leave func(), err error) {
	l.mu.Lock()
	if l.now == nil || l.now.failure() != nil {
		in, stop := context.WithCancel(context.WithoutCancel(ctx))
		l.now = &reading{ready: make(chan struct{}), grown: make(chan struct{}), stop: stop}
		l.watchers = 0
		go l.now.run(in, l.store)
	}
	r = l.now
	l.watchers++
	l.mu.Unlock()
	leave = func() { l.leave(r) }
	select {
	case <-r.ready:
		err = r.failure()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return r, leave, nil
}

func (l *live) leave(r *reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != r {
		return // it has failed, and others have begun anew
	}
	if l.watchers--; l.watchers == 0 {
		r.stop()
		l.now = nil
	}
}

func (r *reading) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// next returns up to n events after the one numbered seq, up to which one it has looked,
// and a channel that is closed when there may be more.
func (r *reading) next(ctx context.Context, seq int64, n int) (_ []*entry, at int64, more <-chan struct{}, _ error) {
	r.mu.Lock()
	grown, err := r.grown, r.err
	r.mu.Unlock()
	if err != nil {
		return nil, seq, nil, err
	}
	events, at, err := r.cache.next(ctx, seq, n)
	return events, at, grown, err
}

// run reads until ctx ends, or the history of the database changes, in which events have
// other numbers.
func (r *reading) run(ctx context.Context, s *eventdb.Store) {
	history := s.History()
	tail, err := settled(ctx, s, func() error { return nil })
	if err == nil {
		r.cache = &cache{store: s, after: tail.At(), head: tail.At()}
	}
	r.end(err)
	close(r.ready)
	for err == nil && ctx.Err() == nil {
		if s.History() != history {
			err = fault.New(fault.Unavailable, "Unavailable: the database was replaced; watch again")
			break
		}
		events, failed := tail.Next(ctx, readChunk)
		if failed == nil && len(events) > 0 { // what cannot be read now is read later
			r.cache.add(events)
			r.grow()
		}
		if len(events) < readChunk {
			sleep(ctx, liveEvery)
		}
	}
	r.end(err)
	r.grow()
}

func (r *reading) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *reading) grow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.grown)
	r.grown = make(chan struct{})
}

// settled returns a tail at the end of the outbox, when every event up to there is visible. It
// calls meanwhile as long as it waits.
func settled(ctx context.Context, s *eventdb.Store, meanwhile func() error) (*store.Tail, error) {
	last, err := s.LastEvent(ctx)
	if err != nil {
		return nil, err
	}
	tail, err := s.Tail(ctx, last)
	for err == nil {
		var all bool
		if all, err = tail.Complete(ctx); all {
			return tail, nil
		}
		if err == nil {
			sleep(ctx, pollEvery)
			err = cmp.Or(ctx.Err(), meanwhile())
		}
	}
	return nil, err
}
