package images

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// A Layer is a layer of an image with access to its bytes.
type Layer struct {
	registry.Layer

	// Here reports whether the repo has the bytes of the layer.
	Here func(context.Context) (bool, error)

	// IsDocument reports whether the layer is a JSON document, such as a signature, so that no client can unpack it. The
	// bytes decide, because clients unpack archives of any media type. The result is false for a large layer.
	IsDocument func(context.Context) (bool, error)

	// Open returns the bytes of the layer. It returns fault.NotFound if the repo does not have them, because the
	// layer is non-distributable or the image is sparse.
	Open func(context.Context) (io.ReadCloser, error)
}

// isArchive reports whether the media type of a layer is the type of an archive, compressed or not.
func (l Layer) isArchive() bool {
	return strings.Contains(l.MediaType, ".tar") || strings.HasSuffix(l.MediaType, "+tar")
}

// Layers returns the layers of an image of a repo, the lowest first. It returns
// fault.NotFound if there is no such manifest. It does not authorize the caller.
func (r *Reader) Layers(ctx context.Context, repo resource.UID, digest string) ([]Layer, error) {
	_, doc, err := r.document(ctx, repo, digest)
	if err != nil {
		return nil, err
	}
	var all []Layer
	for _, d := range doc.Layers {
		blob := d.Digest.String()
		layer := Layer{Layer: registry.Layer{Digest: blob, MediaType: d.MediaType, Size: d.Size}}
		layer.Here = func(ctx context.Context) (bool, error) {
			_, err := r.store.Blob(ctx, repo, blob)
			if errors.Is(err, fault.NotFound) {
				return false, nil
			}
			return err == nil, err
		}
		layer.IsDocument = func(ctx context.Context) (bool, error) {
			if layer.isArchive() {
				return false, nil
			}
			content, err := r.readBlob(ctx, repo, blob, maxLayers)
			return isDocument(content), err
		}
		layer.Open = func(ctx context.Context) (io.ReadCloser, error) { return r.openBlob(ctx, repo, blob) }
		all = append(all, layer)
	}
	return all, nil
}
