package authz

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	pollEvery = 500 * time.Millisecond // leaves room in a lease for slow answers
	askLimit  = 2 * time.Second        // to ask for the newest revision
	readLimit = time.Minute            // to read changes, at worst everything
	stepLimit = 5 * time.Second        // for one statement that reads a change: a server that hangs may have a successor

	clockSkew = 5 * time.Minute // between replicas, at most
)

// RevocationMemory is how long the deletion of an identity is remembered. No token may live longer.
const RevocationMemory = 25 * time.Hour

// A follower is the state of following the store. Whoever advances the index
// holds sem, so that changes are applied one after the other and in order.
type follower struct {
	sem     chan struct{} // a lock whose acquisition a context can cancel
	applied atomic.Int64  // the revision of the index; written by the holder of sem
	history atomic.Int64  // the history of the database that this is a revision in; likewise
	lease   store.Lease   // while it lasts, writers elsewhere wait for this index

	// The rest is guarded by sem.
	failed          time.Time // when the last attempt failed; zero if it succeeded
	failure         error     // why
	revocationsRead time.Time
	pruned          time.Time
}

// Load reads every grant of db and follows the changes made through db from then
// on. Run follows the changes made elsewhere.
func Load(ctx context.Context, db *store.DB, log *slog.Logger) (*Checker, error) {
	c := &Checker{store: iamdb.New(db), past: grantlog.New(db), log: log, now: time.Now, shared: db.Replicated(), index: newIndex(db.Clock)}
	c.follow.sem = make(chan struct{}, 1)
	db.OnGrantChange(c.committed) // before the load, so that no change is missed
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	asked := c.now()
	newest, err := c.renew(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.reload(ctx, newest.History); err != nil {
		return nil, err
	}
	c.markCurrent(asked)
	return c, nil
}

// OnChange registers f to be called with every identity whose grants, relationship or existence have changed,
// here or elsewhere, before a check that depends on it is answered; "" means all of them. f must be quick. It
// is meant for caches of identities, and to be called before Run.
func (c *Checker) OnChange(f func(identity resource.UID)) { c.changed = append(c.changed, f) }

func (c *Checker) notify(identity resource.UID) {
	for _, f := range c.changed {
		f(identity)
	}
}

// Run follows the changes other replicas make until ctx ends, and then returns
// nil. It has nothing to do for a store that has no other writers.
func (c *Checker) Run(ctx context.Context) error {
	if !c.shared {
		<-ctx.Done()
		return nil
	}
	woken := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.listen(ctx, woken) })
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	away := false
	for {
		err := c.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !away:
			c.log.WarnContext(ctx, "grants cannot be followed; requests are refused until they can", "error", err)
		case err == nil && away:
			c.log.InfoContext(ctx, "grants are followed again")
		}
		away = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-woken:
		}
	}
}

