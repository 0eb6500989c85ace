// Package images reads stored images: their manifests, configurations and layers, and the documents and signatures that
// are attached to them.
package images

import (
	"context"
	"io"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/signerdb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
)

// A Reader reads images. Its methods do not authorize the caller. It is safe for concurrent use.
type Reader struct {
	store       *registrydb.Store
	imageIndex  *imagedb.Store
	signers     *signerdb.Store
	storage     upload.Storage
	trustedRoot []byte
	metrics     metric.Metrics
	readers     *fairlimit.Limiter // limits the requests that read documents
	verifier    *verifier
	configs     *configCache
	fetch       fetchFunc
}

// fetchFunc returns the bytes of a blob from the upstream of a repo, or nil if the repo has no upstream.
type fetchFunc = func(ctx context.Context, repo resource.UID, digest string) (io.ReadCloser, error)

// New returns a Reader for the images in db, whose blobs are in s. trustedRoot is the content of Sigstore's
// trusted_root.json, which is used for signers without a root. It may be nil.
func New(
	db *registrydb.Store, s upload.Storage, fetch fetchFunc, trustedRoot []byte, m metric.Metrics,
) *Reader {
	return &Reader{
		store: db, imageIndex: imagedb.New(db.DB), signers: signerdb.New(db.DB), storage: s, trustedRoot: trustedRoot,
		metrics: m, readers: newReaderLimiter(), verifier: newVerifier(), configs: newConfigCache(), fetch: fetch,
	}
}
