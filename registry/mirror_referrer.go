package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/metric"
	"github.com/holdfast-dev/holdfast/upstream"
)

// maxFetchedReferrers is how many manifests about one image are fetched from an upstream.
const maxFetchedReferrers = 64

// fetchReferrers brings the manifests about a subject here that the upstream of a target has, if it has one. If the
// upstream fails, it warns: those that are here are listed. It sets the repo of the target.
func (r *Registry) fetchReferrers(w http.ResponseWriter, req *http.Request, t *target, subject digest.Digest) error {
	ctx := req.Context()
	u, err := r.mirrorOf(ctx, *t)
	if err != nil || u == nil || !r.mayFetch(*t, u) {
		return err
	}
	key := seenKey{u.UID, t.name + "@" + subject.String(), u.UpdateTime}
	if seen, ok := r.seen.Get(key); ok && r.store.Time().Sub(seen) < u.FreshFor {
		return nil
	}
	name := t.name
	_, err = r.asking.do(ctx, string(u.UID)+" referrers "+name+" "+subject.String(), func(ctx context.Context) (string, error) {
		if err := r.pauses.err(u.UID, true, r.config.Now()); err != nil {
			return "", err
		}
		return metric.Fetched, r.copyReferrers(ctx, u, name, subject)
	})
	if err != nil && ctx.Err() == nil {
		r.warnStale(w, u, "gave no answer that can be used: "+reasonOf(err))
	} else {
		r.seen.Add(key, r.store.Time())
	}
	if err := r.relocate(ctx, t, u); err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// copyReferrers fetches the manifests about a subject.
func (r *Registry) copyReferrers(ctx context.Context, u *mirror, name string, subject digest.Digest) error {
	list, err := r.listAt(ctx, u, subject)
	if upstream.NotFound(err) { // a registry without the method: clients note them at a tag
		tag := subject.Algorithm().String() + "-" + subject.Encoded()
		_, err := r.refresh(ctx, u, name, tag[:min(len(tag), maxTag)], "")
		if upstream.NotFound(err) {
			return nil
		}
		return err
	}
	for _, d := range list[:min(len(list), maxFetchedReferrers)] {
		if _, err := parseDigest(d.Digest.String()); err != nil {
			return &upstream.Error{Reason: "what it sent is no list of referrers", Cause: err}
		}
		if _, err := r.refresh(ctx, u, name, d.Digest.String(), ""); err != nil && !upstream.NotFound(err) {
			return err
		}
	}
	return err
}

// listAt returns what an upstream says is attached to a subject.
func (r *Registry) listAt(ctx context.Context, u *mirror, subject digest.Digest) ([]ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, statTime)
	defer cancel()
	end, err := r.asks.take(ctx, u.UID.Root())
	if err != nil {
		return nil, err
	}
	defer end()
	body, err := r.config.Upstreams.Referrers(ctx, r.remote(u.RegistryUpstream), u.repo(), subject.String())
	r.noteAnswer(ctx, u, err)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(body, &index); err != nil || index.SchemaVersion != 2 {
		return nil, &upstream.Error{Reason: "what it sent is no list of referrers", Cause: err}
	}
	return index.Manifests, nil
}
