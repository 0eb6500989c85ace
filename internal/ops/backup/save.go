package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dump"
)

// copiers is the number of blobs that are copied concurrently. With two, one blob is read and hashed while the other
// waits for the disk.
const copiers = 2

// An Installation is the source of a back-up.
type Installation struct {
	DB      *store.DB
	Blobs   blob.Storage
	Key     secret.Key
	Version string // version of this program
	Now     func() time.Time
}

// Progress is the progress of a back-up or a restore. It is reported often.
type Progress struct {
	Blobs, BlobBytes int64 // copied blobs, and their bytes
	Present          int64 // blobs that were not copied because the target already had them
	Table            string
	Rows             int64 // number of copied rows in all tables
}

// Save makes a back-up of an installation, while a server may use it. The result is the state of one moment
// near the end. Save copies the blobs first. Then it reads the tables in one snapshot and copies the blobs that
// were added since. If the garbage collector of the server has deleted a blob of the snapshot before it was
// copied, Save takes another snapshot.
func Save(ctx context.Context, from Installation, to Place, report func(Progress)) (*Manifest, error) {
	s := &saving{Installation: from, tracker: tracker{report: report}, to: to, lost: map[string]bool{}}
	if err := s.copyAll(ctx); err != nil {
		return nil, err
	}
	const tries = 3
	for n := 1; ; n++ {
		clear(s.lost)
		m, err := s.snapshot(ctx)
		if err != nil {
			return nil, err
		}
		if len(s.lost) > 0 && n < tries {
			continue
		}
		m.Lost = slices.Sorted(maps.Keys(s.lost))
		return m, m.write(ctx, to, from.Key)
	}
}

// A tracker reports the progress of concurrent tasks.
type tracker struct {
	report func(Progress)

	mu       sync.Mutex
	progress Progress
}

func (t *tracker) advance(f func(*Progress)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.progress)
	t.report(t.progress)
}

type saving struct {
	Installation
	tracker
	to   Place
	lost map[string]bool // set of digests; guarded by tracker.mu
}

// copyAll copies the blobs that the installation has now.
func (s *saving) copyAll(ctx context.Context) error {
	const batch = 1000
	blobs := registrydb.New(s.DB)
	for last := ""; ; {
		next, err := blobs.BlobsAfter(ctx, last, batch)
		if err != nil || len(next) == 0 {
			return err
		}
		last = next[len(next)-1].Digest
		tasks, ctx := errgroup.WithContext(ctx)
		tasks.SetLimit(copiers)
		for _, b := range next {
			tasks.Go(func() error { return s.copyBlob(ctx, b) })
		}
		if err := tasks.Wait(); err != nil {
			return err
		}
	}
}

// copyBlob copies a blob unless the back-up has it. A blob that cannot be read is added to lost. That is not an
// error, because the other blobs are worth keeping.
func (s *saving) copyBlob(ctx context.Context, b registry.Blob) error {
	to := blobPath(b.Digest)
	size, err := s.to.Size(ctx, to)
	if err != nil {
		return err
	}
	if size == b.Size {
		s.advance(func(p *Progress) { p.Present++ })
		return nil
	}
	err = copyVerified(ctx, s.Blobs, b.Path, s.to, to, b.Digest, b.Size)
	if bad := (*badBlobError)(nil); errors.As(err, &bad) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lost[b.Digest] = true
		return nil
	}
	if err != nil {
		return err
	}
	s.advance(func(p *Progress) { p.Blobs, p.BlobBytes = p.Blobs+1, p.BlobBytes+b.Size })
	return nil
}

// snapshot writes the tables, and copies the blobs that are listed in them.
func (s *saving) snapshot(ctx context.Context) (*Manifest, error) {
	m := &Manifest{
		Format: format, Version: s.Version, Key: Fingerprint(s.Key), Time: s.Now().UTC().Truncate(time.Second),
	}
	size, err := s.to.Size(ctx, m.path())
	if err != nil {
		return nil, err
	}
	if size >= 0 {
		return nil, fmt.Errorf("there is already a back-up of %s; try again", m.Time.Format(time.RFC3339))
	}
	s.advance(func(p *Progress) { p.Rows = 0 })
	err = dump.Read(ctx, s.DB, func(d *dump.Snapshot) error {
		m.Schema, m.Sequences = d.Schema, d.Sequences
		for _, t := range d.Tables {
			s.advance(func(p *Progress) { p.Table = t.Name })
			file, err := putTable(ctx, s.to, m.folder(), d, t)
			if err != nil {
				return err
			}
			m.Tables = append(m.Tables, file)
			s.advance(func(p *Progress) { p.Rows += file.Rows })
			if t.Name != blobTable {
				continue
			}
			if err := d.Rows(ctx, t, func(row []any) error {
				b := blobOf(t, row)
				m.Blobs, m.BlobBytes = m.Blobs+1, m.BlobBytes+b.Size
				return s.copyBlob(ctx, b)
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

// blobTable is the name of the table that lists all blobs.
const blobTable = "blobs"

// blobOf returns the blob that a row of blobTable describes.
func blobOf(t dump.Table, row []any) (b registry.Blob) {
	for i, c := range t.Columns {
		switch c.Name {
		case "digest":
			b.Digest, _ = row[i].(string)
		case "path":
			b.Path, _ = row[i].(string)
		case "size":
			b.Size, _ = row[i].(int64)
		case "rotten_ms":
			b.Rotten = row[i] != nil
		}
	}
	return b
}

// copyVerified copies a blob from one place to another. It returns a *badBlobError if the blob is missing, or if its
// content does not match the digest; then it leaves no file at the target.
func copyVerified(ctx context.Context, from Place, path string, to Place, target, digest string, size int64) error {
	in, err := from.Open(ctx, path)
	if blob.Missing(err) {
		return &badBlobError{digest, "it is missing"}
	}
	if err != nil {
		return err
	}
	defer in.Close()
	v, err := newVerifier(in, digest, size)
	if err != nil {
		return err
	}
	return to.Put(ctx, target, v)
}
