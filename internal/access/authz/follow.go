package authz

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
)

const (
	pollEvery = 500 * time.Millisecond // short, so that even a slow answer arrives before the lease expires
	askLimit  = 2 * time.Second        // timeout of a query for the newest revision
	readLimit = time.Minute            // timeout of reading changes, in the worst case all grants

	// stepLimit is the timeout of one statement that reads a change. It is short, because a database server that does
	// not answer may have been replaced by another one.
	stepLimit = 5 * time.Second

	clockSkew = 5 * time.Minute // greatest difference between the clocks of two replicas

	homesCached = 1 << 14 // number of sessions whose home is cached
)

// RevocationMemory is how long the deletion of an identity is remembered. No token is valid for longer.
const RevocationMemory = 25 * time.Hour

// A follower has the state that a Checker needs to follow the changes of the database. A goroutine that advances the
// index holds sem, so that changes are applied one after the other and in order.
type follower struct {
	sem     chan struct{} // a lock whose acquisition a context can cancel
	applied atomic.Int64  // revision of the index; written by the holder of sem
	// history is store.DB.History at the time at which applied was read. Revisions can only be compared within one
	// history of the database. The holder of sem writes history.
	history atomic.Int64
	lease   replica.Lease // while the lease is valid, writers on other replicas wait for this index

	// The remaining fields are guarded by sem.
	failed          time.Time // time of the last failed attempt; zero after a success
	failure         error     // error of the last failed attempt
	revocationsRead time.Time
	pruned          time.Time
}

// Load reads every grant of db, and from then on applies the changes that are made
// through db. Run applies the changes that other replicas make.
func Load(ctx context.Context, db *store.DB, log *slog.Logger) (*Checker, error) {
	homes, _ := lru.New[string, resource.UID](homesCached) // fails only for sizes below one
	c := &Checker{
		homes: homes, store: iamdb.New(db), past: grantlog.New(db), log: log, now: time.Now,
		shared: db.Replicated(), index: newIndex(db.Clock),
	}
	c.follow.sem = make(chan struct{}, 1)
	db.OnGrantChange(c.committed) // registered before the load, so that no change is missed
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

// OnChange registers f to be called with every identity whose grants, relationship or existence have changed on any
// replica, or with "" if all identities may have changed. f is called before any check is answered that depends on the
// change. f must be fast. OnChange is meant for caches of identities. It must be called before Run.
func (c *Checker) OnChange(f func(identity resource.UID)) { c.changed = append(c.changed, f) }

func (c *Checker) notify(identity resource.UID) {
	for _, f := range c.changed {
		f(identity)
	}
}

// Run applies the changes that other replicas make until ctx ends, and then returns nil. If the database has no other
// writers, it only waits for the end of ctx.
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
	failing := false
	for {
		err := c.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			c.log.WarnContext(ctx, "changes of grants cannot be read; requests are refused until they can", "error", err)
		case err == nil && failing:
			c.log.InfoContext(ctx, "changes of grants can be read again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-woken:
		}
	}
}

