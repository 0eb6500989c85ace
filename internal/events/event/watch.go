package event

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	watchTime  = 10 * time.Minute // that one call lasts, so that callers find their way to other replicas
	watchBeat  = 15 * time.Second // without a change until the caller is told that there was none
	watchChunk = 100
)

var watchList = page.List{Kind: "audit live", Fields: []string{"time"}, Default: page.Order{Field: "time"}}

// A WatchUpdate is what somebody who watches is told: a change, or that there was none up to a
// position.
type WatchUpdate struct {
	Event    *resource.Event
	Position string
}

// Watch tells of the changes that Audit would return, as they are made, the oldest first. It
// begins after a position, or now, and tells of no change at first, and whenever there was none
// for a while. It returns nil after some minutes, an error of tell, and fault.FailedPrecondition if
// not all events after the position are kept.
func (s *Service) Watch(ctx context.Context, f AuditFilter, position string, tell func(WatchUpdate) error) error {
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return err
	}
	f, req, err := page.Resume(s.pages, watchList, f, page.Params{Token: position})
	if err != nil {
		return errPosition(err)
	}
	if req.Expired {
		return errForgotten()
	}
	r, leave, err := s.live.join(ctx)
	if err != nil {
		return err
	}
	defer leave()
	w := &watcher{Service: s, caller: caller, filter: f, reading: r, tell: tell}
	w.token = func(at page.Cursor) string { return s.pages.Next(req, at) }
	if err := w.seek(ctx, req.After); err != nil {
		return err
	}
	return w.run(ctx)
}

// errPosition returns an error about a page token as one about a position.
func errPosition(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok && len(f.Fields) == 1 && f.Fields[0].Subject == "page_token" {
		return fault.Field("position", "%s", f.Fields[0].Description)
	}
	return err
}

func errForgotten() error {
	return fault.Unmet("POSITION", "not all changes since this position are kept; watch without one")
}

// A watcher is one call of Watch.
type watcher struct {
	*Service
	caller  authz.Caller
	filter  AuditFilter
	reading *reading
	tell    func(WatchUpdate) error
	token   func(page.Cursor) string
	at      page.Cursor // the number and the mark of the last event that was looked at
}

// mark returns what tells an event from others in a position. It is not the id, because the event
// may be one of another organization.
func mark(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// seek goes to a position, or to the end. The event at the position must still be there, with
// the same id: another one is of another history of the database.
func (w *watcher) seek(ctx context.Context, to *page.Cursor) error {
	if to == nil {
		w.at.Number = w.reading.head()
		events, err := w.store.Events(ctx, w.at.Number-1, 1)
		if len(events) > 0 && events[0].Seq == w.at.Number {
			w.at.Key = mark(events[0].ID)
		}
		return err
	}
	w.at = *to
	if to.Key == "" { // before the first event
		return nil
	}
	events, err := w.store.Events(ctx, to.Number-1, 1)
	if err == nil && (len(events) == 0 || mark(events[0].ID) != to.Key) {
		return errForgotten()
	}
	return err
}

func (w *watcher) run(ctx context.Context) error {
	over := time.After(watchTime)
	beat := time.NewTicker(watchBeat)
	defer beat.Stop()
	if err := w.tell(WatchUpdate{Position: w.token(w.at)}); err != nil {
		return err
	}
	for {
		more, err := w.pass(ctx, beat)
		if err != nil {
			return err
		}
		select {
		case <-more:
		case <-beat.C:
			if err := w.tell(WatchUpdate{Position: w.token(w.at)}); err != nil {
				return err
			}
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pass tells of all changes that there are, and returns a channel that is closed when there
// may be more.
func (w *watcher) pass(ctx context.Context, beat *time.Ticker) (<-chan struct{}, error) {
	for {
		events, at, more, err := w.reading.next(ctx, w.at.Number, watchChunk)
		if err != nil {
			return nil, err
		}
		if why := w.authz.Revoked(w.caller); why != "" {
			return nil, fault.New(fault.Unauthenticated, "Unauthenticated: %s", why)
		}
		for _, e := range events {
			w.at = page.Cursor{Number: e.Seq, Key: mark(e.ID)}
			if !w.in(e.Event) || !w.filter.matches(e.Event) || !w.mayAudit(ctx, e.Event) {
				continue
			}
			if err := w.tell(WatchUpdate{&e.Event, w.token(w.at)}); err != nil {
				return nil, err
			}
			beat.Reset(watchBeat)
		}
		if len(events) == 0 && at == w.at.Number || len(events) < watchChunk {
			return more, nil
		}
	}
}

// in reports whether an event happened in the group of the filter, as the store decides it.
func (w *watcher) in(e resource.Event) bool {
	g := w.filter.Group
	return g == "" || g.Covers(e.Group) || g.Covers(e.Subject) && e.Subject != g
}

// head returns the number of the last event that was read.
func (r *reading) head() int64 {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	return r.cache.head
}
