package protocol

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

// Limits on asking an upstream.
const (
	statTime     = 5 * time.Second  // for whether a tag has moved, while somebody waits who could have what is stored
	manifestTime = 30 * time.Second // for a manifest that is not stored
	failurePause = 15 * time.Second // for which an upstream that failed is not asked whether a tag has moved
	seenCached   = 1 << 14
)

// A mirror is the repo of an upstream that a target is a copy of.
type mirror struct {
	registry.Upstream
	names []string // of the repo there
}

func (m *mirror) repo() string { return strings.Join(m.names, "/") }

// upstreamOf returns the upstream of a group, its own or that of a group above.
func (r *Registry) upstreamOf(ctx context.Context, group resource.UID) (u registry.Upstream, ok bool, _ error) {
	if group == "" {
		return u, false, nil
	}
	set, err := r.upstreams.Get(ctx)
	if err != nil {
		return u, false, err
	}
	u, ok = set.Over(group)
	return u, ok, nil
}

// mirrorOf returns what a target is a copy of, or nil.
func (r *Registry) mirrorOf(ctx context.Context, t target) (*mirror, error) {
	u, ok, err := r.upstreamOf(ctx, t.group)
	if err != nil || !ok {
		return nil, err
	}
	return &mirror{u, strings.Split(t.name, "/")[u.Group().Depth():]}, nil
}

// fetchable reports whether a target is something that can be fetched from an upstream.
func (t target) fetchable() bool {
	return (t.method == http.MethodGet || t.method == http.MethodHead) &&
		(t.kind == "manifest" || t.kind == "blob" || t.kind == "referrers")
}

// mayFetch reports whether the caller of a target may cause a fetch. Those who may pull only because everybody may get what
// is stored, unless the upstream says otherwise: a stranger must not fill the storage, or use up what the upstream allows.
func (r *Registry) mayFetch(t target, m *mirror) bool {
	return r.config.Upstreams != nil && m.Fetches(m.repo()) && (!t.public || m.Anyone)
}

// mirrored returns the manifest of a target that has an upstream. m and err are what is stored. Whatever the upstream does,
// what is stored is served, with a warning if nobody knows whether it is current. It sets the repo of the target.
func (r *Registry) mirrored(
	w http.ResponseWriter, req *http.Request, t *target, u *mirror, m registry.Manifest, err error,
) (registry.Manifest, error) {
	ctx, have := req.Context(), err == nil
	if !have && !errors.Is(err, fault.NotFound) {
		return m, err
	}
	tag := tagOf(t.reference)
	if have {
		fresh, err := r.fresh(ctx, *t, u, tag)
		if err != nil {
			return m, err
		}
		if fresh {
			r.config.Metrics.Upstreams.Add(1, metric.Manifest, metric.Hit)
			return m, nil
		}
	}
	if !r.mayFetch(*t, u) {
		if have {
			r.warnStale(w, u, "was not asked")
		}
		return m, err
	}
	held := ""
	if have {
		held = m.Digest
	}
	outcome, failed := r.refresh(ctx, u, t.name, t.reference, held)
	r.config.Metrics.Upstreams.Add(1, metric.Manifest, outcomeOf(outcome, have, failed))
	switch {
	case failed != nil && have && ctx.Err() == nil:
		r.warnStale(w, u, "gave no answer that can be used: "+reasonOf(failed))
		return m, nil
	case failed != nil:
		return m, r.upstreamProblem(ctx, u, failed)
	}
	return r.reread(ctx, t, u, m, outcome == metric.Unchanged)
}

// reread returns the manifest of a target after it was fetched.
func (r *Registry) reread(
	ctx context.Context, t *target, u *mirror, m registry.Manifest, same bool,
) (registry.Manifest, error) {
	if same {
		return m, nil
	}
	t.manifest = nil
	if err := r.relocate(ctx, t, u); err != nil {
		return m, err
	}
	return r.readManifest(ctx, *t)
}

