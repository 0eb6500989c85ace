// Package watch hands the events of committed changes to a task, on one replica at a time.
package watch

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

const (
	leaseTime    = 15 * time.Second
	renewTime    = 5 * time.Second
	pollInterval = 500 * time.Millisecond
	saveInterval = 30 * time.Second // time between saves of the cursor while no event changes anything
	eventsAtOnce = 500
	maxBehind    = 100_000 // unread events; if there are more, Missed is called instead
)

// A Reader handles events. A Watch calls its methods one after the other. If a method returns an error, the Watch
// reports it, and continues a little later after the last stored cursor.
type Reader interface {
	// Wanted reports whether anybody needs events. If not, they are passed over, and no cursor is stored.
	Wanted(ctx context.Context) (bool, error)

	// Cursor returns the stored number of the last event that any replica has handled, or -1 if there is none.
	Cursor(ctx context.Context) (seq int64, err error)

	// Save stores a cursor.
	Save(ctx context.Context, seq int64) error

	// Handle handles events up to the number seq. It reports whether it has stored seq as the cursor. After a crash, it
	// may get events again.
	Handle(ctx context.Context, events []resource.Event, seq int64) (saved bool, err error)

	// Missed handles that any event up to seq may not have been handled, and stores seq as the cursor.
	Missed(ctx context.Context, seq int64) error
}

// A Watch hands the events of a database to a Reader, in order. Writers do not wait for it.
type Watch struct {
	DB     *store.DB
	Lease  string // name of the lease in the database; only its holder reads
	Reader Reader
	Log    *slog.Logger

	id      string
	history int64 // DB.History when reading began; after it changes, events may have other numbers
	tail    *outbox.Tail
	saved   int64 // the stored cursor
}

// Run reads events until ctx ends, while this replica holds the lease.
func (w *Watch) Run(ctx context.Context) {
	w.id = rand.Text()
	for ; ctx.Err() == nil; Pause(ctx, renewTime) {
		has, err := w.acquire(ctx)
		if err == nil && has {
			err = w.read(ctx)
		}
		if err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "changes are not watched", "lease", w.Lease, "err", err)
		}
	}
	if w.DB.Replicated() {
		_ = lease.Release(context.WithoutCancel(ctx), w.DB, w.Lease, w.id) // if this fails, the lease expires
	}
}

// acquire acquires or renews the lease. It reports whether this replica holds it.
func (w *Watch) acquire(ctx context.Context) (bool, error) {
	if !w.DB.Replicated() {
		return true, nil
	}
	return lease.Acquire(ctx, w.DB, w.Lease, w.id, leaseTime)
}

// read reads events until the lease is lost, DB.History changes, or ctx ends.
func (w *Watch) read(ctx context.Context) error {
	w.history = w.DB.History()
	if err := w.begin(ctx); err != nil {
		return err
	}
	renewed, saved := time.Now(), time.Now()
	for ctx.Err() == nil && w.DB.History() == w.history {
		if time.Since(renewed) >= renewTime {
			renewed = time.Now()
			if has, err := w.acquire(ctx); err != nil || !has {
				return err
			}
		}
		n, err := w.next(ctx)
		if err != nil {
			return err
		}
		if w.tail.At() != w.saved && time.Since(saved) >= saveInterval {
			saved = time.Now()
			if err := w.save(ctx); err != nil {
				return err
			}
		}
		if n < eventsAtOnce {
			Pause(ctx, pollInterval)
		}
	}
	return nil
}

// begin prepares reading after the last event that any replica has handled. If that event is unknown or too old, it
// calls Missed.
func (w *Watch) begin(ctx context.Context) error {
	cursor, err := w.Reader.Cursor(ctx)
	if err != nil {
		return err
	}
	last, err := outbox.Last(ctx, w.DB)
	if err != nil {
		return err
	}
	unknown := cursor < 0 || cursor > last || last-cursor > maxBehind
	if unknown {
		cursor = last
	}
	w.saved = cursor
	if w.tail, err = outbox.NewTail(ctx, w.DB, cursor); err != nil || !unknown {
		return err
	}
	return w.missed(ctx)
}

// save stores the number of the last event that was read. It stores nothing if nobody needs events, because begin then
// needs no cursor.
func (w *Watch) save(ctx context.Context) error {
	if wanted, err := w.Reader.Wanted(ctx); err != nil || !wanted {
		return err
	}
	w.saved = w.tail.At()
	return w.Reader.Save(ctx, w.saved)
}

// missed calls Missed if anybody needs events.
func (w *Watch) missed(ctx context.Context) error {
	if wanted, err := w.Reader.Wanted(ctx); err != nil || !wanted {
		return err
	}
	w.saved = w.tail.At()
	return w.Reader.Missed(ctx, w.saved)
}

// next handles the next events and returns their number.
func (w *Watch) next(ctx context.Context) (n int, _ error) {
	wanted, err := w.Reader.Wanted(ctx)
	if err != nil {
		return 0, err
	}
	if !wanted {
		return w.pass(ctx)
	}
	events, err := w.tail.Next(ctx, eventsAtOnce)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	saved, err := w.Reader.Handle(ctx, events, w.tail.At())
	if err == nil && saved {
		w.saved = w.tail.At()
	}
	return len(events), err
}

// pass passes over the next events and returns their number. If somebody needs events by then, it calls Missed, because
// one of the events may be later than that.
func (w *Watch) pass(ctx context.Context) (n int, _ error) {
	n, whole, err := w.tail.Skip(ctx, eventsAtOnce, "")
	if err == nil && !whole {
		var events []resource.Event
		events, err = w.tail.Next(ctx, eventsAtOnce)
		n = len(events)
	}
	if err != nil || n == 0 {
		return n, err
	}
	return n, w.missed(ctx)
}

// Pause waits for d or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
