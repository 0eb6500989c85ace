package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	maxResumes  = 5                      // how often one download is resumed
	resumeAfter = 100 * time.Millisecond // wait before the first resumption; it doubles each time

	wrongDigest = "what it sent does not have the digest that it should have"
)

// FetchBlob returns the download of a blob. It starts the download unless it is already running. The download ends when
// no client waits for it. If all bytes have arrived before, the blob is stored, so that the next request finds it. The
// caller must call Leave.
func (f *Fetcher) FetchBlob(ctx context.Context, s *Source, path string, d digest.Digest) *Download {
	key := path + "@" + d.String()
	arriving, first := f.downloads.get(ctx, key)
	if first {
		go f.download(s, path, d, key, arriving)
	}
	return arriving
}

// StatBlob returns the size of a blob at the upstream, in bytes. The size is -1 if the upstream does not report it.
func (f *Fetcher) StatBlob(ctx context.Context, s *Source, d digest.Digest) (size int64, _ error) {
	timed, cancel := context.WithTimeout(ctx, statTime)
	defer cancel()
	err := f.checkPause(s, "blob", d.String(), false)
	if err != nil {
		return 0, f.Problem(ctx, s, err)
	}
	end, err := f.short.take(timed, s.UID.Root())
	if err != nil {
		return 0, err
	}
	defer end()
	size, err = f.config.Upstreams.StatBlob(timed, f.remote(s.Upstream), s.repo(), d.String())
	f.noteAnswer(timed, s, err)
	f.absences.note(s.key("blob", d.String()), err, f.config.Now())
	if err != nil {
		return 0, f.Problem(ctx, s, err)
	}
	return size, nil
}

// download fetches a blob and makes its bytes available to all readers of to.
func (f *Fetcher) download(s *Source, path string, d digest.Digest, key string, to *Download) {
	ctx := to.ctx
	err := f.receiveBlob(ctx, s, path, d, to)
	if ctx.Err() != nil { // the upstream did not fail
		f.config.Metrics.Upstreams.Add(1, metric.Blob, metric.Abandoned)
		f.downloads.end(key, to, context.Cause(ctx))
		return
	}
	f.noteAnswer(ctx, s, err)
	f.config.Metrics.Upstreams.Add(1, metric.Blob, outcomeOf(metric.Fetched, false, err))
	_, byUpstream := errors.AsType[*upstream.Error](err)
	if err != nil && !byUpstream && fault.From(err).Code == fault.Internal {
		f.config.Log.WarnContext(ctx, "a blob of an upstream was not stored", "upstream", string(s.UID),
			"digest", d.String(), "err", err)
	}
	f.downloads.end(key, to, err)
}

// receiveBlob fetches a blob and stores it, unless another request has stored it in the meantime.
func (f *Fetcher) receiveBlob(ctx context.Context, s *Source, path string, d digest.Digest, to *Download) error {
	if err := f.checkPause(s, "blob", d.String(), false); err != nil {
		return err
	}
	end, err := f.blobs.take(ctx, s.UID.Root())
	if err != nil {
		return err
	}
	defer end()
	if repo, err := f.RepoOf(ctx, s, path); err == nil {
		if _, err := f.store.Blob(ctx, repo, d.String()); !errors.Is(err, fault.NotFound) {
			return err
		}
	}
	in := &blobReader{fetcher: f, source: s, digest: d, to: to}
	err = in.open(ctx)
	f.absences.note(s.key("blob", d.String()), err, f.config.Now())
	if err != nil {
		return err
	}
	defer in.close()
	session, err := f.uploads.Resume(ctx, upload.Monolithic(registry.Upload{
		ID: upload.NewID(), Group: s.Group(), Repo: s.names[len(s.names)-1], Algorithm: d.Algorithm().String(),
	}))
	if err != nil {
		return err
	}
	if err := in.copyTo(ctx, session); err != nil {
		return errors.Join(err, session.Cancel(context.WithoutCancel(ctx)))
	}
	if !to.verify() {
		return errors.Join(errAbandoned, session.Cancel(context.WithoutCancel(ctx)))
	}
	return f.storeBlob(ctx, s, path, session, d)
}

