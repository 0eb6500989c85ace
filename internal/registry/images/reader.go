// Package images reads stored images: their manifests, configurations and layers, and the documents and signatures that
// are attached to them.
package images

import (
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
	readers     chan struct{} // a semaphore with one value per request that is reading documents
	verifier    *verifier
}

// New returns a Reader for the images in db, whose blobs are in s. trustedRoot is the content of Sigstore's
// trusted_root.json, which is used for signers without a root. It may be nil.
func New(db *registrydb.Store, s upload.Storage, trustedRoot []byte, m metric.Metrics) *Reader {
	return &Reader{
		store: db, imageIndex: imagedb.New(db.DB), signers: signerdb.New(db.DB), storage: s, trustedRoot: trustedRoot,
		metrics: m, readers: make(chan struct{}, maxReaders), verifier: newVerifier(),
	}
}
