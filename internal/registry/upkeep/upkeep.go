// Package upkeep deletes content that is no longer needed, verifies stored blobs, and applies retention rules.
package upkeep

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
)

// A Maintainer collects garbage and decides about damaged blobs. It is safe for concurrent use. All fields except
// Repair are required.
type Maintainer struct {
	Store   *registrydb.Store
	Uploads *upload.Uploads

	// Repair returns the bytes of a blob of a repo from another place, or nil if there is none. The bytes may have a
	// wrong digest. If Repair is nil, damaged blobs stay damaged until they are pushed again.
	Repair func(ctx context.Context, repo resource.UID, digest string) (io.ReadCloser, error)

	Metrics metric.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}
