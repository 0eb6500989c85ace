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
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

const (
	watchTime  = 10 * time.Minute // duration of one call; callers then reconnect, so that they spread over new replicas
	watchBeat  = 15 * time.Second // time without a change after which an empty update is sent
	watchChunk = 100              // maximum number of events per read
)

var watchList = page.List{Kind: "audit live", Fields: []string{"time"}, Default: page.Order{Field: "time"}}

// A WatchUpdate is an update for a watcher: a change, or an empty update if there was no change up to a position.
type WatchUpdate struct {
	Event    *resource.Event // nil in an empty update
	Position string          // position after the event, to continue from
}

// Watch calls send for the changes that Audit would return, when they are made, oldest first. It starts after a
// position, or at the end of the outbox if position is empty. It sends an empty update first, and again after
// watchBeat without a change.
//
// It returns nil after watchTime, the error of send, or fault.FailedPrecondition if the outbox no longer contains all
// events after the position.
func (s *Service) Watch(ctx context.Context, f AuditFilter, position string, send func(WatchUpdate) error) error {
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return err
	}
	f, req, err := page.Resume(s.pages, watchList, f, page.Params{Token: position})
	if err != nil {
		return errPosition(err)
	}
	if req.Expired {
		return errPositionExpired()
	}
	r, leave, err := s.outbox.join(ctx)
	if err != nil {
		return err
	}
	defer leave()
	w := &watcher{Service: s, caller: caller, filter: f, reader: r, send: send}
	w.token = func(c page.Cursor) string { return s.pages.Next(req, c) }
	if err := w.seek(ctx, req.After); err != nil {
		return err
	}
	return w.run(ctx)
}

// errPosition turns an error about a page token into an error about a position.
func errPosition(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok && len(f.Fields) == 1 && f.Fields[0].Subject == "page_token" {
		return fault.Field("position", "%s", f.Fields[0].Description)
	}
	return err
}

func errPositionExpired() error {
	return fault.Unmet("POSITION", "some changes since this position are no longer stored; watch without a position")
}

// A watcher is one call of Watch.
type watcher struct {
	*Service
	caller authz.Caller
	filter AuditFilter
	reader *outboxReader
	send   func(WatchUpdate) error
	token  func(page.Cursor) string
	cursor page.Cursor // sequence number and mark of the last scanned event
}

// mark returns a hash of an event ID, by which a position identifies its event. A position does not contain the ID
// itself, because the event may belong to another organization.
func mark(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// seek moves the watcher to a position, or to the end of the outbox if to is nil. It returns fault.FailedPrecondition
// unless the outbox contains the event at the position with the same ID. If the ID differs, the database was replaced
// since, for example by a restore.
func (w *watcher) seek(ctx context.Context, to *page.Cursor) error {
	if to == nil {
		w.cursor.Number = w.reader.head()
		events, err := outbox.Read(ctx, w.store.DB, w.cursor.Number-1, 1)
		if len(events) > 0 && events[0].Seq == w.cursor.Number {
			w.cursor.Key = mark(events[0].ID)
		}
		return err
	}
	w.cursor = *to
	if to.Key == "" { // the position is before the first event
		return nil
	}
	events, err := outbox.Read(ctx, w.store.DB, to.Number-1, 1)
	if err == nil && (len(events) == 0 || mark(events[0].ID) != to.Key) {
		return errPositionExpired()
	}
	return err
}

func (w *watcher) run(ctx context.Context) error {
	deadline := time.After(watchTime)
	beat := time.NewTicker(watchBeat)
	defer beat.Stop()
	if err := w.send(WatchUpdate{Position: w.token(w.cursor)}); err != nil {
		return err
	}
	for {
		changed, err := w.sendNew(ctx, beat)
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-beat.C:
			if err := w.send(WatchUpdate{Position: w.token(w.cursor)}); err != nil {
				return err
			}
		case <-deadline:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendNew sends all changes up to the end of the outbox, and returns a channel that is closed when there may be more.
// It returns fault.Unauthenticated if the caller's access was revoked.
func (w *watcher) sendNew(ctx context.Context, beat *time.Ticker) (<-chan struct{}, error) {
	for {
		events, scanned, changed, err := w.reader.next(ctx, w.cursor.Number, watchChunk)
		if err != nil {
			return nil, err
		}
		if why := w.authz.Revoked(w.caller); why != "" {
			return nil, fault.New(fault.Unauthenticated, "Unauthenticated: %s", why)
		}
		for _, e := range events {
			w.cursor = page.Cursor{Number: e.Seq, Key: mark(e.ID)}
			if !w.inGroup(e.Event) || !w.filter.matches(e.Event) || !w.mayAudit(ctx, e.Event) {
				continue
			}
			if err := w.send(WatchUpdate{&e.Event, w.token(w.cursor)}); err != nil {
				return nil, err
			}
			beat.Reset(watchBeat)
		}
		if len(events) == 0 && scanned == w.cursor.Number || len(events) < watchChunk {
			return changed, nil
		}
	}
}

// inGroup reports whether an event happened in the group of the filter, by the same rule as the store.
func (w *watcher) inGroup(e resource.Event) bool {
	g := w.filter.Group
	return g == "" || g.Covers(e.Group) || g.Covers(e.Subject) && e.Subject != g
}

// head returns the sequence number of the last event that was read.
func (r *outboxReader) head() int64 {
	r.cache.mu.Lock()
	defer r.cache.mu.Unlock()
	return r.cache.head
}
