package protocol

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
)

// A Service implements the methods of the API about repos, tags, images, pulls and
// the registry settings of groups.
//
// Every method first authorizes the caller, then validates the request, and then calls the store. Authorization
// needs only the UID, so a caller without the capability cannot learn what exists.
type Service struct {
	store *registrydb.Store

	imageIndex  *imagedb.Store
	pullRecords *pulldb.Store
	retention   *retentiondb.Store
	sourceStore *sourcedb.Store
	signers     *signerdb.Store

	iam    *iamdb.Store
	authz  *authz.Checker
	pages  *page.Tokens
	images *Registry
	cfg    Config
}

// NewService returns a Service over the repos of images.
func NewService(p *page.Tokens, images *Registry) *Service {
	return &Service{
		store: images.store, imageIndex: images.imageIndex, pullRecords: images.pullRecords,
		retention: images.retention, sourceStore: images.sourceStore, signers: images.signers,
		iam: images.iam, authz: images.authz, pages: p, images: images, cfg: images.config,
	}
}

// now returns the time of a change, with the precision of the store.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// Host returns the host of the registry, as in image references.
func (s *Service) Host() string { return s.cfg.Host }

var historyList = page.List{Kind: "tag_history", Fields: []string{"time"}, Default: page.Order{Field: "time", Desc: true}}

// requireAll returns nil if the caller holds the capabilities on a repo and the repo exists. It must exist
// under its whole UID, because what is in it is found by the last segment alone, which could be that of another
// repo. If it does not, it returns fault.NotFound.
func (s *Service) requireAll(ctx context.Context, repo resource.UID, want ...resource.Capability) error {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(want...), repo); err != nil {
		return err
	}
	_, err := s.store.Repo(ctx, repo)
	return err
}
