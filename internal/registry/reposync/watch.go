package reposync

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

const (
	watchLease   = "follow" // name of the lease in the database
	leaseTime    = 15 * time.Second
	watchRenew   = 5 * time.Second
	pollInterval = 500 * time.Millisecond
	watchEvents  = 1000             // number of events that are read at a time
	saveInterval = 30 * time.Second // time between saves of the cursor while no source changes
	maxBehind    = 100_000          // unread events; if there are more, every repo with a source becomes due instead
)

// watchSources makes repos whose source has changed due, while this replica holds the lease.
func (s *Syncer) watchSources(ctx context.Context) {
	id := rand.Text()
	for ; ctx.Err() == nil; pause(ctx, watchRenew) {
		w := sourceWatch{Syncer: s, id: id, history: s.store.History()}
		has, err := w.lease(ctx)
		if err == nil && has {
			err = w.watch(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "changes of the sources of repos are not watched", "err", err)
		}
	}
	if s.store.Replicated() {
		_ = lease.Release(context.WithoutCancel(ctx), s.store.DB, watchLease, id) // if this fails, the lease expires
	}
}

// A sourceWatch reads events, and makes repos whose source has changed due. Pushes do not wait for it.
type sourceWatch struct {
	*Syncer
	id      string
	history int64 // DB.History when watching began; after it changes, events may have other numbers
	tail    *outbox.Tail
	saved   int64 // number of the last event that was read, as stored in the database
}

// lease acquires or renews the lease. It reports whether this replica holds it.
func (w *sourceWatch) lease(ctx context.Context) (bool, error) {
	if !w.store.Replicated() {
		return true, nil
	}
	return lease.Acquire(ctx, w.store.DB, watchLease, w.id, leaseTime)
}

// watch reads events until the lease is lost, DB.History changes, or ctx ends.
func (w *sourceWatch) watch(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	renewed, saved := time.Now(), time.Now()
	for ctx.Err() == nil && w.store.History() == w.history {
		if time.Since(renewed) >= watchRenew {
			renewed = time.Now()
			if has, err := w.lease(ctx); err != nil || !has {
				return err
			}
		}
		n, err := w.readEvents(ctx)
		if err != nil {
			return err
		}
		if w.tail.At() != w.saved && time.Since(saved) >= saveInterval {
			saved = time.Now()
			if err := w.save(ctx, []resource.UID{}); err != nil {
				return err
			}
		}
		if n < watchEvents {
			pause(ctx, pollInterval)
		}
	}
	return nil
}

// begin prepares reading after the last event that any replica has read. If that event is unknown or too old, all
// repos with a source become due.
func (w *sourceWatch) begin(ctx context.Context) error {
	cursor, err := w.sources.FollowCursor(ctx)
	if err != nil {
		return err
	}
	last, err := outbox.Last(ctx, w.store.DB)
	if err != nil {
		return err
	}
	unknown := cursor < 0 || cursor > last || last-cursor > maxBehind
	if unknown {
		cursor = last
	}
	w.saved = cursor
	if w.tail, err = outbox.NewTail(ctx, w.store.DB, cursor); err != nil || !unknown {
		return err
	}
	return w.save(ctx, nil)
}

// save stores the cursor, and makes the repos that sync from the repos in changed due. If changed is nil, it makes
// all repos with a source due.
func (w *sourceWatch) save(ctx context.Context, changed []resource.UID) error {
	if has, err := w.sources.HasFollowers(ctx); err != nil || !has {
		return err
	}
	w.saved = w.tail.At()
	return w.sources.TellFollowers(ctx, changed, w.saved)
}

// readEvents reads the next events and returns their number. If no repo has a source, it skips events without reading
// them.
func (w *sourceWatch) readEvents(ctx context.Context) (n int, _ error) {
	has, err := w.sources.HasFollowers(ctx)
	if err != nil {
		return 0, err
	}
	if !has {
		n, whole, err := w.tail.Skip(ctx, watchEvents, "")
		if err != nil || whole {
			return n, err
		}
	}
	events, err := w.tail.Next(ctx, watchEvents)
	if err != nil {
		return 0, err
	}
	changed := map[resource.UID]bool{}
	for _, e := range events {
		switch e.Type {
		case resource.TagCreated, resource.TagDeleted:
			changed[e.Subject.Parent()] = true
		case resource.RegistryPush, resource.RepoDeleted, resource.RepoCreated: // a restored repo has a RepoCreated event
			changed[e.Subject] = true
		}
	}
	if len(changed) == 0 || !has {
		return len(events), nil
	}
	var repos []resource.UID
	for repo := range changed {
		repos = append(repos, repo)
	}
	return len(events), w.save(ctx, repos)
}