// listen requests a poll whenever another replica announces a change. Polling alone
// would suffice; listening shortens the time for which the other replica waits.
func (c *Checker) listen(ctx context.Context, woken chan<- struct{}) {
	for ctx.Err() == nil {
		err := c.store.ListenGrants(ctx, func() {
			select {
			case woken <- struct{}{}:
			default: // a poll is already requested
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

// EnsureCurrent returns nil if the index holds every change whose write has returned, on this replica or another. If
// this is not certain, EnsureCurrent asks the database, and returns fault.Unavailable if there is no answer. Checks
// that return an error call it themselves; callers of the other checks should call it first.
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
		return nil // another goroutine has updated the index while this one waited for the lock
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

// sameHistory reports whether the database still has the history from which the index was read. It has another history
// after the restore of a back-up or the promotion of a standby.
func (c *Checker) sameHistory() bool { return c.follow.history.Load() == c.store.History() }

// has reports whether the index includes a revision that this process has committed.
func (c *Checker) has(revision int64) bool {
	return c.follow.applied.Load() >= revision && c.sameHistory()
}

// committed applies a change that this process has just committed, before the write returns to its caller. It does so
// even if that caller is no longer waiting. If the change cannot be read, the next check reads it.
func (c *Checker) committed(ctx context.Context, revision int64) {
	ctx = store.OutsideTransaction(context.WithoutCancel(ctx))
	if c.has(revision) {
		return
	}
	if c.lock(ctx) != nil {
		return // impossible: the context does not end
	}
	defer c.unlock()
	if c.has(revision) || !c.sameHistory() {
		return // another goroutine has applied the change, or the next check reads everything
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

// catchUp brings the index to the newest revision. It records a failure for goroutines that wait for the same answer.
func (c *Checker) catchUp(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(store.OutsideTransaction(ctx), readLimit)
	defer cancel()
	err := c.sync(bounded)
	if err != nil && ctx.Err() == nil {
		c.follow.failed, c.follow.failure = c.now(), err
	}
	return err
}

// sync applies new changes, and announces the revision that it has reached, because writers on other replicas wait for
// it.
func (c *Checker) sync(ctx context.Context) error {
	for range 2 { // the second round announces what the first one has applied
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

// position returns the history and the revision of the index.
func (c *Checker) position() replica.Position {
	return replica.Position{History: c.follow.history.Load(), Revision: c.follow.applied.Load()}
}

// renew announces the position of the index to other replicas, and returns the newest position of the database.
func (c *Checker) renew(ctx context.Context) (newest replica.Position, _ error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return c.store.Renew(ctx, c.position())
}

// advance applies the changes since the revision of the index. It may read grants that are newer than these changes.
// That is harmless, because the grants are read again for the newer change.
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
		// This reads the index without c.mu, because only the holder of sem writes it.
		rolesChanged = rolesChanged || !c.index.hasRolesOf(grants[change.Identity])
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
	var suspended []resource.UID
	if len(grants) > 0 { // a changed identity may have been deleted, and even created again
		if err := limited(ctx, c.readRevocations); err != nil {
			return err
		}
		err := limited(ctx, func(ctx context.Context) (err error) {
			suspended, err = c.store.Suspended(ctx, slices.Collect(maps.Keys(grants)))
			return err
		})
		if err != nil {
			return err
		}
	}
	c.apply(grants, suspended, roles)
	if len(changes) > 0 {
		c.follow.applied.Store(changes[len(changes)-1].Revision)
	}
	c.behind.Store(false)
	return nil
}

// limited calls f with a context that ends after stepLimit.
func limited(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	return f(ctx)
}

// apply replaces the grants of the changed identities and notes which are suspended. It replaces the capabilities of
// all roles unless roles is nil.
func (c *Checker) apply(
	grants map[resource.UID][]iamdb.Grant, suspended []resource.UID, roles map[resource.UID]resource.Capabilities,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for identity, found := range grants {
		c.index.setGrants(identity, found)
		delete(c.suspended, identity)
		c.notify(identity)
	}
	for _, identity := range suspended {
		c.suspended[identity] = struct{}{}
	}
	if roles != nil {
		c.index.setRoles(roles)
	}
}

// reload reads all grants again and records that they belong to the given history. While it reads, checks use the old
// index if that belongs to the same history.
func (c *Checker) reload(ctx context.Context, history int64) error {
	x := newIndex(c.store.Clock)
	revision, err := c.store.Grants(ctx, x.add)
	if err != nil {
		return err
	}
	roles, err := c.store.RoleCapabilities(ctx) // read after the grants, so that none of their roles is missing
	if err != nil {
		return err
	}
	currentTime := c.now()
	revoked, err := c.store.Revocations(ctx, currentTime.Add(-RevocationMemory))
	if err != nil {
		return err
	}
	c.follow.revocationsRead = currentTime
	found, err := c.store.AllSuspended(ctx)
	if err != nil {
		return err
	}
	suspended := make(map[resource.UID]struct{}, len(found))
	for _, identity := range found {
		suspended[identity] = struct{}{}
	}
	x.sort()
	x.setRoles(roles)
	c.mu.Lock()
	c.index.collectAllUses()
	x.uses.collected = c.index.uses.collected
	c.index, c.revoked, c.suspended = x, revoked, suspended
	c.notify("")
	c.mu.Unlock()
	c.follow.applied.Store(revision)
	c.follow.history.Store(history)
	c.behind.Store(false)
	return nil
}

// readRevocations adds the revocations since it last ran. At most once a minute, it
// drops revocations that are older than any valid token.
func (c *Checker) readRevocations(ctx context.Context) error {
	currentTime := c.now()
	oldest := currentTime.Add(-RevocationMemory)
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
	if currentTime.Sub(c.follow.pruned) > time.Minute {
		maps.DeleteFunc(c.revoked, func(_ resource.UID, until time.Time) bool { return until.Before(oldest) })
		c.follow.pruned = currentTime
	}
	c.follow.revocationsRead = currentTime
	return nil
}

// markCurrent records that the index included every committed change at the time asked.
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
