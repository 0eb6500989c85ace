// Package protocol serves the OCI distribution protocol, version 1.1, over HTTP.
package protocol

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/pulllog"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// Config configures a Registry. Host, Log, Now and the fields for parts of the registry are required.
type Config struct {
	Host  string // public host[:port] of the registry, and the audience of its tokens
	Realm string // public address of /v2/token, where clients get a token

	Store   *registrydb.Store
	IAM     *iamdb.Store
	Authz   *authz.Checker
	Issuer  *token.Issuer
	Uploads *upload.Uploads
	Mirror  *mirror.Fetcher
	Images  *images.Reader
	Pulls   *pulllog.Log

	// Assume exchanges the token of a workload for a token with the registry's audience, if the workload may assume the
	// identity. If Assume is nil, workloads cannot log in with their tokens.
	Assume func(ctx context.Context, identity resource.UID, credential string) (string, error)

	// AssumeIn is Assume for the identity of an organization that trusts the credential. nil means that workloads must
	// name their identity.
	AssumeIn func(ctx context.Context, organization, credential string) (string, error)

	// Admit returns an error if the caller makes too many requests. CountPull returns an error if there were too many
	// pulls from a repo; public is true if the caller may pull only because the repo is public. Either may be nil.
	Admit     func(context.Context) error
	CountPull func(ctx context.Context, repo resource.UID, public bool) error

	Gate Gate // checks each pull; nil refuses nothing

	// Sparse accepts manifests whose blobs or children are not in the repo. A
	// tag may then name an image that cannot be pulled completely.
	Sparse bool

	// Redirect redirects clients to the storage for blobs, if the storage provides URLs.
	Redirect bool

	Metrics  metric.Metrics
	Refusals *denials.Recorder // records refused requests; nil discards them
	Log      *slog.Logger
	Now      func() time.Time
}

// A Gate enforces the rules for pulls.
type Gate interface {
	// Check returns the reason why a rule refuses the pull of a manifest to the caller, or "". public is true if the
	// caller may pull only because the repo is public.
	Check(ctx context.Context, repo resource.UID, m registry.Manifest, public bool) (why string, err error)
}

// A Registry is an http.Handler for /v2/.
type Registry struct {
	config  Config
	store   *registrydb.Store
	iam     *iamdb.Store
	authz   *authz.Checker
	issuer  *token.Issuer
	uploads *upload.Uploads
	mirror  *mirror.Fetcher
	images  *images.Reader
	pulls   *pulllog.Log
}

// New returns a Registry.
func New(c Config) *Registry {
	return &Registry{
		config: c, store: c.Store, iam: c.IAM, authz: c.Authz, issuer: c.Issuer, uploads: c.Uploads, mirror: c.Mirror,
		images: c.Images, pulls: c.Pulls,
	}
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'") // a manifest may claim to be an HTML page
	id := requestID(req)
	if id == "" {
		id = newRequestID()
		req.Header.Set("X-Request-Id", id)
	}
	w.Header().Set("X-Request-Id", id)
	if err := r.serve(w, req); err != nil {
		r.writeProblem(w, req, err)
	}
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) error {
	t, err := parseTarget(req.URL)
	if err != nil {
		return err
	}
	if span := trace.FromContext(req.Context()); span.Recorded() {
		span.Name("registry " + t.kind)
	}
	e, ok := endpoints[req.Method+" "+t.kind]
	if !ok {
		return oci.NewProblem(http.StatusMethodNotAllowed, oci.Unsupported, "%s is not for this address", req.Method)
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
	if c, ok := authz.CallerFrom(ctx); ok && !allows(c, t, e) {
		return r.refuseScope(ctx, w, c, t, e.needs)
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

// base serves an empty response. Clients use it to detect a registry and to check their token.
func (r *Registry) base(w http.ResponseWriter, req *http.Request, _ target) error {
	return writeJSON(w, req, "application/json", struct{}{})
}

// actor returns the actor for the changes that a request makes.
func actor(req *http.Request, c authz.Caller) resource.Actor {
	return resource.Actor{
		Subject: c.Identity, Act: c.Act, Remote: resource.HostOf(req.RemoteAddr), RequestID: requestID(req),
	}
}

func newRequestID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// requestID returns the ID that a client or ServeHTTP has given to a request, or "" if the ID is not valid.
func requestID(req *http.Request) string {
	const most = 128
	id := req.Header.Get("X-Request-Id")
	if strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
		return ""
	}
	return id[:min(len(id), most)]
}
