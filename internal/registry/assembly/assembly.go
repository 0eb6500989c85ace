// Package assembly builds a registry from its parts.
package assembly

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/imagecopy"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/registry/pulllog"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/replication"
	"github.com/holdfast-dev/holdfast/internal/registry/reposync"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Config configures a Registry. Host is required. The fields up to Redirect have the same meaning as in
// protocol.Config.
type Config struct {
	Host      string
	Realm     string
	Assume    func(ctx context.Context, identity resource.UID, credential string) (string, error)
	AssumeIn  func(ctx context.Context, organization, credential string) (string, error)
	Admit     func(context.Context) error
	CountPull func(ctx context.Context, repo resource.UID, public bool) error
	Sparse    bool
	Redirect  bool

	// NewGate returns the gate that checks pulls. The gate reads images with the given reader. If NewGate is nil, no
	// pull is refused.
	NewGate func(contents *images.Reader) protocol.Gate

	TrustedRoot []byte // content of Sigstore's trusted_root.json, for signers without a root; may be nil

	// KeepTrash is how long deleted content can be restored in groups whose settings do not set a time. If it is not
	// positive, deleted content cannot be restored in these groups.
	KeepTrash time.Duration

	KeepPulls time.Duration // how long pulls stay in the log; 0 means forever

	Upstreams *upstream.Client // nil disables fetches from upstreams
	Targets   *upstream.Client // sends images to the targets of replications; nil disables replications
	Outbound  outbound.Config  // says which addresses upstreams may have
	Key       secret.Key       // encrypts the credentials of upstreams
	Dir       string           // directory for blobs while they arrive; "" means the system's temporary directory

	// Repair is Maintainer.Repair. If it is nil, damaged blobs are fetched from the upstream of their repo, if it has
	// one.
	Repair func(ctx context.Context, repo resource.UID, digest string) (io.ReadCloser, error)

	IdentityNames func(ctx context.Context, identities []resource.UID) (map[resource.UID]string, error) // as in metadata

	Metrics  metric.Metrics
	Refusals *denials.Recorder // records refused requests; nil discards them
	Log      *slog.Logger      // nil discards all messages
	Now      func() time.Time  // nil means time.Now
}

// A Registry is a registry with its parts. The caller must call Run of Pulls, of Sync and of Replicate.
type Registry struct {
	*protocol.Registry
	*upkeep.Maintainer

	Pulls     *pulllog.Log
	Images    *images.Reader
	Mirror    *mirror.Fetcher
	Sync      *reposync.Syncer
	Replicate *replication.Replicator
	Retention *upkeep.Retention

	metadata metadata.Config
}

// New returns a Registry that stores rows in db and blobs in b.
func New(db *store.DB, a *authz.Checker, i *token.Issuer, b blob.Storage, c Config) *Registry {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	s, iam := registrydb.New(db), iamdb.New(db)
	s.KeepTrash = c.KeepTrash
	rules := retentiondb.New(s)
	rules.KeepPulls = max(0, c.KeepPulls)
	s.RepoLookups = c.Metrics.Cache("repos")
	uploads := upload.New(s, upload.Storage{Storage: b}, c.Log, c.Now)
	r := &Registry{Pulls: pulllog.New(s, c.Log), Retention: upkeep.NewRetention(rules, c.Log, c.Now)}
	r.Mirror = mirror.New(s, iam, uploads, mirror.Config{
		Upstreams: c.Upstreams, Issuer: i, Key: c.Key, Dir: c.Dir, Metrics: c.Metrics, Log: c.Log, Now: c.Now,
	})
	r.Images = images.New(s, uploads.Storage, r.Mirror.OpenBlob, c.TrustedRoot, c.Metrics)
	var gate protocol.Gate
	if c.NewGate != nil {
		gate = c.NewGate(r.Images)
	}
	copier := &imagecopy.Copier{Store: s, Sparse: c.Sparse, CountPull: c.CountPull, Gate: gate}
	if c.Repair == nil {
		c.Repair = r.Mirror.OpenBlob
	}
	r.Maintainer = &upkeep.Maintainer{
		Store: s, Uploads: uploads, Repair: c.Repair, Metrics: c.Metrics, Log: c.Log, Now: c.Now,
	}
	r.Sync = reposync.New(s, a, copier, r.Mirror, c.Metrics, c.Log)
	r.Replicate = replication.New(replication.Config{
		Store: s, Authz: a, Copier: copier, Images: r.Images, Storage: uploads.Storage, Pulls: r.Pulls, Client: c.Targets,
		Issuer: i, Key: c.Key, Metrics: c.Metrics, Log: c.Log, Now: c.Now,
	})
	r.Registry = protocol.New(protocol.Config{
		Host: c.Host, Realm: c.Realm, Store: s, IAM: iam, Authz: a, Issuer: i, Uploads: uploads, Mirror: r.Mirror,
		Images: r.Images, Pulls: r.Pulls, Assume: c.Assume, AssumeIn: c.AssumeIn,
		Admit: c.Admit, CountPull: c.CountPull, Gate: gate,
		Sparse: c.Sparse, Redirect: c.Redirect, Metrics: c.Metrics, Refusals: c.Refusals, Log: c.Log, Now: c.Now,
	})
	r.metadata = metadata.Config{
		Host: c.Host, Store: s, Rules: rules, IAM: iam, Authz: a, Images: r.Images, Mirror: r.Mirror, Copier: copier,
		Retention: r.Retention, TrustedRoot: c.TrustedRoot, Fetches: c.Upstreams != nil,
		Replicator: r.Replicate, Outbound: c.Outbound,
		Key: c.Key, Now: c.Now, IdentityNames: c.IdentityNames,
	}
	return r
}

// Metadata returns the service with the API methods about the content of the registry.
func (r *Registry) Metadata(pages *page.Tokens) *metadata.Service {
	return metadata.New(pages, r.metadata)
}
