package protocol

import (
	"context"
	"fmt"
	"io"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A storage stores the bytes of uploads and blobs. Every upload has its own path,
// so that deleting a blob never deletes the bytes of a new push of it. An upload
// becomes a blob without being moved, because object stores can only copy.
type storage struct{ blob.Storage }

// blobFolder is the folder of all uploads and blobs.
const blobFolder = "/blobs"

// pathOf returns the path of an upload, which is also that of its blob.
func pathOf(id string) string { return blobFolder + "/" + id[:2] + "/" + id }

// span starts the span of an operation.
func (s storage) span(ctx context.Context, operation string) *trace.Span {
	span := trace.Leaf(ctx, operation)
	span.Set("holdfast.storage", s.Kind())
	return span
}

// discard deletes the bytes of an upload.
func (s storage) discard(ctx context.Context, id string) error {
	span := s.span(ctx, "delete upload")
	err := s.Discard(ctx, pathOf(id))
	span.End(err)
	if err != nil {
		return fmt.Errorf("discard upload: %w", err)
	}
	return nil
}

// remove deletes the bytes of a blob.
func (s storage) remove(ctx context.Context, path string) error {
	span := s.span(ctx, "delete blob")
	err := s.Remove(ctx, path)
	span.End(err)
	if err != nil {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}

// open returns a reader of the bytes at path. In a folder, it is an *os.File, so that
// the kernel can send it.
func (s storage) open(ctx context.Context, path string, size int64) (io.ReadSeekCloser, error) {
	span := s.span(ctx, "open blob")
	body, err := blob.OpenSeeker(ctx, s.Storage, path, size)
	span.End(err)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return body, nil
}
