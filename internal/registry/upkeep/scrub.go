package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
)

// A Verdict is the result of Maintainer.Judge for a blob.
type Verdict string

// The verdicts. All except Gone are also values of a metric label.
const (
	Sound    Verdict = "sound"
	Rotten   Verdict = "rotten"   // the bytes are missing or wrong; the blob is not served until it is pushed again
	Repaired Verdict = "repaired" // the blob was rotten and has the right bytes again
	Gone     Verdict = "gone"     // the blob was deleted, or pushed again while it was read
)

// Scrubbed counts the blobs that a scrub has read, by verdict.
type Scrubbed struct {
	Blobs    int64    `json:"blobs"`
	Bytes    int64    `json:"bytes"`
	Rotten   []string `json:"rotten"`   // digests of blobs whose bytes are missing or wrong
	Repaired int      `json:"repaired"` // number of blobs that were rotten, before or during this scrub, and are repaired
	Failed   int      `json:"failed"`   // number of blobs that could not be read, perhaps temporarily
}

// A Scrubber reads all blobs again and compares them with their digests.
type Scrubber struct {
	Store   *registrydb.Store
	Storage blob.Storage
	Rate    int64 // bytes per second; 0 means no limit

	// Judge decides about a blob that seems to be rotten or was marked as rotten. It is Maintainer.Judge, or a
	// function that calls Maintainer.Judge on a server.
	Judge func(ctx context.Context, digest string) (Verdict, error)

	Report func(Scrubbed) // called after each blob, if it is not nil
}

// maxFailures is the number of consecutive blobs that cannot be read after which a scrub ends. The storage is then
// probably unreachable.
const maxFailures = 5

// Run reads all blobs and returns the results. It calls Report after each blob.
func (s *Scrubber) Run(ctx context.Context) (all Scrubbed, _ error) {
	p := &pace{rate: s.Rate, begin: time.Now()}
	failures := 0
	for last := ""; ; {
		batch, err := s.Store.BlobsAfter(ctx, last, collectBatch)
		if err != nil || len(batch) == 0 {
			return all, err
		}
		for _, b := range batch {
			last = b.Digest
			err := s.look(ctx, b, p, &all)
			switch {
			case ctx.Err() != nil:
				return all, ctx.Err()
			case err == nil:
				failures = 0
			default:
				failures++
				all.Failed++
			}
			if failures == maxFailures {
				return all, fmt.Errorf("%d blobs in a row could not be read: %w", failures, err)
			}
			if s.Report != nil {
				s.Report(all)
			}
		}
	}
}

// look reads one blob, and calls Judge if its bytes are wrong or it was marked as rotten.
func (s *Scrubber) look(ctx context.Context, b registry.Blob, p *pace, all *Scrubbed) error {
	sound, n, err := examine(ctx, s.Storage, b, p)
	all.Blobs, all.Bytes = all.Blobs+1, all.Bytes+n
	if err != nil || sound && !b.Rotten {
		return err
	}
	v, err := s.Judge(ctx, b.Digest)
	switch v {
	case Rotten:
		all.Rotten = append(all.Rotten, b.Digest)
	case Repaired:
		all.Repaired++
	}
	return err
}

// examine reads a blob and reports whether its bytes exist and match its digest. If it returns an error, this is
// unknown.
func examine(ctx context.Context, s blob.Storage, b registry.Blob, p *pace) (sound bool, read int64, err error) {
	d, err := digest.Parse(b.Digest)
	if err != nil {
		return false, 0, err
	}
	body, err := s.Open(ctx, b.Path)
	if blob.Missing(err) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	defer body.Close()
	v := d.Verifier()
	read, err = io.Copy(v, &pacedReader{ctx, io.LimitReader(body, b.Size+1), p})
	if errors.Is(err, syscall.EIO) { // the disk has lost a part of the file
		return false, read, nil
	}
	if err != nil {
		return false, read, fmt.Errorf("read blob %s: %w", b.Digest, err)
	}
	return read == b.Size && v.Verified(), read, nil
}

// Judge reads a blob again. If its bytes are missing or wrong, Judge marks it as rotten and tries to repair it. A
// rotten blob is not served, so that clients push it again. If the blob is sound, Judge removes the mark.
func (m *Maintainer) Judge(ctx context.Context, name string) (Verdict, error) {
	d, err := digest.Parse(name)
	if err != nil {
		return "", fault.Field("digest", "%.200q is not a digest", name)
	}
	b, err := m.Store.StoredBlob(ctx, d.String())
	if errors.Is(err, fault.NotFound) {
		return Gone, nil
	}
	if err != nil {
		return "", err
	}
	sound, _, err := examine(ctx, m.Uploads.Storage.Storage, b, &pace{})
	if err != nil {
		return "", err
	}
	var v Verdict
	if sound {
		v, err = m.acquit(ctx, b)
	} else {
		v, err = m.condemn(ctx, b)
	}
	if err == nil && v != Gone {
		m.Metrics.Scrubbed.Add(1, string(v))
	}
	return v, err
}

