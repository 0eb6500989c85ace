// Package reposync keeps repos equal to the repos from which they sync.
//
// In the database, such a repo is a follower, and its sync settings are a follow.
package reposync

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry/imagecopy"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store/watch"
)

const (
	pollInterval = 500 * time.Millisecond
	errorPause   = 5 * time.Second
)

// The capabilities that an identity needs to set the source of a repo: on the repo itself and on the source. A sync
// copies images that the identity could pull, creates their tags, and deletes all other tags. It acts as the
// identity.
var (
	RepoCapabilities   = []resource.Capability{resource.ManifestCreate, resource.TagCreate, resource.TagDelete}
	SourceCapabilities = []resource.Capability{
		resource.RepoList, resource.RepoBlobsGet, resource.ManifestList, resource.TagList, resource.ReferrersList,
	}
)

// A Syncer keeps repos equal to their sources. It is safe for concurrent use.
type Syncer struct {
	store   *registrydb.Store
	sources *sourcedb.Store
	authz   *authz.Checker
	copier  *imagecopy.Copier
	mirror  *mirror.Fetcher
	turns   *fairlimit.Limiter
	metrics metric.Metrics
	log     *slog.Logger
}

// New returns a Syncer for the repos in db.
func New(
	db *registrydb.Store, a *authz.Checker, c *imagecopy.Copier, f *mirror.Fetcher, m metric.Metrics, log *slog.Logger,
) *Syncer {
	return &Syncer{
		store: db, sources: sourcedb.New(db), authz: a, copier: c, mirror: f, turns: fairlimit.YieldToWriters(),
		metrics: m, log: log,
	}
}

// Run syncs repos until ctx ends. One replica watches for changes of sources, and makes the repos that sync from them
// due. Every replica syncs repos that are due.
func (s *Syncer) Run(ctx context.Context) error {
	changes := watch.Watch{DB: s.store.DB, Lease: watchLease, Reader: sourceReader{s.sources}, Log: s.log}
	var tasks sync.WaitGroup
	tasks.Go(func() { changes.Run(ctx) })
	tasks.Go(func() {
		for ; ctx.Err() == nil; watch.Pause(ctx, pollInterval) {
			if _, _, err := s.RunDue(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "repos are not synced", "err", err)
				watch.Pause(ctx, errorPause)
			}
		}
	})
	tasks.Wait()
	return nil
}
