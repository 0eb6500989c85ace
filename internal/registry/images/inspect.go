package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

const (
	maxConfig = 4 << 20 // largest configuration of an image, in bytes

	// maxImage is the number of bytes of manifests and configurations after which no further variant is read.
	maxImage = 32 << 20

	maxUnnamed = 8 // images without a platform in their index whose configuration is read for an outline
)

// Image returns the platforms of a manifest. For an index, it returns a variant for each of the images in the repo that
// the index lists, directly or through other indexes. It returns fault.NotFound if there is no such manifest. It does
// not authorize the caller.
func (r *Reader) Image(ctx context.Context, repo resource.UID, digest string) (registry.Image, error) {
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
	read, artifacts := int64(0), 0
	return img, r.eachListed(ctx, repo, &doc, func(_ *oci.Document, d ocispec.Descriptor) (more bool, _ error) {
		child, doc, err := r.document(ctx, repo, d.Digest.String())
		if errors.Is(err, fault.NotFound) { // the index is sparse and the repo lacks this image
			return true, nil
		}
		if err != nil {
			return false, err
		}
		read += child.Size
		if d.Platform == nil && !child.IsImage() {
			artifacts++
			return artifacts < oci.MaxVariants && read <= maxImage, nil
		}
		v, err := r.variant(ctx, repo, child.Digest, doc, d.Platform)
		if err != nil {
			return false, err
		}
		read += int64(len(v.Config))
		img.Variants = append(img.Variants, v)
		return len(img.Variants) < oci.MaxVariants && read <= maxImage, nil
	})
}

// document returns a manifest of a repo, and its parsed content.
func (r *Reader) document(
	ctx context.Context, repo resource.UID, digest string,
) (m registry.Manifest, doc oci.Document, err error) {
	if m, err = r.store.Manifest(ctx, repo, digest); err != nil {
		return m, doc, err
	}
	if err = json.Unmarshal(m.Body, &doc); err != nil {
		err = fmt.Errorf("decode %s: %w", digest, err)
	}
	return m, doc, err
}

// variant describes an image by its manifest, its configuration and its platform. platform is nil if the image is not
// part of an index.
func (r *Reader) variant(
	ctx context.Context, repo resource.UID, digest string, doc oci.Document, p *ocispec.Platform,
) (registry.Variant, error) {
	v := registry.Variant{Digest: digest, Layers: len(doc.Layers), Size: doc.Size()}
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

// Outline returns the platforms and the size of an image. For an index, it reads one of its images for the size. It
// reads a configuration only of images for which the index names no platform.
func (r *Reader) Outline(
	ctx context.Context, repo resource.UID, digest string,
) (platforms []string, size int64, _ error) {
	m, doc, err := r.document(ctx, repo, digest)
	if err != nil {
		return platforms, size, err
	}
	if doc.Manifests == nil {
		v, err := r.variant(ctx, repo, digest, doc, nil)
		if size = v.Size; m.IsImage() && v.Platform() != "" {
			platforms = []string{v.Platform()}
		}
		return platforms, size, err
	}
	chosen, unnamed := "", 0
	err = r.eachListed(ctx, repo, &doc, func(_ *oci.Document, d ocispec.Descriptor) (bool, error) {
		var v registry.Variant
		if d.Platform != nil {
			v = platformOf(*d.Platform)
		} else if unnamed++; unnamed <= maxUnnamed {
			if v, err = r.unnamed(ctx, repo, d.Digest.String()); err != nil {
				return false, err
			}
		}
		if v.Platform() == "" {
			return true, nil
		}
		platforms = append(platforms, v.Platform())
		if chosen == "" || v.Architecture == DefaultArchitecture {
			chosen = d.Digest.String()
		}
		return len(platforms) < oci.MaxVariants, nil
	})
	if err != nil || chosen == "" {
		return platforms, size, err
	}
	if _, doc, err = r.document(ctx, repo, chosen); err != nil {
		if errors.Is(err, fault.NotFound) { // the index is sparse and the repo lacks this image
			err = nil
		}
		return platforms, size, err
	}
	size = doc.Size()
	return platforms, size, nil
}

// unnamed describes an image for which the index names no platform. The result is empty if the manifest is not an
// image, or if the repo lacks it.
func (r *Reader) unnamed(ctx context.Context, repo resource.UID, digest string) (registry.Variant, error) {
	m, doc, err := r.document(ctx, repo, digest)
	if errors.Is(err, fault.NotFound) || err == nil && !m.IsImage() {
		return registry.Variant{}, nil
	}
	if err != nil {
		return registry.Variant{}, err
	}
	return r.variant(ctx, repo, digest, doc, nil)
}

// DefaultArchitecture is the architecture for requests that do not name one.
const DefaultArchitecture = "amd64"

// Choose returns the image for an architecture. If architecture is "", it returns the only image or, if there are
// several, the image for amd64.
func Choose(image registry.Image, architecture string) (registry.Variant, error) {
	if architecture == "" && len(image.Variants) == 1 {
		return image.Variants[0], nil
	}
	architecture = cmp.Or(architecture, DefaultArchitecture)
	for _, v := range image.Variants {
		if v.Architecture == architecture {
			return v, nil
		}
	}
	return registry.Variant{}, fault.Missing("image for "+clip(architecture)+" in", image.Digest)
}

// clip shortens a text that a client has sent, for an error message.
func clip(s string) string { return s[:min(len(s), 64)] }