// listen requests a poll whenever a replica announces a change. Polling alone
// would suffice; this shortens the time that replica waits.
func (c *Checker) listen(ctx context.Context, woken chan<- struct{}) {
	for ctx.Err() == nil {
		err := c.store.ListenGrants(ctx, func() {
			select {
			case woken <- struct{}{}:
			default: // a poll is requested already
			}
		})
		if err != nil {
			c.log.DebugContext(ctx, "listen for grant changes", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

// EnsureCurrent returns nil if the index holds every change that a writer has been told is committed, by this
// replica or another. If that is in doubt it asks the database, and returns fault.Unavailable if there is no
// answer. The checks that return an error call it; users of the others should call it first.
func (c *Checker) EnsureCurrent(ctx context.Context) error {
	if c.current() {
		return nil
	}
	asked := c.now()
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	if c.current() {
		return nil // another goroutine has caught up meanwhile
	}
	if c.follow.failed.After(asked) {
		return fault.Outage("the database", c.follow.failure)
	}
	if err := c.catchUp(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fault.Outage("the database", err)
	}
	return nil
}

func (c *Checker) current() bool {
	return !c.behind.Load() && (!c.shared || c.follow.lease.Valid(c.now()) && c.sameHistory())
}

// sameHistory reports whether the database still has the history that the index was read in.
func (c *Checker) sameHistory() bool { return c.follow.history.Load() == c.store.History() }

// has reports whether the index has a change that this process has committed.
func (c *Checker) has(revision int64) bool {
	return c.follow.applied.Load() >= revision && c.sameHistory()
}

// committed applies a change that this process has just committed, before the write returns to its caller. The
// change stands even if that caller has gone away; if it cannot be read now, the next check reads it.
func (c *Checker) committed(ctx context.Context, revision int64) {
	ctx = store.OutsideSimulation(context.WithoutCancel(ctx))
	if c.has(revision) {
		return
	}
	if c.lock(ctx) != nil {
		return // impossible: the context does not end
	}
	defer c.unlock()
	if c.has(revision) || !c.sameHistory() {
		return // another goroutine has applied it, or the next check reads everything
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	if err := c.advance(ctx); err != nil {
		c.behind.Store(true)
		c.log.WarnContext(ctx, "read changed grants", "error", err)
	}
}

func (c *Checker) poll(ctx context.Context) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	return c.catchUp(ctx)
}

// catchUp brings the index to the newest revision. It keeps a failure for those who wait for the same answer.
func (c *Checker) catchUp(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(store.OutsideSimulation(ctx), readLimit)
	defer cancel()
	err := c.sync(bounded)
	if err != nil && ctx.Err() == nil {
		c.follow.failed, c.follow.failure = c.now(), err
	}
	return err
}

// sync applies what is new and then announces it, because other replicas wait for it.
func (c *Checker) sync(ctx context.Context) error {
	for range 2 { // changes made in the meantime are announced
		asked := c.now()
		newest, err := c.renew(ctx)
		if err != nil {
			return err
		}
		applied := c.position()
		switch {
		case newest.History != applied.History || newest.Revision < applied.Revision:
			err = c.reload(ctx, newest.History)
		case newest.Revision > applied.Revision:
			err = c.advance(ctx)
		}
		if err != nil {
			return err
		}
		c.markCurrent(asked)
		if newest == applied {
			break
		}
	}
	return nil
}

// position returns what the index has reached.
func (c *Checker) position() store.Position {
	return store.Position{History: c.follow.history.Load(), Revision: c.follow.applied.Load()}
}

// renew tells other replicas which position the index has reached, and returns the newest one.
func (c *Checker) renew(ctx context.Context) (newest store.Position, _ error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return c.store.Renew(ctx, c.position())
}

// advance applies the changes since the revision of the index. It may read grants newer than the change it
// reads for; that is harmless, because the newer change will read them again.
func (c *Checker) advance(ctx context.Context) error {
	var changes []store.GrantChange
	var complete bool
	err := limited(ctx, func(ctx context.Context) (err error) {
		changes, complete, err = c.store.GrantChanges(ctx, c.follow.applied.Load())
		return err
	})
	if err != nil {
		return err
	}
	if !complete {
		return c.reload(ctx, c.follow.history.Load())
	}
	grants := map[resource.UID][]iamdb.Grant{}
	rolesChanged := false
	for _, change := range changes {
		rolesChanged = rolesChanged || change.Role != ""
		if change.Identity == "" {
			continue
		}
		if _, done := grants[change.Identity]; done {
			continue
		}
		err := limited(ctx, func(ctx context.Context) (err error) {
			grants[change.Identity], err = c.store.GrantsOf(ctx, change.Identity)
			return err
		})
		if err != nil {
			return err
		}
		rolesChanged = rolesChanged || !c.index.hasRolesOf(grants[change.Identity]) // only the holder of sem writes the index
	}
	var roles map[resource.UID]resource.Capabilities
	if rolesChanged {
		err := limited(ctx, func(ctx context.Context) (err error) {
			roles, err = c.store.RoleCapabilities(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(grants) > 0 { // one may have been deleted, and even created again
		if err := limited(ctx, c.readRevocations); err != nil {
			return err
		}
	}
	c.apply(grants, roles)
	if len(changes) > 0 {
		c.follow.applied.Store(changes[len(changes)-1].Revision)
	}
	c.behind.Store(false)
	return nil
}

// limited calls f with the time that one statement may take.
func limited(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	return f(ctx)
}

func (c *Checker) apply(grants map[resource.UID][]iamdb.Grant, roles map[resource.UID]resource.Capabilities) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for identity, found := range grants {
		c.index.setGrants(identity, found)
		c.notify(identity)
	}
	if roles != nil {
		c.index.setRoles(roles)
	}
}

// reload reads everything again, in the history given, while checks continue with the old index if that is of
// the same history.
func (c *Checker) reload(ctx context.Context, history int64) error {
	x := newIndex(c.store.Clock)
	revision, err := c.store.Grants(ctx, x.add)
	if err != nil {
		return err
	}
	roles, err := c.store.RoleCapabilities(ctx) // after the grants, so that none of their roles is missing
	if err != nil {
		return err
	}
	now := c.now()
	revoked, err := c.store.Revocations(ctx, now.Add(-RevocationMemory))
	if err != nil {
		return err
	}
	c.follow.revocationsRead = now
	x.sort()
	x.setRoles(roles)
	c.mu.Lock()
	c.index.harvestAll()
	x.uses.done = c.index.uses.done
	c.index, c.revoked = x, revoked
	c.notify("")
	c.mu.Unlock()
	c.follow.applied.Store(revision)
	c.follow.history.Store(history)
	c.behind.Store(false)
	return nil
}

// readRevocations adds the revocations since it last ran, and at times drops
// those that are older than any token.
func (c *Checker) readRevocations(ctx context.Context) error {
	now := c.now()
	oldest := now.Add(-RevocationMemory)
	since := c.follow.revocationsRead.Add(-clockSkew)
	if since.Before(oldest) {
		since = oldest
	}
	found, err := c.store.Revocations(ctx, since)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.revoked, found)
	if now.Sub(c.follow.pruned) > time.Minute {
		maps.DeleteFunc(c.revoked, func(_ resource.UID, until time.Time) bool { return until.Before(oldest) })
		c.follow.pruned = now
	}
	c.follow.revocationsRead = now
	return nil
}

// markCurrent records that the index held every committed change at the time asked.
func (c *Checker) markCurrent(asked time.Time) {
	c.follow.lease.Begin(asked)
	c.follow.failed, c.follow.failure = time.Time{}, nil
	c.behind.Store(false)
}

// lock waits for sem.
func (c *Checker) lock(ctx context.Context) error {
	select {
	case c.follow.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Checker) unlock() { <-c.follow.sem }