// acquit removes the rotten mark from a blob whose bytes are right.
func (m *Maintainer) acquit(ctx context.Context, b registry.Blob) (Verdict, error) {
	news, err := m.Store.MarkSound(ctx, b)
	if err != nil || !news {
		return Sound, err
	}
	m.Log.InfoContext(ctx, "a blob that was missing or wrong is sound again", "digest", b.Digest)
	return Repaired, nil
}

// condemn marks a blob as rotten, and tries to repair it.
func (m *Maintainer) condemn(ctx context.Context, b registry.Blob) (Verdict, error) {
	names, err := m.Uploads.Names(ctx, upload.Folder)
	if err == nil && len(names) == 0 {
		err = errors.New("the storage is empty: check the setting blobs, and whether its folder is mounted")
	}
	if err != nil {
		return "", err
	}
	news, err := m.Store.MarkRotten(ctx, b, m.Now())
	if err != nil {
		return "", err
	}
	if current, err := m.Store.StoredBlob(ctx, b.Digest); err != nil || !current.Rotten {
		return Gone, unlessGone(err) // the blob was deleted, or just pushed again
	}
	if news {
		m.Log.ErrorContext(ctx, "a blob is missing or wrong in the storage; it is not served until it is pushed again",
			"digest", b.Digest, "path", b.Path)
	}
	repaired, err := m.repair(ctx, b)
	if err != nil || !repaired {
		return Rotten, err
	}
	m.Log.InfoContext(ctx, "repaired a blob", "digest", b.Digest)
	return Repaired, nil
}

func unlessGone(err error) error {
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// repair replaces the bytes of a rotten blob by the bytes that Maintainer.Repair returns for one of its repos. It
// reports whether it has succeeded.
func (m *Maintainer) repair(ctx context.Context, b registry.Blob) (bool, error) {
	if m.Repair == nil {
		return false, nil
	}
	const holders = 20 // number of repos to try
	repos, err := m.Store.BlobHolders(ctx, b.Digest, holders)
	if err != nil {
		return false, err
	}
	for _, repo := range repos {
		body, err := m.Repair(ctx, repo, b.Digest)
		if err == nil && body == nil {
			continue
		}
		used := false
		if err == nil {
			used, err = m.replace(ctx, b, body)
		}
		if used {
			return true, nil
		}
		if err != nil {
			m.Log.WarnContext(ctx, "repair a blob", "digest", b.Digest, "err", err)
		}
	}
	return false, nil
}

// replace stores body as the bytes of a rotten blob, if body has the right digest. used reports whether it has done
// so.
func (m *Maintainer) replace(ctx context.Context, b registry.Blob, body io.ReadCloser) (used bool, err error) {
	defer body.Close()
	b.Path = upload.PathOf(upload.NewID())
	defer func() {
		if !used {
			err = errors.Join(err, m.Uploads.Discard(context.WithoutCancel(ctx), b.Path))
		}
	}()
	if err := m.Uploads.Put(ctx, b.Path, io.LimitReader(body, b.Size+1)); err != nil {
		return false, err
	}
	sound, _, err := examine(ctx, m.Uploads.Storage.Storage, b, &pace{})
	if err != nil || !sound {
		return false, errors.Join(err, errors.New("the bytes offered for it do not have its digest"))
	}
	return m.Store.ReplaceBlob(ctx, b)
}

// A pace limits the rate at which a reader reads.
type pace struct {
	rate  int64 // bytes per second; 0 means no limit
	begin time.Time
	read  int64
}

// wait waits until n more bytes may be read at this rate.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return ctx.Err()
	}
	p.read += int64(n)
	ahead := time.Duration(float64(p.read)/float64(p.rate)*float64(time.Second)) - time.Since(p.begin)
	if ahead < -time.Second { // after a break, do not exceed the rate to catch up
		p.begin, p.read = time.Now(), 0
	}
	if ahead <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// A pacedReader limits the rate of reads from another reader.
type pacedReader struct {
	ctx  context.Context
	in   io.Reader
	pace *pace
}

// Read implements io.Reader.
func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if ended := r.pace.wait(r.ctx, n); ended != nil {
		err = ended
	}
	return n, err
}
