// Package metadata implements the methods of the API about repos, tags, images, pulls and registry settings.
package metadata

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/imagecopy"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/replication"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
)

// A Service implements the methods of the API about repos, tags, images, pulls and
// the registry settings of groups.
//
// Every method first authorizes the caller, then validates the request, and then calls the store. Authorization
// needs only the UID, so a caller without the capability cannot learn what exists.
type Service struct {
	store       *registrydb.Store
	rules       *retentiondb.Store
	sources     *sourcedb.Store
	signers     *signerdb.Store
	imageIndex  *imagedb.Store
	pullRecords *pulldb.Store
	iam         *iamdb.Store
	authz       *authz.Checker
	pages       *page.Tokens
	images      *images.Reader
	mirror      *mirror.Fetcher
	copier      *imagecopy.Copier
	retention   *upkeep.Retention
	cfg         Config
}

// Config configures a Service. All fields except TrustedRoot and IdentityNames are required.
type Config struct {
	Host string // public host[:port] of the registry

	Store     *registrydb.Store
	Rules     *retentiondb.Store
	IAM       *iamdb.Store
	Authz     *authz.Checker
	Images    *images.Reader
	Mirror    *mirror.Fetcher
	Copier    *imagecopy.Copier
	Retention *upkeep.Retention

	Replicator *replication.Replicator

	TrustedRoot []byte          // content of trusted_root.json, for signers without a root; may be nil
	Fetches     bool            // whether the server fetches from upstreams
	Outbound    outbound.Config // says which addresses upstreams may have
	Key         secret.Key      // encrypts the credentials of upstreams
	Now         func() time.Time

	// IdentityNames returns the names of those identities that the caller may see. If it is nil, no name is shown.
	IdentityNames func(ctx context.Context, identities []resource.UID) (map[resource.UID]string, error)
}

// New returns a Service.
func New(p *page.Tokens, c Config) *Service {
	return &Service{
		store: c.Store, rules: c.Rules, sources: sourcedb.New(c.Store), signers: signerdb.New(c.Store.DB),
		imageIndex: imagedb.New(c.Store.DB), pullRecords: pulldb.New(c.Store.DB), iam: c.IAM, authz: c.Authz,
		pages: p, images: c.Images, mirror: c.Mirror, copier: c.Copier, retention: c.Retention, cfg: c,
	}
}

// now returns the time of a change, with the precision of the store.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// Host returns the host of the registry, as in image references.
func (s *Service) Host() string { return s.cfg.Host }

var historyList = page.List{
	Kind: "tag_history", Fields: []string{"time"}, Default: page.Order{Field: "time", Desc: true},
}

// requireAll returns nil if the caller holds the capabilities on a repo and the repo exists, and fault.NotFound if
// the repo does not exist. It checks that the whole UID exists. Later queries use only its last segment, which
// another repo could share.
func (s *Service) requireAll(ctx context.Context, repo resource.UID, want ...resource.Capability) error {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(want...), repo); err != nil {
		return err
	}
	_, err := s.store.Repo(ctx, repo)
	return err
}
