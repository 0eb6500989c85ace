// Package protocol implements the OCI distribution protocol, version 1.1, and the
// methods of the API about repos, tags and registry settings.
//
// Every push first writes the bytes to disk and then commits the transaction that
// refers to them. A crash in between leaves garbage, never a dangling reference.
package protocol

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/gcdb"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Config configures a Registry. Host is required.
type Config struct {
	Host  string // the public host[:port], and the audience of tokens
	Realm string // the public address of /v2/token, where clients get a token

	// Assume exchanges a workload's own token for one with the registry's audience, if the identity may be
	// assumed with it. If Assume is nil, workloads cannot log in with their own tokens.
	Assume func(ctx context.Context, identity resource.UID, credential string) (string, error)

	// Admit returns an error if the caller makes too many requests, and CountPull if there were too many pulls from a
	// repo. public is true if the caller may pull only because everybody may. Either may be nil.
	Admit     func(context.Context) error
	CountPull func(ctx context.Context, repo resource.UID, public bool) error

	// Gate returns why a rule refuses the pull of a manifest to the caller, or "". It may be nil.
	Gate func(ctx context.Context, repo resource.UID, m registry.Manifest, public bool) (why string, err error)

	// TrustedRoot is Sigstore's trusted_root.json, for signers that have none of their own. It may be nil.
	TrustedRoot []byte

	// Sparse accepts manifests whose blobs or children are not in the repo. A
	// tag may then name an image that cannot be pulled completely.
	Sparse bool

	// KeepTrash is how long what is deleted can be restored, where the settings of a group do not say it; not at all unless
	// it is positive.
	KeepTrash time.Duration

	// KeepPulls is how long pulls stay in the log; 0 means forever.
	KeepPulls time.Duration

	// Redirect redirects clients to the storage for blobs, if the storage provides URLs.
	Redirect bool

	// Upstreams fetches what groups with an upstream do not have yet, from addresses that Outbound allows. If it is nil,
	// nothing is fetched. Key seals the credentials of upstreams, and Dir holds blobs while they arrive; "" is that of the
	// system.
	Upstreams *upstream.Client
	Outbound  outbound.Config
	Key       secret.Key
	Dir       string

	// Repair returns the bytes of a blob of a repo from somewhere else, or nil if there is nowhere. They need not be the
	// right ones. If it is nil, they come from the upstream of the repo, if it has one.
	Repair func(ctx context.Context, repo resource.UID, digest string) (io.ReadCloser, error)

	Metrics  metric.Metrics
	Refusals *denials.Recorder // nil records none

	Log *slog.Logger // nil discards
	Now func() time.Time
}

// A Registry is an http.Handler for /v2/.
type Registry struct {
	store *registrydb.Store
	iam   *iamdb.Store

	imageIndex  *imagedb.Store
	pullRecords *pulldb.Store
	retention   *retentiondb.Store
	sourceStore *sourcedb.Store
	signers     *signerdb.Store
	garbage     *gcdb.Store

	authz     *authz.Checker
	issuer    *token.Issuer
	storage   storage
	pulls     *pullLog
	readers   chan struct{}      // a semaphore: one value per request that reads documents
	retaining *fairlimit.Limiter // to apply retention
	following *fairlimit.Limiter // to make repos equal to those that they follow
	verifier  *verifier
	config    Config
	busy      sync.Map // the IDs of uploads that a request of this process is writing to

	upstreams *store.CachedTable[sourcedb.UpstreamSet]
	seen      *lru.Cache[seenKey, time.Time] // when tags were last seen at an upstream
	asking    *asking
	downloads *downloads
	fetches   fetches // of blobs
	asks      fetches // of what is short, so that it does not wait for blobs
	pauses    *pauses
	absences  absences
	failures  failures
}

// New returns a Registry over db, whose blobs are in b. The caller must also call Run.
func New(db *store.DB, a *authz.Checker, i *token.Issuer, b blob.Storage, c Config) *Registry {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	s := registrydb.New(db)
	s.KeepTrash = c.KeepTrash
	s.RepoLookups = c.Metrics.Cache("repos")
	seen, _ := lru.New[seenKey, time.Time](seenCached) // fails for sizes below one only
	sources, retention := sourcedb.New(s), retentiondb.New(s)
	retention.KeepPulls = max(0, c.KeepPulls)
	r := &Registry{
		imageIndex: imagedb.New(db), pullRecords: pulldb.New(db), retention: retention, sourceStore: sources,
		signers: signerdb.New(db), garbage: gcdb.New(db),
		upstreams: sourcedb.NewUpstreamCache(sources), seen: seen, asking: &asking{all: map[string]*question{}},
		downloads: &downloads{all: map[string]*download{}}, fetches: newFetches(), asks: newFetches(),
		pauses: &pauses{all: map[resource.UID]pause{}}, absences: newAbsences(), failures: newFailures(),
		store: s, iam: iamdb.New(db), authz: a, issuer: i, storage: storage{b}, pulls: newPullLog(s, c.Log),
		readers: make(chan struct{}, maxReaders), retaining: fairlimit.YieldToWriters(), following: fairlimit.YieldToWriters(), verifier: newVerifier(), config: c,
	}
	if c.Repair == nil {
		r.config.Repair = r.fromUpstream
	}
	return r
}

// Run writes the log of pulls until ctx ends.
func (r *Registry) Run(ctx context.Context) error { return r.pulls.run(ctx) }

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'") // a manifest may call itself a page
	if err := r.serve(w, req); err != nil {
		r.writeProblem(w, req, err)
	}
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) error {
	t, err := parseTarget(req.URL)
	if err != nil {
		return err
	}
	if span := trace.Of(req.Context()); span.Recorded() {
		span.Name("registry " + t.kind)
	}
	e, ok := endpoints[req.Method+" "+t.kind]
	if !ok {
		return problem(http.StatusMethodNotAllowed, unsupported, "%s is not for this address", req.Method)
	}
	if t.kind == "token" {
		return e.serve(r, w, req, t)
	}
	ctx, err := r.authenticate(req, t)
	if err != nil {
		r.refusedToken(req, err)
		return r.challenge(w, t, e.needs, err)
	}
	req = req.WithContext(ctx)
	if r.config.Admit != nil {
		if err := r.config.Admit(ctx); err != nil {
			return err
		}
	}
	if t.name != "" {
		t.method = req.Method
		if err := r.locate(ctx, &t); err != nil {
			return err
		}
		if err := r.admit(ctx, &t, e.needs); err != nil {
			return r.challenge(w, t, e.needs, err)
		}
	}
	return e.serve(r, w, req, t)
}

// bodyPause is how long a client may pause while it sends a body.
const bodyPause = time.Minute

// base tells clients that this is a registry and that they are authenticated.
func (r *Registry) base(w http.ResponseWriter, req *http.Request, _ target) error {
	return writeJSON(w, req, "application/json", struct{}{})
}

// actor returns who makes the changes of a request.
func actor(req *http.Request, c authz.Caller) resource.Actor {
	return resource.Actor{
		Subject: c.Identity, Act: c.Act, Remote: resource.HostOf(req.RemoteAddr), RequestID: requestID(req),
	}
}

func requestID(req *http.Request) string {
	const most = 128
	id := req.Header.Get("X-Request-Id")
	if strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
		return ""
	}
	return id[:min(len(id), most)]
}
