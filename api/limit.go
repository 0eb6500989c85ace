package api

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
)

// A limit is a context that ends at a time, as one of context.WithDeadline does,
// but starts no timer before somebody asks when it is over. Most calls are
// answered from memory, and nobody asks.
type limit struct {
	context.Context // the caller's
	at              time.Time

	timed atomic.Pointer[timed] // once somebody has asked
	mu    sync.Mutex
	over  bool
}

// timed is the context that does the work, in its usual way.
type timed struct {
	context.Context
	cancel context.CancelFunc
}

// errOverdue is why a call has ended that took longer than it may.
var errOverdue = errors.New("the call has taken as long as one may")

// overdue returns err; if it is that the time of ctx is up, and that was our
// limit, the caller is told that something here did not answer. To have
// exceeded a deadline would be the caller's doing.
func overdue(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errOverdue) {
		return fault.Overdue(defaultDeadline, err)
	}
	return err
}

// withDeadline gives a call a limit, unless its own deadline comes before that: a
// caller can ask for less time than a call may take, but not for more.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(defaultDeadline)
	if at, ok := ctx.Deadline(); ok && !at.After(end) {
		return ctx, func() {}
	}
	l := &limit{Context: ctx, at: end}
	return l, l.end
}

func (l *limit) start() *timed {
	if t := l.timed.Load(); t != nil {
		return t
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.timed.Load(); t != nil {
		return t
	}
	ctx, cancel := context.WithDeadlineCause(l.Context, l.at, errOverdue)
	if l.over {
		cancel()
	}
	t := &timed{ctx, cancel}
	l.timed.Store(t)
	return t
}

// end is for when the call is over, and nobody is to work for it any more.
func (l *limit) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if t := l.timed.Load(); t != nil {
		t.cancel()
	}
}

func (l *limit) Deadline() (time.Time, bool) { return l.at, true }

func (l *limit) Done() <-chan struct{} { return l.start().Done() }

func (l *limit) Err() error { return l.start().Err() }

// Value asks the context that does the work, so that contexts made of this one
// find it and need no goroutine to follow it.
func (l *limit) Value(key any) any {
	if t := l.timed.Load(); t != nil {
		return t.Value(key)
	}
	return l.Context.Value(key)
}
