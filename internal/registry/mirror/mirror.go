// Package mirror fetches manifests and blobs from the upstreams of groups and stores them.
package mirror

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/tablecache"
)

const tagsCached = 1 << 14 // largest number of entries in Fetcher.seen

// Config configures a Fetcher. All fields except Upstreams and Dir are required.
type Config struct {
	Upstreams *upstream.Client // nil disables fetches
	Issuer    *token.Issuer    // issues tokens for upstreams that trust this server
	Key       secret.Key       // decrypts the credentials of upstreams
	Dir       string           // directory for blobs while they arrive; "" means the system's temporary directory

	Metrics metric.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// A Fetcher fetches manifests and blobs from upstreams and stores them. It is safe for concurrent use.
type Fetcher struct {
	config  Config
	store   *registrydb.Store
	iam     *iamdb.Store
	uploads *upload.Uploads

	upstreams *tablecache.Cache[sourcedb.UpstreamSet]
	seen      *lru.Cache[seenKey, time.Time] // time at which each tag was last compared with its upstream
	shared    *sharedCalls
	downloads *downloads
	blobs     limiter // limits requests for blobs
	short     limiter // limits all other requests, so that they do not wait for blobs
	pauses    *pauses
	absences  absences
	failures  failures
}

// New returns a Fetcher that stores rows in db and bytes in uploads.
func New(db *registrydb.Store, iam *iamdb.Store, uploads *upload.Uploads, c Config) *Fetcher {
	seen, _ := lru.New[seenKey, time.Time](tagsCached) // fails only for sizes below one
	return &Fetcher{
		config: c, store: db, iam: iam, uploads: uploads, upstreams: sourcedb.NewUpstreamCache(sourcedb.New(db)), seen: seen,
		shared: newSharedCalls(), downloads: newDownloads(), blobs: newLimiter(db.Tenant), short: newLimiter(db.Tenant),
		pauses: newPauses(), absences: newAbsences(), failures: newFailures(),
	}
}

// A Source is a repo at an upstream. A repo of this server mirrors it.
type Source struct {
	registry.Upstream
	names []string // path of the repo at the upstream
}

func (s *Source) repo() string { return strings.Join(s.names, "/") }

// UpstreamOf returns the upstream of a group or, if it has none, of the nearest group above it that has one. ok is
// false if there is none.
func (f *Fetcher) UpstreamOf(ctx context.Context, group resource.UID) (u registry.Upstream, ok bool, _ error) {
	if group == "" {
		return u, false, nil
	}
	set, err := f.upstreams.Get(ctx)
	if err != nil {
		return u, false, err
	}
	u, ok = set.Over(group)
	return u, ok, nil
}

// SourceOf returns the repo at the upstream that the repo with a path mirrors, or nil if its group has no upstream.
func (f *Fetcher) SourceOf(ctx context.Context, group resource.UID, path string) (*Source, error) {
	u, ok, err := f.UpstreamOf(ctx, group)
	if err != nil || !ok {
		return nil, err
	}
	return &Source{u, strings.Split(path, "/")[u.Group().Depth():]}, nil
}

// RequireUnmirrored returns fault.FailedPrecondition if a group has an upstream, because only fetches may change the
// repos of such a group.
func (f *Fetcher) RequireUnmirrored(ctx context.Context, group resource.UID) error {
	set, err := f.upstreams.Get(ctx)
	if err != nil {
		return err
	}
	if u, ok := set.Over(group); ok {
		return fault.Unmet("MIRROR", "%s", ReadOnly(u))
	}
	return nil
}

// ReadOnly returns the error message for a push to a group with an upstream.
func ReadOnly(u registry.Upstream) string {
	return "the group is a mirror of " + u.Name + ": what is in it comes from there, and nothing can be pushed to it"
}

// MayFetch reports whether a caller may cause a fetch. A caller who may pull only because the repo is public gets the
// stored images, unless the upstream allows fetches by anyone. This keeps strangers from filling the storage or using
// up the rate limit of the upstream.
func (f *Fetcher) MayFetch(s *Source, public bool) bool {
	return f.config.Upstreams != nil && s.Fetches(s.repo()) && (!public || s.Anyone)
}

// RepoOf returns the repo at a path that mirrors s, or fault.NotFound. Because groups may have been renamed during a
// fetch, RepoOf ignores a repo at the path that is not below the group of the upstream.
func (f *Fetcher) RepoOf(ctx context.Context, s *Source, path string) (resource.UID, error) {
	repo, err := f.store.RepoAt(ctx, strings.Split(path, "/"))
	if err == nil && !s.contains(repo) {
		return "", fault.Missing("repo", path)
	}
	return repo, err
}

// contains reports whether uid is the group of the upstream or below it.
func (s *Source) contains(uid resource.UID) bool {
	return uid == s.Group() || strings.HasPrefix(string(uid), string(s.Group())+"/")
}

// bySystem returns a context in which the server itself is the actor of changes. It keeps the ID of the request that
// caused the change.
func bySystem(ctx context.Context) context.Context {
	return resource.WithActor(ctx, resource.Actor{RequestID: resource.ActorFrom(ctx).RequestID})
}

// repoRef returns a reference to the repo in which content of an upstream is stored. It creates the groups above the
// repo if they are missing.
func (f *Fetcher) repoRef(ctx context.Context, s *Source, name string) (ref registrydb.RepoRef, err error) {
	path := strings.Split(name, "/")
	ref = registrydb.RepoRef{Name: path[len(path)-1], Create: true}
	ref.Group, err = f.store.GroupAt(ctx, path[:len(path)-1])
	if err == nil && s.contains(ref.Group) || err != nil && !errors.Is(err, fault.NotFound) {
		return ref, err
	}
	missing := s.names[:len(s.names)-1]
	if err := oci.CheckGroupNames(s.Group(), missing); err != nil {
		return ref, err
	}
	ref.Group, err = f.iam.EnsureGroups(ctx, s.Group(), missing)
	return ref, err
}

// checkPause returns an error if the server must not send a request to the upstream now, because the upstream lacked
// the reference a moment ago or because requests to it are paused.
func (f *Fetcher) checkPause(s *Source, kind, reference string, stored bool) error {
	t := f.config.Now()
	if err := f.absences.err(s.key(kind, reference), t); err != nil {
		return err
	}
	return f.pauses.err(s.UID, stored, t)
}

// noteAnswer records the outcome of a request to an upstream. It logs only the failure that starts a pause, not every
// failed pull during the pause.
func (f *Fetcher) noteAnswer(ctx context.Context, s *Source, err error) {
	f.failures.note(s.Upstream, err, f.config.Now())
	if !f.pauses.note(s.UID, err, f.config.Now()) {
		return
	}
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		f.config.Log.WarnContext(ctx, "requests to an upstream are paused", "upstream", string(s.UID),
			"status", e.Status, "reason", e.Reason, "err", e.Cause)
	}
}

