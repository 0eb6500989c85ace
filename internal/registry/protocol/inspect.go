package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

const (
	maxConfig   = 4 << 20 // bytes of an image's configuration
	maxVariants = 256     // of an index

	// maxImage is how many bytes of manifests and configurations are read before the last variant.
	maxImage = 32 << 20
)

// Image returns the platforms of a manifest. For an index, it returns a variant for
// each of its images that is in the repo and names a platform. It returns
// fault.NotFound if there is no such manifest. It does not authorize the caller.
func (r *Registry) Image(ctx context.Context, repo resource.UID, digest string) (registry.Image, error) {
	m, doc, err := r.document(ctx, repo, digest)
	if err != nil {
		return registry.Image{}, err
	}
	img := registry.Image{Digest: m.Digest, MediaType: m.MediaType}
	if doc.Manifests == nil {
		v, err := r.variant(ctx, repo, m.Digest, doc, nil)
		img.Variants = []registry.Variant{v}
		return img, err
	}
	read := int64(0)
	for _, d := range doc.Manifests {
		if len(img.Variants) == maxVariants || read > maxImage {
			break
		}
		if d.Platform == nil || d.Platform.OS == "unknown" { // an attestation, not an image
			continue
		}
		child, doc, err := r.document(ctx, repo, d.Digest.String())
		if errors.Is(err, fault.NotFound) { // the index is sparse
			continue
		}
		if err != nil {
			return img, err
		}
		v, err := r.variant(ctx, repo, child.Digest, doc, d.Platform)
		if err != nil {
			return img, err
		}
		read += child.Size + int64(len(v.Config))
		img.Variants = append(img.Variants, v)
	}
	return img, nil
}

// document returns a manifest of a repo, also parsed.
func (r *Registry) document(
	ctx context.Context, repo resource.UID, digest string,
) (m registry.Manifest, doc document, err error) {
	if m, err = r.store.Manifest(ctx, repo, digest); err != nil {
		return m, doc, err
	}
	if err = json.Unmarshal(m.Body, &doc); err != nil {
		err = fmt.Errorf("decode %s: %w", digest, err)
	}
	return m, doc, err
}

// size returns the bytes of the layers and the configuration of an image.
func (d document) size() (n int64) {
	if d.Config != nil {
		n = d.Config.Size
	}
	for _, l := range d.Layers {
		n += l.Size
	}
	return n
}

// variant describes an image by its manifest, its configuration and its platform,
// which is nil if the image is not part of an index.
func (r *Registry) variant(
	ctx context.Context, repo resource.UID, digest string, doc document, p *ocispec.Platform,
) (registry.Variant, error) {
	v := registry.Variant{Digest: digest, Layers: len(doc.Layers), Size: doc.size()}
	for _, d := range doc.Layers {
		v.Stack = append(v.Stack, registry.Layer{Digest: d.Digest.String(), MediaType: d.MediaType, Size: d.Size})
	}
	if doc.Config != nil {
		config, err := r.readBlob(ctx, repo, doc.Config.Digest.String(), maxConfig)
		if err != nil {
			return v, err
		}
		if json.Valid(config) {
			v.Config = config
		}
	}
	if p == nil {
		p = &ocispec.Platform{}
		_ = json.Unmarshal(v.Config, p) // fails for artifacts that are not images
	}
	v.OS, v.Architecture, v.Variant = p.OS, p.Architecture, p.Variant
	return v, nil
}
