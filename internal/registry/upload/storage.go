// Package upload receives the bytes of blobs and stores them.
//
// An upload first makes its bytes durable and then commits the transaction that refers to them. A crash in between
// leaves garbage, never a dangling reference.
package upload

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// A Storage stores the bytes of uploads and blobs. Every upload has its own path, so that deleting a blob never
// deletes bytes of the same content that is being pushed again. An upload becomes a blob without being moved, because
// object stores can only copy.
type Storage struct{ blob.Storage }

// Folder is the directory that contains all uploads and blobs.
const Folder = "/blobs"

// PathOf returns the path of an upload, which is also the path of its blob.
func PathOf(id string) string { return Folder + "/" + id[:2] + "/" + id }

// NewID returns a random UUID, which the specification demands as the ID of an upload.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// span starts a trace span for an operation of the storage.
func (s Storage) span(ctx context.Context, operation string) *trace.Span {
	span := trace.Leaf(ctx, operation)
	span.Set("holdfast.storage", s.Kind())
	return span
}

// DiscardUpload deletes the bytes of an upload.
func (s Storage) DiscardUpload(ctx context.Context, id string) error {
	span := s.span(ctx, "delete upload")
	err := s.Discard(ctx, PathOf(id))
	span.End(err)
	if err != nil {
		return fmt.Errorf("discard upload: %w", err)
	}
	return nil
}

// RemoveBlob deletes the bytes of a blob.
func (s Storage) RemoveBlob(ctx context.Context, path string) error {
	span := s.span(ctx, "delete blob")
	err := s.Remove(ctx, path)
	span.End(err)
	if err != nil {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}

// OpenBlob returns a reader of the bytes at path. If the storage is a folder, the reader is an *os.File, which the
// kernel can send without copying.
func (s Storage) OpenBlob(ctx context.Context, path string, size int64) (io.ReadSeekCloser, error) {
	span := s.span(ctx, "open blob")
	body, err := blob.OpenSeeker(ctx, s.Storage, path, size)
	span.End(err)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return body, nil
}
