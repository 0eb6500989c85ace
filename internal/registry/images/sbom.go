package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

const (
	maxIndexes   = 20 // indexes listing an image that are searched for attestations
	maxDocuments = 20 // documents that are returned for one image, newest first
)

// A Candidate is a document that is attached to an image and may be an SBOM.
type Candidate struct {
	registry.Origin        // manifest that contains the document, and the identity that pushed it
	Layer           Layer  // layer that contains the document
	Large           string // reason why the document is not read, or ""
}

// Candidates returns the documents that are attached to an image of a repo and may be SBOMs, newest first. It
// searches the same places as Find, except that in the indexes that list the image it uses only BuildKit's
// attestations. Other documents in an index do not name the image that they describe. It returns fault.NotFound if
// there is no such image.
func (r *Reader) Candidates(ctx context.Context, repo resource.UID, image string) (all []Candidate, _ error) {
	if _, err := r.store.StatManifest(ctx, repo, image); err != nil {
		return nil, err
	}
	about, err := r.about(ctx, repo, image)
	if err != nil {
		return nil, err
	}
	indexes, err := r.imageIndex.IndexesWith(ctx, repo, image, maxIndexes)
	if err != nil {
		return nil, err
	}
	for _, digest := range indexes {
		_, index, err := r.document(ctx, repo, digest)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		attestations, err := r.attestations(ctx, repo, index, image)
		if err != nil {
			return nil, err
		}
		about = append(about, attestations...)
	}
	slices.SortStableFunc(about, func(a, b registry.Manifest) int {
		return cmp.Or(b.PushTime.Compare(a.PushTime), cmp.Compare(a.Digest, b.Digest))
	})
	about = slices.CompactFunc(about, func(a, b registry.Manifest) bool { return a.Digest == b.Digest })
	return r.candidates(ctx, repo, about[:min(len(about), maxAttached)])
}

// candidates returns the documents in manifests, with the identity that pushed each document.
func (r *Reader) candidates(
	ctx context.Context, repo resource.UID, about []registry.Manifest,
) (all []Candidate, _ error) {
	var digests []string
	for _, m := range about {
		digests = append(digests, m.Digest)
	}
	actors, err := r.imageIndex.Pushers(ctx, repo, digests)
	if err != nil {
		return nil, err
	}
	for _, m := range about {
		var doc oci.Document
		if json.Unmarshal(m.Body, &doc) != nil {
			continue
		}
		for _, d := range slices.Backward(append(doc.Blobs, doc.Layers...)) {
			large := d.Size > evidence.MaxDocument
			if !mayBeSBOM(d.MediaType, d.Annotations) || large && !isSBOM(d.MediaType) {
				continue
			}
			if len(all) == maxDocuments {
				return all, nil
			}
			blob := d.Digest.String()
			c := Candidate{Origin: registry.Origin{Manifest: m.Digest, By: actors[m.Digest], Time: m.PushTime},
				Layer: Layer{Layer: registry.Layer{Digest: blob, MediaType: d.MediaType, Size: d.Size},
					Open: func(ctx context.Context) (io.ReadCloser, error) { return r.openBlob(ctx, repo, blob) }}}
			if large {
				c.Large = "a document is larger than 16 MiB, and was not read"
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// mayBeSBOM reports whether a layer may be an SBOM. It checks the media type and, for an attestation, the predicate
// type.
func mayBeSBOM(mediaType string, annotations map[string]string) bool {
	predicate := annotations["in-toto.io/predicate-type"] + annotations["predicateType"]
	return mayBeDocument(mediaType) && !strings.Contains(predicate, "slsa.dev/provenance")
}

// isSBOM reports whether a media type is used only for SBOMs.
func isSBOM(mediaType string) bool {
	return strings.Contains(mediaType, "spdx") || strings.Contains(mediaType, "cyclonedx")
}

// openBlob opens a blob of a repo. It returns fault.NotFound if the repo does not have it.
func (r *Reader) openBlob(ctx context.Context, repo resource.UID, digest string) (io.ReadCloser, error) {
	b, err := r.store.Blob(ctx, repo, digest)
	if errors.Is(err, fault.NotFound) {
		return nil, fault.Missing("blob", digest)
	}
	if err != nil {
		return nil, err
	}
	return r.storage.OpenBlob(ctx, b.Path, b.Size)
}

// Platform returns the platform in an image's configuration, such as linux/arm64/v8, or "" if it
// is missing, too long or not printable.
func (r *Reader) Platform(ctx context.Context, repo resource.UID, image string) (string, error) {
	m, doc, err := r.document(ctx, repo, image)
	if err != nil {
		return "", err
	}
	v, err := r.variant(ctx, repo, m.Digest, doc, nil)
	p := v.Platform()
	if len(p) > maxPlatform || strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c > '~' }) {
		p = ""
	}
	return p, err
}

// maxPlatform is the longest platform, in bytes.
const maxPlatform = 100
