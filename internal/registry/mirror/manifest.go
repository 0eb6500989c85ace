package mirror

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

const (
	// statTime limits a request that checks whether a tag has moved. It is short because a client is waiting, which
	// could get the stored image.
	statTime = 5 * time.Second

	// manifestTime limits a request for a manifest that is not stored.
	manifestTime = 30 * time.Second
)

// A Pull is a client's request for a manifest in a repo that mirrors an upstream.
type Pull struct {
	Path      string       // path of the repo on this server
	Repo      resource.UID // "" if the repo does not exist yet
	Reference string
	Public    bool   // the caller may pull only because the repo is public
	Stored    string // digest of the stored manifest; "" if there is none
}

// Update makes the stored manifest of a pull equal to the manifest at the upstream. changed reports whether it has
// stored another manifest. The stored manifest can always be served: if Update cannot find out whether it is current,
// it returns a warning for the client.
func (f *Fetcher) Update(ctx context.Context, s *Source, p Pull) (changed bool, warning string, _ error) {
	stored := p.Stored != ""
	if stored {
		fresh, err := f.fresh(ctx, p.Repo, s, oci.TagOf(p.Reference))
		if err != nil {
			return false, "", err
		}
		if fresh {
			f.config.Metrics.Upstreams.Add(1, metric.Manifest, metric.Hit)
			return false, "", nil
		}
	}
	if !f.MayFetch(s, p.Public) {
		if stored {
			f.config.Metrics.Upstreams.Add(1, metric.Manifest, metric.Stale)
			warning = "was not asked"
		}
		return false, warning, nil
	}
	outcome, err := f.fetchManifest(ctx, s, p.Path, p.Reference, p.Stored)
	f.config.Metrics.Upstreams.Add(1, metric.Manifest, outcomeOf(outcome, stored, err))
	switch {
	case err != nil && stored && ctx.Err() == nil:
		return false, noAnswer(err), nil
	case err != nil:
		return false, "", f.Problem(ctx, s, err)
	}
	return outcome != metric.Unchanged, "", nil
}

// fresh reports whether a stored manifest need not be compared with the upstream. This is the case if it is named by
// its digest, or if the tag was compared less than FreshFor ago.
func (f *Fetcher) fresh(ctx context.Context, repo resource.UID, s *Source, tag string) (bool, error) {
	if tag == "" {
		return true, nil
	}
	key := seenKey{repo, tag, s.UpdateTime}
	seen, ok := f.seen.Get(key)
	if !ok || f.store.Time().Sub(seen) >= s.FreshFor { // another replica may have compared the tag
		var err error
		if seen, err = f.store.TagSeen(ctx, repo, tag); err != nil {
			return false, err
		}
		f.seen.Add(key, seen)
	}
	return f.store.Time().Sub(seen) < s.FreshFor, nil
}

// A seenKey identifies a tag. It includes the version of the upstream's settings.
type seenKey struct {
	repo    resource.UID
	tag     string
	version time.Time
}

// fetchManifest fetches a manifest from an upstream and stores it. Concurrent calls for the same manifest share one
// request. held is the digest of the manifest that is stored under the reference, or "". The result is the outcome of
// the request, as the value of a metric label.
func (f *Fetcher) fetchManifest(
	ctx context.Context, s *Source, path, reference, held string,
) (outcome string, err error) {
	key := string(s.UID) + " " + path + " " + reference + " " + held
	return f.shared.do(ctx, key, func(ctx context.Context) (string, error) {
		if err := f.checkPause(s, "manifest", reference, held != ""); err != nil {
			return "", err
		}
		outcome, err := f.requestManifest(ctx, s, path, reference, held)
		f.noteAnswer(ctx, s, err)
		f.absences.note(s.key("manifest", reference), err, f.config.Now())
		return outcome, err
	})
}