// relocate sets the repo of a target that may have been created meanwhile.
func (r *Registry) relocate(ctx context.Context, t *target, u *mirror) error {
	repo, err := r.repoOf(ctx, u, t.name)
	if err == nil {
		t.repo, t.group, t.found = repo, repo.Parent(), true
	}
	return err
}

// repoOf returns the repo of a mirror, or fault.NotFound. While something was fetched, groups may have got other names: what
// is at the path now and not below the group of the upstream is somebody else's.
func (r *Registry) repoOf(ctx context.Context, u *mirror, name string) (resource.UID, error) {
	repo, err := r.store.RepoAt(ctx, strings.Split(name, "/"))
	if err == nil && !u.over(repo) {
		return "", fault.Missing("repo", name)
	}
	return repo, err
}

// over reports whether something is below the group of the upstream, or is that group.
func (m *mirror) over(uid resource.UID) bool {
	return uid == m.Group() || strings.HasPrefix(string(uid), string(m.Group())+"/")
}

// fresh reports whether what is stored need not be compared with the upstream: a digest, or a tag that was seen there not
// long ago.
func (r *Registry) fresh(ctx context.Context, t target, u *mirror, tag string) (bool, error) {
	if tag == "" {
		return true, nil
	}
	key := seenKey{t.repo, tag, u.UpdateTime}
	seen, ok := r.seen.Get(key)
	if !ok || r.store.Time().Sub(seen) >= u.FreshFor { // another replica may have seen it
		var err error
		if seen, err = r.store.TagSeen(ctx, t.repo, tag); err != nil {
			return false, err
		}
		r.seen.Add(key, seen)
	}
	return r.store.Time().Sub(seen) < u.FreshFor, nil
}

// A seenKey names a tag as of the settings of an upstream.
type seenKey struct {
	repo    resource.UID
	tag     string
	version time.Time
}

// warn tells the client something about the upstream, in a header.
func warn(w http.ResponseWriter, u *mirror, text string) {
	text = strings.Map(func(c rune) rune {
		if c == '"' || c == '\\' || c < ' ' || c > '~' {
			return -1
		}
		return c
	}, "this is what was fetched before: "+u.Name+" "+text)
	w.Header().Set("Warning", `299 - "`+text+`"`)
}

// warnStale tells the client that what it gets may not be what the upstream has.
func (r *Registry) warnStale(w http.ResponseWriter, u *mirror, why string) {
	warn(w, u, why)
	if why == "was not asked" {
		r.config.Metrics.Upstreams.Add(1, metric.Manifest, metric.Stale)
	}
}

// outcomeOf returns the value of the label for what came of asking an upstream.
func outcomeOf(outcome string, have bool, err error) string {
	_, limited := upstream.Limited(err)
	switch {
	case err == nil:
		return outcome
	case have:
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

// reasonOf returns why an upstream did not give something, for those who pull.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		return e.Reason
	}
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Code != fault.Internal {
		return f.Message
	}
	return "it could not be stored"
}

// upstreamProblem returns the Problem for what could not be fetched and is not stored.
func (r *Registry) upstreamProblem(ctx context.Context, u *mirror, err error) error {
	e, ok := errors.AsType[*upstream.Error](err)
	if !ok || ctx.Err() != nil {
		return err
	}
	wait, limited := upstream.Limited(err)
	switch {
	case limited:
		f := fault.New(fault.ResourceExhausted, "%s was asked too often; try again later", u.Name)
		f.RetryIn = wait
		return f
	case upstream.NotFound(err):
		return problem(http.StatusNotFound, manifestUnknown, "%s does not have it", u.Name)
	case upstream.Refused(err):
		return problem(http.StatusForbidden, denied, "%s does not give it: %s", u.Name, e.Reason)
	}
	return problem(http.StatusBadGateway, unavailable, "%s cannot be used: %s", u.Name, e.Reason)
}

