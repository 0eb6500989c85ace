package event

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// readEvery is the interval between reads of the outbox while there are watchers.
const readEvery = 250 * time.Millisecond

// A sharedReader reads the outbox once for all watchers, and only while there are watchers.
type sharedReader struct {
	store *eventdb.Store

	mu       sync.Mutex
	watchers int
	current  *outboxReader // the running reader; nil if there are no watchers
}

// An outboxReader reads the events that are committed after its start.
type outboxReader struct {
	cache *cache
	ready chan struct{} // closed when cache or err is set
	stop  context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when there are new events
	err     error         // the error that ended the reader; nil while it runs
}

// join returns a reader that runs at least until leave is called. Every event that is committed after join returns
// follows the head of the reader.
func (l *sharedReader) join(ctx context.Context) (r *outboxReader, leave func(), err error) {
	l.mu.Lock()
	if l.current == nil || l.current.failure() != nil {
		in, stop := context.WithCancel(context.WithoutCancel(ctx))
		l.current = &outboxReader{ready: make(chan struct{}), changed: make(chan struct{}), stop: stop}
		l.watchers = 0
		go l.current.run(in, l.store)
	}
	r = l.current
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

func (l *sharedReader) leave(r *outboxReader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != r {
		return // r has failed, and another watcher has already started a new reader
	}
	if l.watchers--; l.watchers == 0 {
		r.stop()
		l.current = nil
	}
}

func (r *outboxReader) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// next returns up to n events after the sequence number seq, the sequence number up to which it has scanned, and a
// channel that is closed when there may be new events.
func (r *outboxReader) next(
	ctx context.Context, seq int64, n int,
) (_ []*entry, scanned int64, _ <-chan struct{}, _ error) {
	r.mu.Lock()
	changed, err := r.changed, r.err
	r.mu.Unlock()
	if err != nil {
		return nil, seq, nil, err
	}
	events, scanned, err := r.cache.next(ctx, seq, n)
	return events, scanned, changed, err
}

// run reads events until ctx ends or the history of the database changes (see store.DB.History). After such a change,
// for example a restore, events have other sequence numbers.
func (r *outboxReader) run(ctx context.Context, s *eventdb.Store) {
	history := s.History()
	tail, err := tailAtEnd(ctx, s, func() error { return nil })
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
		if failed == nil && len(events) > 0 { // after an error, the next read returns the same events
			r.cache.add(events)
			r.notify()
		}
		if len(events) < readChunk {
			sleep(ctx, readEvery)
		}
	}
	r.end(err)
	r.notify()
}

func (r *outboxReader) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *outboxReader) notify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// tailAtEnd returns a tail at the end of the outbox. It waits until every event before the tail is visible, calls
// onWait after each pause, and returns the error of onWait.
func tailAtEnd(ctx context.Context, s *eventdb.Store, onWait func() error) (*outbox.Tail, error) {
	last, err := outbox.Last(ctx, s.DB)
	if err != nil {
		return nil, err
	}
	tail, err := outbox.NewTail(ctx, s.DB, last)
	for err == nil {
		var complete bool
		if complete, err = tail.Complete(ctx); complete {
			return tail, nil
		}
		if err == nil {
			sleep(ctx, pollEvery)
			err = cmp.Or(ctx.Err(), onWait())
		}
	}
	return nil, err
}
