package registrydb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// StoredBlob returns a blob, whichever repos hold it and whether or not it is rotten. It returns fault.NotFound if
// there is none.
func (s *Store) StoredBlob(ctx context.Context, digest string) (registry.Blob, error) {
	b := registry.Blob{Digest: digest}
	err := s.Row(ctx, `SELECT size, path, rotten_ms IS NOT NULL FROM blobs WHERE digest = $1`, []any{digest},
		&b.Size, &b.Path, &b.Rotten)
	return b, store.Missing(err, "blob", resource.UID(digest))
}

// MarkRotten records that the bytes of a blob are missing or wrong. It reports whether it changed the row. It does
// not if the blob is already marked, is gone, or has another path.
func (s *Store) MarkRotten(ctx context.Context, b registry.Blob, seen time.Time) (bool, error) {
	n, err := s.Exec(ctx, `UPDATE blobs SET rotten_ms = $3 WHERE digest = $1 AND path = $2 AND rotten_ms IS NULL`,
		b.Digest, b.Path, store.MS(seen))
	return n == 1, err
}

// MarkSound records that the bytes of a blob match its digest. It reports whether the blob was marked as rotten.
func (s *Store) MarkSound(ctx context.Context, b registry.Blob) (bool, error) {
	n, err := s.Exec(ctx, `UPDATE blobs SET rotten_ms = NULL WHERE digest = $1 AND path = $2 AND rotten_ms IS NOT NULL`,
		b.Digest, b.Path)
	return n == 1, err
}

// ReplaceBlob sets the path of a rotten blob to b.Path, where its bytes are stored again. It reports whether b.Path
// is used. It is not if the blob is gone or no longer rotten.
func (s *Store) ReplaceBlob(ctx context.Context, b registry.Blob) (used bool, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		used, err = t.replaceBlob(ctx, b)
		return err
	})
	return used, err
}

func (t Tx) replaceBlob(ctx context.Context, b registry.Blob) (bool, error) {
	n, err := t.Exec(ctx, `UPDATE blobs SET path = $2, rotten_ms = NULL
		WHERE digest = $1 AND size = $3 AND rotten_ms IS NOT NULL`, b.Digest, b.Path, b.Size)
	return n == 1, err
}

// RottenBlobs returns the number of rotten blobs.
func (s *Store) RottenBlobs(ctx context.Context) (n int64, err error) {
	err = s.Row(ctx, `SELECT count(*) FROM blobs WHERE rotten_ms IS NOT NULL`, nil, &n)
	return n, err
}
