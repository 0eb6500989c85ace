package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

// Limits on the manifests about one image that are fetched from an upstream.
const (
	maxFetchedReferrers = 64
	maxReferrerPages    = 16
)

// What came of fetching referrers.
const (
	allReferrersHere  = "all"
	someReferrersHere = "some" // the upstream lists more than are fetched
)

// fetchReferrers brings the manifests about a subject here that the upstream of a target has, if it has one. If the
// upstream fails, or has more than are fetched, it warns: those that are here are listed. It sets the repo of the target.
func (r *Registry) fetchReferrers(w http.ResponseWriter, req *http.Request, t *target, subject digest.Digest) error {
	ctx := req.Context()
	u, err := r.mirrorOf(ctx, *t)
	if err != nil || u == nil || !r.mayFetch(*t, u) {
		return err
	}
	key := seenKey{u.UID, t.name + "@" + subject.String(), u.UpdateTime}
	cut := key
	cut.tag += " cut off"
	if seen, ok := r.seen.Get(key); !ok || r.store.Time().Sub(seen) >= u.FreshFor {
		here, err := r.shareReferrers(ctx, u, t.name, subject)
		switch {
		case err != nil && ctx.Err() == nil:
			r.warnStale(w, u, "gave no answer that can be used: "+reasonOf(err))
		case err == nil && here == someReferrersHere:
			r.seen.Add(cut, r.store.Time())
		case err == nil:
			r.seen.Remove(cut)
		}
		if err == nil {
			r.seen.Add(key, r.store.Time())
		}
	}
	if r.seen.Contains(cut) && w.Header().Get("Warning") == "" {
		warn(w, u, "lists more than "+strconv.Itoa(maxFetchedReferrers)+" referrers, or does not end its list: not all were fetched")
	}
	if err := r.relocate(ctx, t, u); err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// shareReferrers is copyReferrers, once for all who ask for the same at a time.
func (r *Registry) shareReferrers(ctx context.Context, u *mirror, name string, subject digest.Digest) (here string, _ error) {
	return r.asking.do(ctx, string(u.UID)+" referrers "+name+" "+subject.String(), func(ctx context.Context) (string, error) {
		if err := r.pauses.err(u.UID, true, r.config.Now()); err != nil {
			return "", err
		}
		return r.copyReferrers(ctx, u, name, subject)
	})
}

// copyReferrers fetches the manifests about a subject, and returns whether these are all.
func (r *Registry) copyReferrers(ctx context.Context, u *mirror, name string, subject digest.Digest) (here string, _ error) {
	list, here, err := r.listAt(ctx, u, subject)
	if upstream.NotFound(err) || upstream.Unsupported(err) { // a registry without the method: clients note them at a tag
		list, here, err = r.notedAt(ctx, u, name, subject)
	}
	if err != nil {
		return "", err
	}
	for _, d := range list {
		if _, err := r.refresh(ctx, u, name, d, ""); err != nil && !upstream.NotFound(err) {
			return "", err
		}
	}
	return here, nil
}

// listAt returns the digests of what an upstream says is attached to a subject, and whether these are all. It follows the
// pages of the list, unless they lead back to one that was read.
func (r *Registry) listAt(ctx context.Context, u *mirror, subject digest.Digest) (list []string, here string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, manifestTime)
	defer cancel()
	end, err := r.asks.take(ctx, u.UID.Root())
	if err != nil {
		return nil, "", err
	}
	defer end()
	asked := map[string]bool{}
	for query := ""; len(asked) < maxReferrerPages && !asked[query]; {
		asked[query] = true
		page, err := r.config.Upstreams.Referrers(ctx, r.remote(u.Upstream), u.repo(), subject.String(), query)
		r.noteAnswer(ctx, u, err)
		if err != nil {
			return nil, "", err
		}
		some, fits, err := readReferrers(page.Body, list)
		if err != nil || !fits {
			return some, someReferrersHere, err
		}
		if !page.More {
			return some, allReferrersHere, nil
		}
		list, query = some, page.Next
	}
	return list, someReferrersHere, nil
}

// notedAt returns the digests in the index at the tag where clients note what is about a subject, after it was fetched,
// and whether these are all.
func (r *Registry) notedAt(
	ctx context.Context, u *mirror, name string, subject digest.Digest,
) (list []string, here string, _ error) {
	tag := referrersTag(subject)
	_, err := r.refresh(ctx, u, name, tag, "")
	if upstream.NotFound(err) {
		return nil, allReferrersHere, nil
	}
	if err != nil {
		return nil, "", err
	}
	repo, err := r.repoOf(ctx, u, name)
	if err != nil {
		return nil, "", err
	}
	m, err := r.store.Manifest(ctx, repo, tag)
	if err != nil {
		return nil, "", err
	}
	list, fits, err := readReferrers(m.Body, nil)
	if !fits {
		return list, someReferrersHere, err
	}
	return list, allReferrersHere, err
}

// readReferrers adds the digests in an index to a list, each once. It reports false if there are more than are fetched.
func readReferrers(body []byte, list []string) (_ []string, fits bool, _ error) {
	var index ocispec.Index
	if err := json.Unmarshal(body, &index); err != nil || index.SchemaVersion != 2 {
		return nil, false, &upstream.Error{Reason: "what it sent is no list of referrers", Cause: err}
	}
	for _, d := range index.Manifests {
		if _, err := parseDigest(d.Digest.String()); err != nil {
			return nil, false, &upstream.Error{Reason: "what it sent is no list of referrers", Cause: err}
		}
		if slices.Contains(list, d.Digest.String()) {
			continue
		}
		if len(list) == maxFetchedReferrers {
			return list, false, nil
		}
		list = append(list, d.Digest.String())
	}
	return list, true, nil
}
