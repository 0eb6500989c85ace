// Package registry serves the OCI distribution protocol, version 1.1, and keeps
// the rules of what is in it: repos, tags and their settings.
//
// The order of every push is: bytes on disk, then the transaction that speaks
// of them. A crash in between leaves garbage, never a reference to nothing.
package registry

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/iamdb"
	"github.com/holdfast-dev/holdfast/store/registrydb"
	"github.com/holdfast-dev/holdfast/token"
)

// Config is what an operator can choose. The zero value works, but for Host.
type Config struct {
	Host  string // public host[:port], and the audience of tokens
	Realm string // public address of /v2/token, where clients get one

	// Assume returns a token of the registry's audience for a workload's own, if
	// that stands for the identity. Nil: nobody logs in like that.
	Assume func(ctx context.Context, identity resource.UID, credential string) (string, error)

	// Sparse accepts manifests whose blobs or children are not in the repo. A
	// tag may then name an image that cannot be pulled whole.
	Sparse bool

	// Redirect sends clients to the storage for blobs where it offers addresses.
	Redirect bool

	Log *slog.Logger // nil discards
	Now func() time.Time
}

// A Registry is an http.Handler for /v2/.
type Registry struct {
	store   *registrydb.Store
	iam     *iamdb.Store
	authz   *authz.Checker
	issuer  *token.Issuer
	storage *Storage
	pulls   *pullLog
	reading chan struct{} // a place for each request that reads documents
	config  Config

	mu   sync.Mutex
	busy map[string]bool // uploads a request of this process is writing to
}

// New returns a Registry over db, whose blobs are in b. Run has to run beside it.
func New(db *store.DB, a *authz.Checker, i *token.Issuer, b *Storage, c Config) *Registry {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := registrydb.New(db)
	return &Registry{
		store: s, iam: iamdb.New(db), authz: a, issuer: i, storage: b, pulls: newPullLog(s, c.Log), reading: make(chan struct{}, maxReaders),
		config: c, busy: map[string]bool{},
	}
}

// Run keeps the log of pulls until ctx ends, and then what is left of it.
func (r *Registry) Run(ctx context.Context) error { return r.pulls.run(ctx) }

// ServeHTTP answers a request to /v2/.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := r.serve(w, req); err != nil {
		r.writeProblem(w, req, err)
	}
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) error {
	t, err := parseTarget(req.URL)
	if err != nil {
		return err
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
		return r.challenge(w, t, e.needs, err)
	}
	req = req.WithContext(ctx)
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

// bodyPause is how long a client may send nothing before its body is given up.
const bodyPause = time.Minute

// base says that this is a registry, and that the caller may talk to it.
func (r *Registry) base(w http.ResponseWriter, req *http.Request, _ target) error {
	return writeJSON(w, req, "application/json", struct{}{})
}

// actor is who changes under the request are put down to.
func actor(req *http.Request, c authz.Caller) resource.Actor {
	return resource.Actor{Subject: c.Identity, Act: c.Act, Remote: remote(req), RequestID: requestID(req)}
}

// remote is the caller's address.
func remote(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

func requestID(req *http.Request) string {
	const most = 128
	id := req.Header.Get("X-Request-Id")
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return ""
		}
	}
	return id[:min(len(id), most)]
}
