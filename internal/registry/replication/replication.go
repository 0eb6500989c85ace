// Package replication copies tags of repos to other registries, with everything that belongs to their images.
//
// A push does no work for it: one replica reads the events of committed changes and queues the tags that replications
// select. Each replication has its own queue, so that a target that fails delays no other.
package replication

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/imagecopy"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/pulllog"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/reposync"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/watch"
)

// Capabilities are the capabilities that an identity needs on the group of a replication to create and change it, and
// on a repo for each copy.
var Capabilities = append([]resource.Capability{resource.GroupsUpdate}, reposync.SourceCapabilities...)

const (
	attempts        = 256 // replications that one replica works on at the same time; each can copy one tag
	attemptsByOrg   = 20  // the same of one organization
	slotsInAll      = 32  // further tags that are copied at the same time
	slotsPerOrg     = 8   // the same of one organization
	copiesPerTarget = 4   // tags of one replication that are copied at the same time

	// MaxCopies is the number of tags that one replica copies at the same time.
	MaxCopies = attempts + slotsInAll

	dueAtOnce = 200 // due replications that one query returns

	pollInterval  = 500 * time.Millisecond
	errorPause    = 5 * time.Second
	renewInterval = 5 * time.Second
	placesCached  = 1 << 14
)

// Config configures a Replicator. All fields except Client are required.
type Config struct {
	Store   *registrydb.Store
	Authz   *authz.Checker
	Copier  *imagecopy.Copier
	Images  *images.Reader
	Storage upload.Storage
	Pulls   *pulllog.Log
	Client  *upstream.Client // nil disables copies
	Issuer  *token.Issuer    // issues tokens for targets that trust this server
	Key     secret.Key       // decrypts the credentials of targets
	Metrics metric.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// A Replicator copies tags to other registries. It is safe for concurrent use.
type Replicator struct {
	Config
	sources *sourcedb.Store
	slots   *fairlimit.Limiter
	places  *lru.Cache[place, string] // names of target repos that have a blob
}

// A place identifies a blob at the target of a replication.
type place struct {
	replication resource.UID
	digest      string
}

// New returns a Replicator.
func New(c Config) *Replicator {
	places, _ := lru.New[place, string](placesCached) // fails only for sizes below one
	return &Replicator{Config: c, sources: sourcedb.New(c.Store), places: places,
		slots: fairlimit.New(fairlimit.Limits{Total: slotsInAll, PerTenant: slotsPerOrg})}
}

// Run copies tags until ctx ends. One replica watches for changes and queues tags. Every replica copies queued tags.
func (r *Replicator) Run(ctx context.Context) error {
	if r.Client == nil {
		return nil
	}
	if !r.Store.Replicated() {
		if err := r.sources.LeaveReplications(ctx); err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "replications continue later", "err", err)
		}
	}
	changes := watch.Watch{DB: r.Store.DB, Lease: watchLease, Reader: changeReader{r}, Log: r.Log}
	var tasks sync.WaitGroup
	tasks.Go(func() { changes.Run(ctx) })
	tasks.Go(func() { r.work(ctx) })
	tasks.Wait()
	return nil
}

// work makes attempts to copy until ctx ends.
func (r *Replicator) work(ctx context.Context) {
	w := workers{Replicator: r, holder: rand.Text(), busy: map[resource.UID]resource.Tenant{},
		perTenant: map[resource.Tenant]int{}}
	defer w.tasks.Wait()
	for ; ctx.Err() == nil; watch.Pause(ctx, pollInterval) {
		if err := w.start(ctx); err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "images are not replicated", "err", err)
			watch.Pause(ctx, errorPause)
		}
	}
}

// workers are the attempts in progress.
type workers struct {
	*Replicator
	holder string
	tasks  sync.WaitGroup

	mu        sync.Mutex
	busy      map[resource.UID]resource.Tenant
	perTenant map[resource.Tenant]int
}

// start begins an attempt for each replication that is due, up to the limits.
func (w *workers) start(ctx context.Context) error {
	due, err := w.sources.ReplicationsDue(ctx, attemptsByOrg, dueAtOnce)
	if err != nil {
		return err
	}
	for _, uid := range due {
		tenant := w.Store.Tenant(ctx, uid)
		if !w.enter(uid, tenant) {
			continue
		}
		run, ok, err := w.sources.BeginReplication(ctx, uid, w.holder+rand.Text())
		if err != nil || !ok {
			w.leave(uid)
			if err != nil {
				return err
			}
			continue
		}
		w.tasks.Go(func() {
			defer w.leave(uid)
			w.attempt(ctx, run)
		})
	}
	return nil
}

func (w *workers) enter(uid resource.UID, tenant resource.Tenant) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.busy[uid]; ok || len(w.busy) >= attempts || w.perTenant[tenant] >= attemptsByOrg {
		return false
	}
	w.busy[uid] = tenant
	w.perTenant[tenant]++
	return true
}

func (w *workers) leave(uid resource.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tenant := w.busy[uid]
	delete(w.busy, uid)
	if w.perTenant[tenant]--; w.perTenant[tenant] == 0 {
		delete(w.perTenant, tenant)
	}
}

// attempt makes one attempt and stores its result.
func (r *Replicator) attempt(ctx context.Context, run sourcedb.ReplicationRun) {
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var renewing sync.WaitGroup
	renewing.Go(func() { r.renew(working, run, cancel) })
	err := r.copyPending(working, run)
	lost := working.Err() != nil
	cancel(nil)
	renewing.Wait()
	if end, store := r.result(ctx, run, err); store && !lost {
		err = r.sources.EndReplication(ctx, run, end)
	} else { // another attempt continues
		err = r.sources.LeaveReplication(context.WithoutCancel(ctx), run)
	}
	if err != nil && ctx.Err() == nil {
		r.Log.WarnContext(ctx, "the result of a replication was not stored", "replication", run.UID, "err", err)
	}
}

// renew renews the lease on an attempt until ctx ends. It calls cancel if the attempt has ended.
func (r *Replicator) renew(ctx context.Context, run sourcedb.ReplicationRun, cancel context.CancelCauseFunc) {
	for {
		watch.Pause(ctx, renewInterval)
		if ctx.Err() != nil {
			return
		}
		if err := r.sources.RenewReplication(ctx, run); errors.Is(err, fault.Aborted) {
			cancel(err)
			return
		}
	}
}

// result returns the result of an attempt that has ended with an error or nil. store is false if there is nothing to
// store, because the replication has changed.
func (r *Replicator) result(
	ctx context.Context, run sourcedb.ReplicationRun, err error,
) (end sourcedb.ReplicationEnd, store bool) {
	failure, ok := errors.AsType[*targetError](err)
	switch {
	case err == nil:
		return end, true
	case ok:
		return sourcedb.ReplicationEnd{Error: failure.reason, RetryIn: failure.retryIn}, true
	case errors.Is(err, fault.Aborted), errors.Is(err, fault.NotFound), ctx.Err() != nil:
		return end, false
	}
	r.Log.WarnContext(ctx, "images were not replicated", "replication", run.UID, "err", err)
	return sourcedb.ReplicationEnd{Error: notNow}, true
}
