package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dump"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
)

// A Target is the installation into which a back-up is restored.
type Target struct {
	Database string // address of an empty database
	Blobs    blob.Storage
	Key      secret.Key
	At       time.Time // time of the snapshot; zero means the newest
	Verify   bool      // verify the content of every blob before anything is written
}

// Restore fills an installation from a back-up. Before it writes anything, it checks the key, the version, every row,
// and that the back-up has every blob. It restores blobs first, and then all tables in one transaction, so that the
// database stays empty if Restore fails. Finally it migrates the database to the schema of this program.
func Restore(ctx context.Context, from Place, into Target, report func(Progress)) (*Manifest, error) {
	m, err := readManifest(ctx, from, into.At, into.Key)
	if err != nil {
		return nil, err
	}
	r := &restoring{Target: into, tracker: tracker{report: report}, from: from, m: m}
	if err := r.check(ctx); err != nil {
		return m, err
	}
	if err := r.eachBlob(ctx, r.restoreBlob); err != nil {
		return m, err
	}
	snapshot := &dump.Snapshot{Schema: m.Schema, Sequences: m.Sequences}
	for _, t := range m.Tables {
		snapshot.Tables = append(snapshot.Tables, t.Table)
	}
	err = dump.Load(ctx, into.Database, snapshot, func(l *dump.Loader) error { return r.fill(ctx, l) })
	if err != nil {
		return m, err
	}
	db, err := store.Open(ctx, into.Database)
	if err != nil {
		return m, err
	}
	return m, errors.Join(r.audit(ctx, db), r.eachBlob(ctx, r.markSound(db)), db.Close())
}

type restoring struct {
	Target
	tracker
	from Place
	m    *Manifest
}

// check returns an error if the back-up cannot be restored. It writes nothing.
func (r *restoring) check(ctx context.Context) error {
	if err := dump.RequireEmpty(ctx, r.Database, r.m.Schema); err != nil {
		return err
	}
	for _, t := range r.m.Tables {
		err := readRows(ctx, r.from, r.m.folder(), t, func(next func() ([]any, error)) error {
			for {
				row, err := next()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err == nil {
					err = r.storable(t, row)
				}
				if err != nil {
					return err
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return r.eachBlob(ctx, r.checkBlob)
}

// storable returns an error if the database cannot store a row: PostgreSQL does not allow a zero byte in a text, but
// SQLite does.
func (r *restoring) storable(t TableFile, row []any) error {
	for i, v := range row {
		if text, ok := v.(string); ok && store.IsPostgres(r.Database) && strings.ContainsRune(text, 0) {
			return refuse("column %s of table %s has a text with a zero byte, which PostgreSQL cannot store",
				t.Columns[i].Name, t.Name)
		}
	}
	return nil
}

// eachBlob calls f for every blob of the back-up except the lost ones. It makes several calls concurrently.
func (r *restoring) eachBlob(ctx context.Context, f func(context.Context, registry.Blob) error) error {
	lost := map[string]bool{}
	for _, digest := range r.m.Lost {
		lost[digest] = true
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(copiers)
	err := r.m.eachBlob(ctx, r.from, func(b registry.Blob) error {
		if !lost[b.Digest] {
			tasks.Go(func() error { return f(ctx, b) })
		}
		return nil
	})
	return errors.Join(tasks.Wait(), err)
}

// checkBlob returns an error if a blob of the back-up is missing or has another size. If Verify is set, it also
// checks the content.
func (r *restoring) checkBlob(ctx context.Context, b registry.Blob) error {
	size, err := r.from.Size(ctx, blobPath(b.Digest))
	if err != nil {
		return err
	}
	if size != b.Size {
		return refuse("blob %s is missing in the back-up, or damaged", b.Digest)
	}
	if !r.Verify {
		return nil
	}
	if err := verify(ctx, r.from, blobPath(b.Digest), b); err != nil {
		return refuse("%v", err)
	}
	return nil
}

// restoreBlob copies a blob into the installation, unless the installation already has it. An installation that moves
// to another database keeps its blob storage, so it already has all blobs.
func (r *restoring) restoreBlob(ctx context.Context, b registry.Blob) error {
	size, err := r.Blobs.Size(ctx, b.Path)
	if err != nil {
		return err
	}
	if size == b.Size && (!r.Verify || verify(ctx, r.Blobs, b.Path, b) == nil) {
		r.advance(func(p *Progress) { p.Present++ })
		return nil
	}
	if err := copyVerified(ctx, r.from, blobPath(b.Digest), r.Blobs, b.Path, b.Digest, b.Size); err != nil {
		return err
	}
	r.advance(func(p *Progress) { p.Blobs, p.BlobBytes = p.Blobs+1, p.BlobBytes+b.Size })
	return nil
}

// verify returns an error unless the content of a file matches the digest and the size of a blob.
func verify(ctx context.Context, in Place, path string, b registry.Blob) error {
	f, err := in.Open(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	v, err := newVerifier(f, b.Digest, b.Size)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, v)
	return err
}

// markSound returns a function for blobs that were marked as rotten when the back-up was made. It removes the mark if
// the restored content is correct.
func (r *restoring) markSound(db *store.DB) func(context.Context, registry.Blob) error {
	return func(ctx context.Context, b registry.Blob) error {
		if !b.Rotten || verify(ctx, r.Blobs, b.Path, b) != nil {
			return nil
		}
		_, err := registrydb.New(db).MarkSound(ctx, b)
		return err
	}
}

// fill writes the rows of all tables.
func (r *restoring) fill(ctx context.Context, l *dump.Loader) error {
	for _, t := range r.m.Tables {
		r.advance(func(p *Progress) { p.Table = t.Name })
		err := readRows(ctx, r.from, r.m.folder(), t, func(next func() ([]any, error)) error {
			n, err := l.Fill(ctx, t.Table, next)
			if err == nil && n != t.Rows {
				err = fmt.Errorf("table %s has %d rows instead of %d", t.Name, n, t.Rows)
			}
			return err
		})
		if err != nil {
			return err
		}
		r.advance(func(p *Progress) { p.Rows += t.Rows })
	}
	return nil
}

// audit returns an error if a restored counter differs from the rows that it counts. It first corrects the counters of
// stored bytes, because unfinished uploads are not part of a back-up.
func (r *restoring) audit(ctx context.Context, db *store.DB) error {
	if err := recount.CorrectBytes(ctx, db); err != nil {
		return err
	}
	drifts, err := recount.Drifts(ctx, db)
	if err == nil && len(drifts) > 0 {
		err = fmt.Errorf("the back-up was restored, but %d counters differ from the rows that they count, for example %+v",
			len(drifts), drifts[0])
	}
	return err
}

// CheckBlob returns an error if a blob is missing in a place or has another size. If it has at most most bytes,
// CheckBlob also checks the content.
func CheckBlob(ctx context.Context, in Place, b registry.Blob, most int64) error {
	size, err := in.Size(ctx, b.Path)
	switch {
	case err != nil:
		return err
	case size < 0:
		return &badBlobError{b.Digest, "it is missing"}
	case size != b.Size:
		return &badBlobError{b.Digest, "it has another size"}
	case size > most:
		return nil
	}
	return verify(ctx, in, b.Path, b)
}