// refresh brings a manifest of an upstream here, once for all who ask for the same at a time. held is the digest of what is
// stored under the reference, or "". It returns what it did.
func (r *Registry) refresh(
	ctx context.Context, u *mirror, name, reference, held string,
) (outcome string, err error) {
	key := string(u.UID) + " " + name + " " + reference + " " + held
	return r.asking.do(ctx, key, func(ctx context.Context) (string, error) {
		if err := r.leftAlone(u, "manifest", reference, held != ""); err != nil {
			return "", err
		}
		outcome, err := r.ask(ctx, u, name, reference, held)
		r.noteAnswer(ctx, u, err)
		r.absences.note(u.key("manifest", reference), err, r.config.Now())
		return outcome, err
	})
}

// leftAlone returns why an upstream is not to be asked for something now: it did not have it a moment ago, or is left alone.
func (r *Registry) leftAlone(u *mirror, kind, reference string, stored bool) error {
	now := r.config.Now()
	if err := r.absences.err(u.key(kind, reference), now); err != nil {
		return err
	}
	return r.pauses.err(u.UID, stored, now)
}

// noteAnswer notes what came of asking an upstream. Trouble is logged when it begins, and not whenever somebody pulls.
func (r *Registry) noteAnswer(ctx context.Context, u *mirror, err error) {
	r.failures.note(u.Upstream, err, r.config.Now())
	if !r.pauses.note(u.UID, err, r.config.Now()) {
		return
	}
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		r.config.Log.WarnContext(ctx, "an upstream is left alone for a while", "upstream", string(u.UID), "status", e.Status,
			"reason", e.Reason, "err", e.Cause)
	}
}

// ask is refresh by one.
func (r *Registry) ask(ctx context.Context, u *mirror, name, reference, held string) (outcome string, _ error) {
	soon, cancel := context.WithTimeout(ctx, manifestTime)
	if held != "" {
		soon, cancel = context.WithTimeout(ctx, statTime)
	}
	defer cancel()
	end, err := r.asks.take(soon, u.UID.Root())
	if err != nil {
		return "", err
	}
	defer end()
	remote, tag := r.remote(u.Upstream), tagOf(reference)
	if held != "" {
		there, err := r.statAt(soon, u, remote, reference)
		if err != nil {
			return "", err
		}
		if there == held {
			return metric.Unchanged, r.see(ctx, u, name, tag)
		}
		if there != "" {
			reference = there // a tag may move while it is pulled
		}
	}
	m, err := r.manifestAt(ctx, u, remote, name, reference)
	if err != nil {
		return "", err
	}
	return metric.Fetched, r.keepManifest(ctx, u, name, tag, m)
}

// statAt returns the digest of what an upstream has, or "" if it does not say it.
func (r *Registry) statAt(
	ctx context.Context, u *mirror, remote upstream.Registry, reference string,
) (string, error) {
	there, err := r.config.Upstreams.Stat(ctx, remote, u.repo(), reference)
	if err != nil || there.Digest == "" {
		return "", err
	}
	if _, err := parseDigest(there.Digest); err != nil {
		return "", &upstream.Error{Reason: "what it answers is no digest", Cause: err}
	}
	return there.Digest, nil
}

// see notes that a tag is at the upstream as it is here.
func (r *Registry) see(ctx context.Context, u *mirror, name, tag string) error {
	repo, err := r.repoOf(ctx, u, name)
	if err != nil {
		return err
	}
	if err := r.store.SeeTag(ctx, repo, tag); err != nil {
		return err
	}
	r.seen.Add(seenKey{repo, tag, u.UpdateTime}, r.store.Time())
	return nil
}