// requestManifest is fetchManifest without sharing the request.
func (f *Fetcher) requestManifest(
	ctx context.Context, s *Source, path, reference, held string,
) (outcome string, _ error) {
	limit := manifestTime
	if held != "" {
		limit = statTime
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	end, err := f.short.take(timed, s.UID.Root())
	if err != nil {
		return "", err
	}
	defer end()
	remote, tag := f.remote(s.Upstream), oci.TagOf(reference)
	if held != "" {
		current, err := f.currentDigest(timed, s, remote, reference)
		if err != nil {
			return "", err
		}
		if current == held {
			return metric.Unchanged, f.noteSeen(ctx, s, path, tag)
		}
		if current != "" {
			reference = current // fetched by digest, because the tag may move during the pull
		}
	}
	m, err := f.readManifest(ctx, s, remote, path, reference)
	if err != nil {
		return "", err
	}
	return metric.Fetched, f.storeManifest(ctx, s, path, tag, m)
}

// currentDigest returns the digest of a reference at an upstream, or "" if the upstream does not report it.
func (f *Fetcher) currentDigest(
	ctx context.Context, s *Source, remote upstream.Registry, reference string,
) (string, error) {
	found, err := f.config.Upstreams.Stat(ctx, remote, s.repo(), reference)
	if err != nil || found.Digest == "" {
		return "", err
	}
	if _, err := oci.ParseDigest(found.Digest); err != nil {
		return "", &upstream.Error{Reason: "what it answers is no digest", Cause: err}
	}
	return found.Digest, nil
}

// noteSeen records that a tag now points to the same digest at the upstream and on this server.
func (f *Fetcher) noteSeen(ctx context.Context, s *Source, path, tag string) error {
	repo, err := f.RepoOf(ctx, s, path)
	if err != nil {
		return err
	}
	if err := f.store.SeeTag(ctx, repo, tag); err != nil {
		return err
	}
	f.seen.Add(seenKey{repo, tag, s.UpdateTime}, f.store.Time())
	return nil
}

// readManifest fetches a manifest from an upstream, verifies its digest, and returns it. If the reference is a digest
// that is already stored, it returns the stored manifest.
func (f *Fetcher) readManifest(
	ctx context.Context, s *Source, remote upstream.Registry, path, reference string,
) (registry.Manifest, error) {
	if oci.TagOf(reference) == "" {
		if repo, err := f.RepoOf(ctx, s, path); err == nil {
			if m, err := f.store.Manifest(ctx, repo, reference); err == nil {
				return m, nil
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, manifestTime)
	defer cancel()
	got, err := f.config.Upstreams.Manifest(ctx, remote, s.repo(), reference)
	if err != nil {
		return registry.Manifest{}, err
	}
	d := digest.FromBytes(got.Body)
	if oci.TagOf(reference) == "" {
		got.Digest = reference
	}
	if got.Digest != "" {
		if d, err = oci.ParseDigest(got.Digest); err != nil || d.Algorithm().FromBytes(got.Body) != d {
			return registry.Manifest{}, &upstream.Error{Reason: wrongDigest, Cause: err}
		}
	}
	m, err := oci.ParseManifest(got.MediaType, got.Body, true)
	if err != nil {
		return registry.Manifest{}, &upstream.Error{Reason: "what it sent is no manifest", Cause: err}
	}
	m.Digest = d.String()
	return m, nil
}

// storeManifest stores a manifest from an upstream. The change is recorded with the server itself as the actor.
func (f *Fetcher) storeManifest(ctx context.Context, s *Source, path, tag string, m registry.Manifest) error {
	ctx = bySystem(ctx)
	ref, err := f.repoRef(ctx, s, path)
	if err != nil {
		return err
	}
	set, err := f.store.RegistrySettings(ctx, ref.Group)
	if err != nil {
		return err
	}
	repo, err := f.store.MirrorManifest(ctx, ref, m, tag, set.Frozen)
	if err != nil {
		return err
	}
	if tag != "" {
		f.seen.Add(seenKey{repo, tag, s.UpdateTime}, f.store.Time())
	}
	return nil
}
