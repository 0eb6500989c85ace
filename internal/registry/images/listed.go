package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// maxIndexesRead is the number of indexes that are read below one index.
const maxIndexesRead = 64

// A listing walks through the images that an index lists, directly or through other indexes.
type listing struct {
	reader *Reader
	repo   resource.UID
	visit  func(index *oci.Document, d ocispec.Descriptor) (more bool, err error)
	seen   map[string]bool // digests of indexes, and digests of images with their platforms
	left   int             // number of indexes that may still be read
}

// eachListed calls visit with each entry for an image in index and in the indexes that it lists, and with the index
// that has the entry, until visit returns false. It leaves out attestations, repeated entries, and indexes that the
// repo lacks. It follows as many levels as the queries over registrydb.ManifestsBelow.
func (r *Reader) eachListed(
	ctx context.Context, repo resource.UID, index *oci.Document,
	visit func(index *oci.Document, d ocispec.Descriptor) (more bool, err error),
) error {
	l := listing{r, repo, visit, map[string]bool{}, maxIndexesRead}
	_, err := l.walk(ctx, index, registrydb.MaxIndexDepth)
	return err
}

// walk visits the entries of an index and, on the levels below, of the indexes that it lists. It reports whether to
// continue.
func (l *listing) walk(ctx context.Context, index *oci.Document, levels int) (proceed bool, _ error) {
	for _, d := range index.Manifests {
		key := d.Digest.String()
		nested := slices.Contains(oci.IndexTypes, d.MediaType)
		if d.Platform != nil && !nested {
			key += " " + platformOf(*d.Platform).Platform()
		}
		if l.seen[key] || d.Platform != nil && d.Platform.OS == "unknown" || d.Annotations[oci.AttestedImage] != "" {
			continue
		}
		l.seen[key] = true
		if !nested {
			if proceed, err := l.visit(index, d); err != nil || !proceed {
				return false, err
			}
			continue
		}
		if levels == 1 || l.left == 0 {
			continue
		}
		l.left--
		_, doc, err := l.reader.document(ctx, l.repo, d.Digest.String())
		if errors.Is(err, fault.NotFound) { // the index is sparse and the repo lacks this one
			continue
		}
		if err != nil {
			return false, err
		}
		if proceed, err := l.walk(ctx, &doc, levels-1); err != nil || !proceed {
			return false, err
		}
	}
	return true, nil
}

// Listed returns the images that an index lists, directly or through other indexes, with the platforms that the indexes
// name. It reads no configuration, and returns at most oci.MaxVariants images.
func (r *Reader) Listed(
	ctx context.Context, repo resource.UID, index registry.Manifest,
) (all []registry.Variant, _ error) {
	var doc oci.Document
	if err := json.Unmarshal(index.Body, &doc); err != nil {
		return nil, fmt.Errorf("decode %s: %w", index.Digest, err)
	}
	err := r.eachListed(ctx, repo, &doc, func(_ *oci.Document, d ocispec.Descriptor) (more bool, _ error) {
		var v registry.Variant
		if d.Platform != nil {
			v = platformOf(*d.Platform)
		}
		v.Digest = d.Digest.String()
		all = append(all, v)
		return len(all) < oci.MaxVariants, nil
	})
	return all, err
}

func platformOf(p ocispec.Platform) registry.Variant {
	return registry.Variant{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
}
