package registrydb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// StoredBlob returns a blob whoever holds it, rotten or not, or fault.NotFound.
func (s *Store) StoredBlob(ctx context.Context, digest string) (registry.Blob, error) {
	b := registry.Blob{Digest: digest}
	err := s.Row(ctx, `SELECT size, path, rotten_ms IS NOT NULL FROM blobs WHERE digest = $1`, []any{digest}, &b.Size, &b.Path,
		&b.Rotten)
	return b, store.Missing(err, "blob", resource.UID(digest))
}

// MarkRotten notes that the bytes of a blob are missing or wrong. It reports whether that is news: the blob may be marked
// already, be gone, or have other bytes by now.
func (s *Store) MarkRotten(ctx context.Context, b registry.Blob, at time.Time) (bool, error) {
	n, err := s.Exec(ctx, `UPDATE blobs SET rotten_ms = $3 WHERE digest = $1 AND path = $2 AND rotten_ms IS NULL`, b.Digest,
		b.Path, store.MS(at))
	return n == 1, err
}

// MarkSound notes that the bytes of a blob are what they should be. It reports whether that is news.
func (s *Store) MarkSound(ctx context.Context, b registry.Blob) (bool, error) {
	n, err := s.Exec(ctx, `UPDATE blobs SET rotten_ms = NULL WHERE digest = $1 AND path = $2 AND rotten_ms IS NOT NULL`,
		b.Digest, b.Path)
	return n == 1, err
}

// ReplaceBlob gives a rotten blob other bytes. It reports whether b.Path is used: the blob may be gone, or sound by now.
func (s *Store) ReplaceBlob(ctx context.Context, b registry.Blob) (used bool, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		used, err = t.replaceBlob(ctx, b)
		return err
	})
	return used, err
}

func (t Tx) replaceBlob(ctx context.Context, b registry.Blob) (bool, error) {
	n, err := t.Exec(ctx, `UPDATE blobs SET path = $2, rotten_ms = NULL WHERE digest = $1 AND size = $3 AND rotten_ms IS NOT NULL`,
		b.Digest, b.Path, b.Size)
	return n == 1, err
}

// RottenBlobs returns how many blobs are rotten.
func (s *Store) RottenBlobs(ctx context.Context) (n int64, err error) {
	err = s.Row(ctx, `SELECT count(*) FROM blobs WHERE rotten_ms IS NOT NULL`, nil, &n)
	return n, err
}