// manifestAt returns a manifest of an upstream, verified, or from here if it is here by its digest.
func (r *Registry) manifestAt(
	ctx context.Context, u *mirror, remote upstream.Registry, name, reference string,
) (registry.Manifest, error) {
	if tagOf(reference) == "" {
		if repo, err := r.repoOf(ctx, u, name); err == nil {
			if m, err := r.store.Manifest(ctx, repo, reference); err == nil {
				return m, nil
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, manifestTime)
	defer cancel()
	got, err := r.config.Upstreams.Manifest(ctx, remote, u.repo(), reference)
	if err != nil {
		return registry.Manifest{}, err
	}
	d := digest.FromBytes(got.Body)
	if tagOf(reference) == "" {
		got.Digest = reference
	}
	if got.Digest != "" {
		if d, err = parseDigest(got.Digest); err != nil || d.Algorithm().FromBytes(got.Body) != d {
			return registry.Manifest{}, &upstream.Error{Reason: "what it sent does not have the digest that it should have", Cause: err}
		}
	}
	m, err := parseManifest(got.MediaType, got.Body, true)
	if err != nil {
		return registry.Manifest{}, &upstream.Error{Reason: "what it sent is no manifest", Cause: err}
	}
	m.Digest = d.String()
	return m, nil
}

// keepManifest stores a manifest of an upstream, as the service itself.
func (r *Registry) keepManifest(ctx context.Context, u *mirror, name, tag string, m registry.Manifest) error {
	ctx = bySystem(ctx)
	ref, err := r.mirrorRef(ctx, u, name)
	if err != nil {
		return err
	}
	set, err := r.store.RegistrySettings(ctx, ref.Group)
	if err != nil {
		return err
	}
	repo, err := r.store.MirrorManifest(ctx, ref, m, tag, set.Frozen)
	if err != nil {
		return err
	}
	if tag != "" {
		r.seen.Add(seenKey{repo, tag, u.UpdateTime}, r.store.Time())
	}
	return nil
}

// bySystem returns a context in which the service itself makes the changes, because of a request.
func bySystem(ctx context.Context) context.Context {
	return resource.WithActor(ctx, resource.Actor{RequestID: resource.ActorFrom(ctx).RequestID})
}

// mirrorRef returns the repo that something of an upstream is stored in, after it has created the groups above it.
func (r *Registry) mirrorRef(ctx context.Context, u *mirror, name string) (ref registrydb.RepoRef, err error) {
	path := strings.Split(name, "/")
	ref = registrydb.RepoRef{Name: path[len(path)-1], Create: true}
	ref.Group, err = r.store.GroupAt(ctx, path[:len(path)-1])
	if err == nil && u.over(ref.Group) || err != nil && !errors.Is(err, fault.NotFound) {
		return ref, err
	}
	missing := u.names[:len(u.names)-1]
	if err := checkGroupNames(u.Group(), missing); err != nil {
		return ref, err
	}
	ref.Group, err = r.iam.EnsureGroups(ctx, u.Group(), missing)
	return ref, err
}

// fromUpstream returns a blob of a repo from the registry that the repo is a mirror of, or nil if it is none.
func (r *Registry) fromUpstream(ctx context.Context, repo resource.UID, digest string) (io.ReadCloser, error) {
	if r.config.Upstreams == nil {
		return nil, nil
	}
	u, ok, err := r.upstreamOf(ctx, repo.Parent())
	if err != nil || !ok {
		return nil, err
	}
	m := &mirror{Upstream: u}
	for _, uid := range repo.Ancestors()[u.Group().Depth():] {
		g, err := r.iam.Group(ctx, uid)
		if err != nil {
			return nil, err
		}
		m.names = append(m.names, g.Name)
	}
	stored, err := r.store.Repo(ctx, repo)
	if err != nil {
		return nil, err
	}
	m.names = append(m.names, stored.Name)
	if err := r.pauses.err(u.UID, false, r.config.Now()); err != nil {
		return nil, err
	}
	end, err := r.fetches.take(ctx, u.UID.Root())
	if err != nil {
		return nil, err
	}
	b, err := r.config.Upstreams.Blob(ctx, r.remote(u), m.repo(), digest, 0)
	if err != nil {
		end()
		return nil, err
	}
	return &leased{b, end}, nil
}

// A leased is a body that has a turn as long as it is open.
type leased struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (l *leased) Close() error {
	defer l.end()
	return l.ReadCloser.Close()
}
