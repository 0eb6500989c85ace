package protocol

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

const (
	followLease = "follow"
	watchLife   = 15 * time.Second
	watchRenew  = 5 * time.Second

	followPoll  = 500 * time.Millisecond
	watchEvents = 1000
	saveEvery   = 30 * time.Second // the cursor, while nothing is told
	maxBehind   = 100_000          // events; if there are more, every follower is told instead
)

// RunFollowing keeps repos equal to those that they follow until ctx ends: it tells followers that their source has changed,
// which one of all replicas does, and does what is due.
func (r *Registry) RunFollowing(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { r.watchSources(ctx) })
	all.Go(func() {
		for ; ctx.Err() == nil; rest(ctx, followPoll) {
			if _, _, err := r.Follow(ctx); err != nil && ctx.Err() == nil {
				r.config.Log.WarnContext(ctx, "repos are not made equal to those that they follow", "err", err)
				rest(ctx, watchRenew)
			}
		}
	})
	all.Wait()
	return nil
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchSources tells followers of changes while this replica has the lease.
func (r *Registry) watchSources(ctx context.Context) {
	id := rand.Text()
	for ; ctx.Err() == nil; rest(ctx, watchRenew) {
		w := sourceWatch{Registry: r, id: id, history: r.store.History()}
		has, err := w.lease(ctx)
		if err == nil && has {
			err = w.watch(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.config.Log.WarnContext(ctx, "repos are not told that the one which they follow has changed", "err", err)
		}
	}
	if r.store.Replicated() {
		_ = r.store.ReleaseLease(context.WithoutCancel(ctx), followLease, id) // it ends by itself
	}
}

// A sourceWatch reads events, and makes those repos due whose source has changed. A push knows nothing of it.
type sourceWatch struct {
	*Registry
	id      string
	history int64 // of the database: in another one, events have other numbers
	tail    *outbox.Tail
	saved   int64
}

// lease reports whether this replica watches.
func (w *sourceWatch) lease(ctx context.Context) (bool, error) {
	if !w.store.Replicated() {
		return true, nil
	}
	return w.store.AcquireLease(ctx, followLease, w.id, watchLife)
}

// watch tells followers until the lease is lost, the history of the database changes, or ctx ends.
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
		n, err := w.tell(ctx)
		if err != nil {
			return err
		}
		if at := w.tail.At(); at != w.saved && time.Since(saved) >= saveEvery {
			saved = time.Now()
			if err := w.save(ctx, []resource.UID{}); err != nil {
				return err
			}
		}
		if n < watchEvents {
			rest(ctx, followPoll)
		}
	}
	return nil
}

// begin starts where whoever watched before has stopped. If that is not known, or too long ago, every follower is told.
func (w *sourceWatch) begin(ctx context.Context) error {
	at, err := w.sourceStore.FollowCursor(ctx)
	if err != nil {
		return err
	}
	last, err := w.store.LastEvent(ctx)
	if err != nil {
		return err
	}
	unknown := at < 0 || at > last || last-at > maxBehind
	if unknown {
		at = last
	}
	w.saved = at
	if w.tail, err = outbox.NewTail(ctx, w.store.DB, at); err != nil || !unknown {
		return err
	}
	return w.save(ctx, nil)
}

// save makes the followers of some repos due, or all if that is nil, and remembers how far the events were read.
func (w *sourceWatch) save(ctx context.Context, changed []resource.UID) error {
	if has, err := w.sourceStore.HasFollowers(ctx); err != nil || !has {
		return err
	}
	w.saved = w.tail.At()
	return w.sourceStore.TellFollowers(ctx, changed, w.saved)
}

// tell reads some events, and returns how many. Without followers it passes over them.
func (w *sourceWatch) tell(ctx context.Context) (n int, _ error) {
	has, err := w.sourceStore.HasFollowers(ctx)
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
		case resource.RegistryPush, resource.RepoDeleted, resource.RepoCreated: // the last if it is restored
			changed[e.Subject] = true
		}
	}
	if len(changed) == 0 || !has {
		return len(events), nil
	}
	var all []resource.UID
	for repo := range changed {
		all = append(all, repo)
	}
	return len(events), w.save(ctx, all)
}
