package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

// Limits on a page of referrers. A referrer is listed with its annotations, which can be as long as a manifest. A page
// is an index, and clients read an index only up to the size of a manifest, so a page also ends before it exceeds that
// size. The cost of a page must be bounded, because anybody may list the referrers in a public repo.
const (
	maxReferrers        = 200
	maxAnnotations      = oci.MaxManifest // bytes of annotations that are read; the last referrer may exceed the limit
	maxReferrersPage    = oci.MaxManifest - 1<<10
	referrersPerQuery   = 8 // small, because each referrer can have oci.MaxManifest bytes
	unattachedsPerQuery = 64
)

// A ReferrersPage is a page of referrers, ordered by digest.
type ReferrersPage struct {
	List []ocispec.Descriptor
	More bool // whether there are further referrers after this page
}

// Referrers returns a page of the referrers of a subject after the digest last. These are the manifests that name the
// subject, and the manifests in the index at its referrers tag.
func (r *Reader) Referrers(
	ctx context.Context, repo resource.UID, subject digest.Digest, kind, last string,
) (ReferrersPage, error) {
	page, err := r.subjectReferrers(ctx, repo, subject, kind, last)
	if err != nil {
		return ReferrersPage{}, err
	}
	list := page.List
	wanted := func(d ocispec.Descriptor) bool {
		return d.Digest.String() > last && (kind == "" || d.ArtifactType == kind) &&
			(!page.More || d.Digest < list[len(list)-1].Digest)
	}
	tagged, err := r.taggedReferrers(ctx, repo, subject, maxReferrers+1, wanted)
	if err != nil {
		return ReferrersPage{}, err
	}
	merged := append(slices.Clip(list), tagged...)
	slices.SortFunc(merged, byDigest)
	n, err := fitting(merged)
	return ReferrersPage{merged[:n], page.More || n < len(merged)}, err
}

// fitting returns how many referrers from the start of a list fit on a page. The first always fits.
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

func byDigest(a, b ocispec.Descriptor) int { return cmp.Compare(a.Digest, b.Digest) }

// subjectReferrers returns a page of the manifests that name a subject.
func (r *Reader) subjectReferrers(
	ctx context.Context, repo resource.UID, subject digest.Digest, kind, last string,
) (page ReferrersPage, _ error) {
	page.List = []ocispec.Descriptor{}
	size := 0 // bytes of the annotations so far
	for {
		batch, err := r.store.Referrers(ctx, repo, subject.String(), kind, last, referrersPerQuery)
		if err != nil {
			return ReferrersPage{}, err
		}
		for _, m := range batch {
			if len(page.List) == maxReferrers || size >= maxAnnotations {
				page.More = true
				return page, nil
			}
			d, err := describe(m)
			if err != nil {
				return ReferrersPage{}, err
			}
			page.List, size, last = append(page.List, d), size+len(m.Annotations), m.Digest
		}
		if len(batch) < referrersPerQuery {
			return page, nil
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

// taggedReferrers returns up to n referrers that are wanted, from the index at the referrers tag. Clients write that
// index if a registry cannot list referrers. The result is ordered by digest and has no duplicates. It leaves out
// manifests that name their subject themselves, because subjectReferrers returns them.
func (r *Reader) taggedReferrers(
	ctx context.Context, repo resource.UID, subject digest.Digest, n int, wanted func(ocispec.Descriptor) bool,
) ([]ocispec.Descriptor, error) {
	tag := oci.ReferrersTag(subject)
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
	for chunk := range slices.Chunk(listed, unattachedsPerQuery) {
		var digests []string
		for _, d := range chunk {
			digests = append(digests, d.Digest.String())
		}
		found, err := r.store.Unattached(ctx, repo, digests)
		if err != nil {
			return nil, err
		}
		for _, d := range chunk {
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