// probeTime limits a test request, for which a person is waiting.
const probeTime = 5 * time.Second

// Probe sends a test request to an upstream, and records the outcome as a pull does. It returns the reason why the
// upstream cannot be used, or "". asked is false if nothing was tested, because the organization already has too many
// requests running or because the client has gone away.
func (f *Fetcher) Probe(ctx context.Context, u registry.Upstream) (reason string, asked bool) {
	timed, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	end, err := f.short.take(timed, u.UID.Root())
	if err != nil {
		return "", false
	}
	defer end()
	err = f.config.Upstreams.Ping(timed, f.remote(u))
	if ctx.Err() != nil {
		return "", false
	}
	f.noteAnswer(ctx, &Source{Upstream: u}, err)
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		return e.Reason, true
	}
	return "", err == nil
}

// outcomeOf returns the value of the metric label for the outcome of a request to an upstream. stored is true if the
// server can respond with older, stored content.
func outcomeOf(outcome string, stored bool, err error) string {
	_, limited := upstream.Limited(err)
	switch {
	case err == nil:
		return outcome
	case stored:
		return metric.Stale
	case errors.Is(err, errRemembered):
		return metric.Remembered
	case upstream.NotFound(err):
		return metric.Missing
	case limited:
		return metric.Limited
	case upstream.Refused(err):
		return metric.Denied
	}
	return metric.Failed
}

// noAnswer returns the warning for a client that gets stored content because a request to the upstream has failed.
func noAnswer(err error) string {
	reason := "it could not be stored"
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		reason = e.Reason
	} else if f, ok := errors.AsType[*fault.Error](err); ok && f.Code != fault.Internal {
		reason = f.Message
	}
	return "gave no answer that can be used: " + reason
}

// Problem returns the error for a client if content that is not stored could not be fetched because of err.
func (f *Fetcher) Problem(ctx context.Context, s *Source, err error) error {
	e, ok := errors.AsType[*upstream.Error](err)
	if !ok || ctx.Err() != nil {
		return err
	}
	wait, limited := upstream.Limited(err)
	switch {
	case limited:
		busy := fault.New(fault.ResourceExhausted, "%s was asked too often; try again later", s.Name)
		busy.RetryIn = wait
		return busy
	case upstream.NotFound(err):
		return oci.NewProblem(http.StatusNotFound, oci.ManifestUnknown, "%s does not have it", s.Name)
	case upstream.Refused(err):
		return oci.NewProblem(http.StatusForbidden, oci.Denied,
			"upstream %s returned \"denied\"; check the credentials and the image name", s.Name)
	}
	return oci.NewProblem(http.StatusBadGateway, oci.Unavailable, "%s cannot be used: %s", s.Name, e.Reason)
}

// OpenBlob returns the bytes of a blob from the upstream of a repo, or nil if the repo has no upstream.
func (f *Fetcher) OpenBlob(ctx context.Context, repo resource.UID, digest string) (io.ReadCloser, error) {
	if f.config.Upstreams == nil {
		return nil, nil
	}
	u, ok, err := f.UpstreamOf(ctx, repo.Parent())
	if err != nil || !ok {
		return nil, err
	}
	s := &Source{Upstream: u}
	for _, uid := range repo.Ancestors()[u.Group().Depth():] {
		g, err := f.iam.Group(ctx, uid)
		if err != nil {
			return nil, err
		}
		s.names = append(s.names, g.Name)
	}
	stored, err := f.store.Repo(ctx, repo)
	if err != nil {
		return nil, err
	}
	s.names = append(s.names, stored.Name)
	if err := f.pauses.err(u.UID, false, f.config.Now()); err != nil {
		return nil, err
	}
	end, err := f.blobs.take(ctx, u.UID.Root())
	if err != nil {
		return nil, err
	}
	b, err := f.config.Upstreams.Blob(ctx, f.remote(u), s.repo(), digest, 0)
	if err != nil {
		end()
		return nil, err
	}
	return &limitedBody{b, end}, nil
}

// A limitedBody is a response body that keeps its slot in a limiter until it is closed.
type limitedBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (l *limitedBody) Close() error {
	defer l.end()
	return l.ReadCloser.Close()
}