// storeBlob stores a blob that has arrived completely. The change is recorded with the server itself as the actor.
func (f *Fetcher) storeBlob(
	ctx context.Context, s *Source, path string, session *upload.Session, d digest.Digest,
) error {
	ctx = bySystem(ctx)
	if err := session.Commit(ctx, d); err != nil {
		return errors.Join(err, session.Drop(ctx))
	}
	ref, err := f.repoRef(ctx, s, path)
	if err != nil {
		return errors.Join(err, session.Drop(ctx))
	}
	b := registry.Blob{Digest: d.String(), Size: session.Size, Path: upload.PathOf(session.ID)}
	used, err := f.store.MirrorBlob(ctx, ref, b)
	if fe := (*fault.Error)(nil); errors.As(err, &fe) {
		return errors.Join(err, session.Drop(ctx))
	}
	if err == nil && !used { // the bytes are not needed: another replica or another repo has stored the same blob
		err = f.uploads.RemoveBlob(ctx, b.Path)
	}
	return err
}

// A blobReader reads a blob from an upstream. If the connection breaks, it requests the rest.
type blobReader struct {
	fetcher *Fetcher
	source  *Source
	digest  digest.Digest
	to      *Download
	room    *store.Headroom
	body    *upstream.Blob
	resumes int
}

// open requests the blob. It returns an error if a budget has no room for it.
func (in *blobReader) open(ctx context.Context) (err error) {
	f := in.fetcher
	if in.room, err = f.store.Headroom(ctx, in.source.Group(), resource.StoredBytes); err != nil {
		return err
	}
	if err := in.request(ctx, 0); err != nil {
		return err
	}
	if err := in.room.Require(ctx, max(1, in.body.Size)); err != nil {
		return errors.Join(err, in.body.Close())
	}
	if err := in.to.start(f.config.Dir, in.body.Size); err != nil {
		return errors.Join(fmt.Errorf("hold a blob that arrives: %w", err), in.body.Close())
	}
	return nil
}

// request asks the upstream for the bytes of the blob from an offset on.
func (in *blobReader) request(ctx context.Context, from int64) (err error) {
	f := in.fetcher
	in.body, err = f.config.Upstreams.Blob(ctx, f.remote(in.source.Upstream), in.source.repo(), in.digest.String(), from)
	return err
}

func (in *blobReader) close() {
	if in.body != nil {
		_ = in.body.Close()
	}
}

// copyTo writes the blob to its upload session and to the download. It returns an error if the digest of the bytes is
// wrong.
func (in *blobReader) copyTo(ctx context.Context, s *upload.Session) error {
	buf := upload.GetChunk()
	defer upload.PutChunk(buf)
	size := in.body.Size
	for {
		n, err := in.body.Read(buf[:])
		if err := in.write(ctx, s, buf[:n], size); err != nil {
			return err
		}
		switch {
		case err == io.EOF && (size < 0 || s.Size == size):
			if !s.Is(in.digest) {
				return &upstream.Error{Reason: wrongDigest}
			}
			return nil
		case err != nil:
			if err := in.resume(ctx, s.Size, err); err != nil {
				return err
			}
		}
	}
}

// write writes bytes that have arrived to the upload session and to the download.
func (in *blobReader) write(ctx context.Context, s *upload.Session, p []byte, size int64) error {
	if len(p) == 0 {
		return nil
	}
	if size >= 0 && s.Size+int64(len(p)) > size {
		return &upstream.Error{Reason: "it sends more than it said"}
	}
	if err := in.room.Require(ctx, s.Size+int64(len(p))); err != nil {
		return err
	}
	if _, err := s.Write(p); err != nil {
		return err
	}
	if _, err := in.to.Write(p); err != nil {
		return fmt.Errorf("hold a blob that arrives: %w", err)
	}
	return nil
}

// resume requests the rest of a blob after the connection broke because of cause.
func (in *blobReader) resume(ctx context.Context, from int64, cause error) error {
	for {
		in.close()
		in.body = nil
		if in.resumes++; in.resumes > maxResumes {
			return &upstream.Error{Reason: "what it sends breaks off again and again", Cause: cause}
		}
		select {
		case <-time.After(resumeAfter << (in.resumes - 1)):
		case <-ctx.Done():
			return ctx.Err()
		}
		err := in.request(ctx, from)
		if err == nil {
			return nil
		}
		if _, limited := upstream.Limited(err); limited || upstream.NotFound(err) || upstream.Refused(err) {
			return err
		}
		cause = err
	}
}
