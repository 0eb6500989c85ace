package registry

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

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// The longest page of referrers; the rest is behind a Link. A referrer is listed
// with its annotations, which can be as long as a manifest, so a page also ends
// once they are as long as that together. Anybody may ask for the referrers in a
// public repo: what a page costs must not depend on what was pushed.
const (
	maxReferrers      = 200
	maxReferrerNotes  = maxManifest // bytes of annotations, or those of one referrer more
	referrersAtOnce   = 8           // read from the database at once, each of up to maxManifest
	unattachedAtATime = 64          // looked for in the database at once
)

// listReferrers answers with an index, empty if there is nothing: a 404 would
// tell the client that this registry does not know referrers.
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
	list, more, err := r.referrers(req.Context(), t, subject, kind, last)
	if err != nil {
		return err
	}
	wanted := func(d ocispec.Descriptor) bool {
		return d.Digest.String() > last && (kind == "" || d.ArtifactType == kind) && (!more || d.Digest < list[len(list)-1].Digest)
	}
	adopted, err := r.adopted(req.Context(), t.repo, subject, maxReferrers+1, wanted)
	if err != nil {
		return err
	}
	list = append(list, adopted...)
	slices.SortFunc(list, byDigest)
	if len(list) > maxReferrers {
		list, more = list[:maxReferrers], true
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

func byDigest(a, b ocispec.Descriptor) int { return cmp.Compare(a.Digest, b.Digest) }

// referrers returns a page of the manifests that name a subject, in the order of
// their digests. more is true if others follow the last of them.
func (r *Registry) referrers(ctx context.Context, t target, subject digest.Digest, kind, last string) (list []ocispec.Descriptor, more bool, _ error) {
	list = []ocispec.Descriptor{}
	notes := 0
	for {
		some, err := r.store.Referrers(ctx, t.repo, subject.String(), kind, last, referrersAtOnce)
		if err != nil {
			return nil, false, err
		}
		for _, m := range some {
			if len(list) == maxReferrers || notes >= maxReferrerNotes {
				return list, true, nil
			}
			d, err := describe(m)
			if err != nil {
				return nil, false, err
			}
			list, notes, last = append(list, d), notes+len(m.Annotations), m.Digest
		}
		if len(some) < referrersAtOnce {
			return list, false, nil
		}
	}
}

// describe returns the descriptor of a referrer.
func describe(m resource.Manifest) (ocispec.Descriptor, error) {
	d := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.Digest(m.Digest), Size: m.Size, ArtifactType: m.ArtifactType}
	if m.Annotations != "" {
		if err := json.Unmarshal([]byte(m.Annotations), &d.Annotations); err != nil {
			return d, fmt.Errorf("decode annotations: %w", err)
		}
	}
	return d, nil
}

// adopted returns up to n of the referrers that clients noted in an index under a
// tag, as they do where a registry does not list them: each once, in the order of
// their digests, those that are wanted. What says itself whom it is about is
// listed without.
func (r *Registry) adopted(ctx context.Context, repo resource.UID, subject digest.Digest, n int, wanted func(ocispec.Descriptor) bool) ([]ocispec.Descriptor, error) {
	tag := subject.Algorithm().String() + "-" + subject.Encoded()
	m, err := r.store.Manifest(ctx, repo, tag[:min(len(tag), maxTag)])
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
	noted := slices.DeleteFunc(index.Manifests, func(d ocispec.Descriptor) bool { return !wanted(d) })
	slices.SortStableFunc(noted, byDigest)
	noted = slices.CompactFunc(noted, func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest })
	var all []ocispec.Descriptor
	for some := range slices.Chunk(noted, unattachedAtATime) {
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
