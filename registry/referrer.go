package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/fault"
)

// maxReferrers is the longest page of referrers; the rest is behind a Link.
const maxReferrers = 200

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
	list, err := r.store.Referrers(req.Context(), t.repo, subject.String(), kind, last, maxReferrers+1)
	if err != nil {
		return err
	}
	more := len(list) > maxReferrers
	if more {
		list = list[:maxReferrers]
		setNext(w, req, list[maxReferrers-1].Digest)
	}
	index := ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{},
	}
	seen := map[digest.Digest]bool{}
	for _, m := range list {
		d := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.Digest(m.Digest), Size: m.Size, ArtifactType: m.ArtifactType}
		if m.Annotations != "" {
			if err := json.Unmarshal([]byte(m.Annotations), &d.Annotations); err != nil {
				return fmt.Errorf("decode annotations: %w", err)
			}
		}
		seen[d.Digest] = true
		index.Manifests = append(index.Manifests, d)
	}
	if !more {
		adopted, err := r.adopted(req.Context(), t, subject)
		if err != nil {
			return err
		}
		for _, d := range adopted {
			if !seen[d.Digest] && d.Digest.String() > last && (kind == "" || d.ArtifactType == kind) {
				index.Manifests = append(index.Manifests, d)
			}
		}
	}
	if kind != "" {
		w.Header().Set("Oci-Filters-Applied", "artifactType")
	}
	return writeJSON(w, req, ocispec.MediaTypeImageIndex, index)
}

// adopted returns the referrers that clients noted in an index under a tag, as
// they do where a registry does not list them. What says itself whom it is
// about is listed without.
func (r *Registry) adopted(ctx context.Context, t target, subject digest.Digest) ([]ocispec.Descriptor, error) {
	tag := subject.Algorithm().String() + "-" + subject.Encoded()
	m, err := r.store.Manifest(ctx, t.repo, tag[:min(len(tag), 128)])
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
	var all []ocispec.Descriptor
	for _, d := range index.Manifests {
		child, err := r.store.Manifest(ctx, t.repo, d.Digest.String())
		if errors.Is(err, fault.NotFound) || err == nil && child.Subject != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}
