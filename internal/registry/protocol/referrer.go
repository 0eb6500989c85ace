package protocol

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// Limits on a page of referrers. A Link header leads to the next page. A referrer is listed with its
// annotations, which can be as long as a manifest, so a page also ends before it is longer than that: it is an
// index, and clients read no longer ones. Anybody may list the referrers in a public repo, so the cost of a page
// must be bounded.
const (
	maxReferrers        = 200
	maxAnnotations      = maxManifest // bytes that are read; the last referrer may exceed it
	maxReferrersPage    = maxManifest - 1<<10
	referrersPerQuery   = 8 // each of up to maxManifest bytes
	unattachedsPerQuery = 64
)

// listReferrers responds with an index, which is empty if there are no referrers: a
// 404 would mean that this registry does not support the method.
func (r *Registry) listReferrers(w http.ResponseWriter, req *http.Request, t target) error {
	subject, err := parseDigest(t.reference)
	if err != nil {
		return err
	}
	q := req.URL.Query()
	kind, last := q.Get("artifactType"), q.Get("last")
	if strings.ContainsRune(kind+last, 0) {
		return problem(http.StatusBadRequest, unsupported, "a NUL character is in nothing")
	}
	if err := r.fetchReferrers(w, req, &t, subject); err != nil {
		return err
	}
	list, more, err := r.allReferrers(req.Context(), t.repo, subject, kind, last)
	if err != nil {
		return err
	}
	if more {
		setNext(w, req, list[len(list)-1].Digest.String())
	}
	if kind != "" {
		w.Header().Set("Oci-Filters-Applied", "artifactType")
	}
	return writeJSON(w, req, ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: list,
	})
}

// allReferrers returns a page of the referrers of a subject after last, ordered by
// digest: those that name it, and those that clients have noted at its tag. more is true
// if there are others after the page.
func (r *Registry) allReferrers(
	ctx context.Context, repo resource.UID, subject digest.Digest, kind, last string,
) (list []ocispec.Descriptor, more bool, _ error) {
	list, more, err := r.referrers(ctx, repo, subject, kind, last)
	if err != nil {
		return nil, false, err
	}
	wanted := func(d ocispec.Descriptor) bool {
		return d.Digest.String() > last && (kind == "" || d.ArtifactType == kind) &&
			(!more || d.Digest < list[len(list)-1].Digest)
	}
	tagged, err := r.taggedReferrers(ctx, repo, subject, maxReferrers+1, wanted)
	if err != nil {
		return nil, false, err
	}
	list = append(list, tagged...)
	slices.SortFunc(list, byDigest)
	n, err := fitting(list)
	return list[:n], more || n < len(list), err
}

// fitting returns how many of the referrers in a list are on a page. It is one at least, if there is one.
func fitting(list []ocispec.Descriptor) (n int, _ error) {
	size := 0
	for n := range list {
		text, err := json.Marshal(list[n])
		if err != nil {
			return 0, fmt.Errorf("encode referrer: %w", err)
		}
		if size += len(text) + 1; n == maxReferrers || n > 0 && size > maxReferrersPage {
			return n, nil
		}
	}
	return len(list), nil
}

// A Referrer is an artifact that is attached to an image.
type Referrer struct {
	Digest, MediaType, ArtifactType string
	Size                            int64
	Annotations                     map[string]string
}

// Referrers returns up to 200 artifacts that are attached to an image, ordered by digest,
// after a digest or "". more is true if there are others. The caller needs repo.list and
// referrers.list on the repo. It returns fault.NotFound if there is no such repo; an image
// that is not there has none.
func (s *Service) Referrers(
	ctx context.Context, repo resource.UID, subject, after string,
) (all []Referrer, more bool, _ error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ReferrersList); err != nil {
		return nil, false, err
	}
	if !resource.ValidDigest(subject) {
		return nil, false, fault.Field("digest", "is not a digest")
	}
	if after != "" && !resource.ValidDigest(after) {
		return nil, false, fault.Field("after", "is not a digest")
	}
	if _, err := s.store.Repo(ctx, repo); err != nil {
		return nil, false, err
	}
	list, more, err := s.images.allReferrers(ctx, repo, digest.Digest(subject), "", after)
	for _, d := range list {
		all = append(all, Referrer{d.Digest.String(), d.MediaType, d.ArtifactType, d.Size, d.Annotations})
	}
	return all, more, err
}

func byDigest(a, b ocispec.Descriptor) int { return cmp.Compare(a.Digest, b.Digest) }

// referrers returns a page of the manifests with a subject, ordered by digest. more
// is true if there are others after the page.
func (r *Registry) referrers(
	ctx context.Context, repo resource.UID, subject digest.Digest, kind, last string,
) (list []ocispec.Descriptor, more bool, _ error) {
	list = []ocispec.Descriptor{}
	size := 0 // of the annotations
	for {
		some, err := r.store.Referrers(ctx, repo, subject.String(), kind, last, referrersPerQuery)
		if err != nil {
			return nil, false, err
		}
		for _, m := range some {
			if len(list) == maxReferrers || size >= maxAnnotations {
				return list, true, nil
			}
			d, err := describe(m)
			if err != nil {
				return nil, false, err
			}
			list, size, last = append(list, d), size+len(m.Annotations), m.Digest
		}
		if len(some) < referrersPerQuery {
			return list, false, nil
		}
	}
}

// describe returns the descriptor of a referrer.
func describe(m registry.Manifest) (ocispec.Descriptor, error) {
	d := ocispec.Descriptor{
		MediaType: m.MediaType, Digest: digest.Digest(m.Digest), Size: m.Size, ArtifactType: m.ArtifactType,
	}
	if m.Annotations != "" {
		if err := json.Unmarshal([]byte(m.Annotations), &d.Annotations); err != nil {
			return d, fmt.Errorf("decode annotations: %w", err)
		}
	}
	return d, nil
}

// referrersTag returns the tag at which clients note what is about a subject, if a registry cannot list it.
func referrersTag(subject digest.Digest) string {
	tag := subject.Algorithm().String() + "-" + subject.Encoded()
	return tag[:min(len(tag), maxTag)]
}

// taggedReferrers returns up to n wanted referrers from the index of the referrers
// tag, which clients write if a registry cannot list referrers: each once, ordered
// by digest. It leaves out manifests that name their subject themselves.
func (r *Registry) taggedReferrers(
	ctx context.Context, repo resource.UID, subject digest.Digest, n int, wanted func(ocispec.Descriptor) bool,
) ([]ocispec.Descriptor, error) {
	tag := referrersTag(subject)
	m, err := r.store.Manifest(ctx, repo, tag)
	if errors.Is(err, fault.NotFound) || err == nil && m.MediaType != ocispec.MediaTypeImageIndex {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(m.Body, &index); err != nil {
		return nil, fmt.Errorf("decode %s: %w", tag, err)
	}
	listed := slices.DeleteFunc(index.Manifests, func(d ocispec.Descriptor) bool { return !wanted(d) })
	slices.SortStableFunc(listed, byDigest)
	listed = slices.CompactFunc(listed, func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest })
	var all []ocispec.Descriptor
	for some := range slices.Chunk(listed, unattachedsPerQuery) {
		var digests []string
		for _, d := range some {
			digests = append(digests, d.Digest.String())
		}
		found, err := r.store.Unattached(ctx, repo, digests)
		if err != nil {
			return nil, err
		}
		for _, d := range some {
			if found[d.Digest.String()] {
				all = append(all, d)
			}
		}
		if len(all) >= n {
			return all[:n], nil
		}
	}
	return all, nil
}
