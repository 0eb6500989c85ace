package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

const (
	maxConfig   = 4 << 20  // of an image's configuration
	maxVariants = 256      // of an index that are told
	maxImage    = 32 << 20 // of the manifests and configurations that are read for one answer, or those of one variant more
)

// Image tells what a manifest of a repo can run as: for an index, one variant
// for each of its images that is in the repo and names a platform. It returns
// fault.NotFound if there is no such manifest. Whether the caller may know has
// been asked before.
func (r *Registry) Image(ctx context.Context, repo resource.UID, digest string) (resource.Image, error) {
	m, err := r.store.Manifest(ctx, repo, digest)
	if err != nil {
		return resource.Image{}, err
	}
	img := resource.Image{Digest: m.Digest, MediaType: m.MediaType}
	var doc document
	if err := json.Unmarshal(m.Body, &doc); err != nil {
		return img, fmt.Errorf("decode %s: %w", digest, err)
	}
	if doc.Manifests == nil {
		v, err := r.variant(ctx, repo, m, nil)
		img.Variants = []resource.Variant{v}
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
		child, err := r.store.Manifest(ctx, repo, d.Digest.String())
		if errors.Is(err, fault.NotFound) { // the index is sparse
			continue
		}
		if err != nil {
			return img, err
		}
		v, err := r.variant(ctx, repo, child, d.Platform)
		if err != nil {
			return img, err
		}
		read += child.Size + int64(len(v.Config))
		img.Variants = append(img.Variants, v)
	}
	return img, nil
}

// variant describes an image by its manifest, its configuration and, where an
// index has it, its platform.
func (r *Registry) variant(ctx context.Context, repo resource.UID, m resource.Manifest, p *ocispec.Platform) (resource.Variant, error) {
	v := resource.Variant{Digest: m.Digest}
	var doc document
	if err := json.Unmarshal(m.Body, &doc); err != nil {
		return v, fmt.Errorf("decode %s: %w", m.Digest, err)
	}
	v.Layers = len(doc.Layers)
	for _, d := range doc.Layers {
		v.Size += d.Size
	}
	if doc.Config != nil {
		v.Size += doc.Config.Size
		var err error
		if v.Config, err = r.readImageConfig(ctx, repo, *doc.Config); err != nil {
			return v, err
		}
	}
	if p == nil {
		p = &ocispec.Platform{}
		_ = json.Unmarshal(v.Config, p) // an artifact's may be anything
	}
	v.OS, v.Architecture, v.Variant = p.OS, p.Architecture, p.Variant
	return v, nil
}

// readImageConfig reads the configuration of an image. One that is not here, or is no
// JSON of a sane size, is none.
func (r *Registry) readImageConfig(ctx context.Context, repo resource.UID, d ocispec.Descriptor) ([]byte, error) {
	config, err := r.readBlob(ctx, repo, d.Digest.String(), maxConfig)
	if err != nil || !json.Valid(config) {
		return nil, err
	}
	return config, nil
}
