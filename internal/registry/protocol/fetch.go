package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	maxResumes  = 5                      // of one download that breaks off
	resumeAfter = 100 * time.Millisecond // the first time, and then twice as long each time
)

// fetchBlob serves a blob that is not stored from the upstream of a target, if it has one: to all who ask for it while it
// arrives, and stores it. missing is the error otherwise.
func (r *Registry) fetchBlob(
	w http.ResponseWriter, req *http.Request, t target, d digest.Digest, missing error,
) error {
	ctx := req.Context()
	u, err := r.mirrorOf(ctx, t)
	if err != nil {
		return err
	}
	if u == nil || !r.mayFetch(t, u) {
		return missing
	}
	if req.Method == http.MethodHead {
		return r.statBlob(w, req, u, d)
	}
	key := t.name + "@" + d.String()
	arriving, first := r.downloads.get(key)
	defer arriving.leave()
	if first {
		go r.download(context.WithoutCancel(ctx), u, t.name, d, key, arriving)
	}
	size, err := arriving.length(ctx)
	if err == nil && (size < 0 || req.Header.Get("Range") != "") { // it is served when it is here
		if err = arriving.wait(ctx); err == nil {
			if err = r.relocate(ctx, &t, u); err == nil {
				return r.storedBlob(w, req, t, d)
			}
		}
	}
	if err != nil {
		return r.upstreamProblem(ctx, u, err)
	}
	setBlob(w, d)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	sent := &countingWriter{Writer: w}
	err = arriving.copyTo(ctx, sent, func() {
		if sent.n > 0 {
			_ = http.NewResponseController(w).Flush() // not every writer can
		}
	})
	if err != nil && sent.n == 0 {
		return r.upstreamProblem(ctx, u, err)
	}
	return nil // a client that got less than the length it was told knows that something is wrong
}

// A countingWriter counts what was written.
type countingWriter struct {
	io.Writer
	n int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n += int64(n)
	return n, err
}

// statBlob tells how long a blob is that only the upstream has.
func (r *Registry) statBlob(w http.ResponseWriter, req *http.Request, u *mirror, d digest.Digest) error {
	ctx, cancel := context.WithTimeout(req.Context(), statTime)
	defer cancel()
	err := r.leftAlone(u, "blob", d.String(), false)
	if err != nil {
		return r.upstreamProblem(req.Context(), u, err)
	}
	end, err := r.asks.take(ctx, u.UID.Root())
	if err != nil {
		return err
	}
	defer end()
	size, err := r.config.Upstreams.StatBlob(ctx, r.remote(u.Upstream), u.repo(), d.String())
	r.noteAnswer(ctx, u, err)
	r.absences.note(u.key("blob", d.String()), err, r.config.Now())
	if err != nil {
		return r.upstreamProblem(req.Context(), u, err)
	}
	setBlob(w, d)
	w.Header().Set("Accept-Ranges", "bytes")
	if size >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
	return nil
}

// download brings a blob here for all who wait for it. It goes on if they leave: the next to ask has it.
func (r *Registry) download(ctx context.Context, u *mirror, name string, d digest.Digest, key string, to *download) {
	err := r.receiveBlob(ctx, u, name, d, to)
	r.noteAnswer(ctx, u, err)
	r.config.Metrics.Upstreams.Add(1, metric.Blob, outcomeOf(metric.Fetched, false, err))
	if _, theirs := errors.AsType[*upstream.Error](err); err != nil && !theirs && fault.From(err).Code == fault.Internal {
		r.config.Log.WarnContext(ctx, "a blob of an upstream was not stored", "upstream", string(u.UID), "digest", d.String(),
			"err", err)
	}
	r.downloads.end(key, to, err)
}

// receiveBlob fetches a blob and stores it, unless it is here by now.
func (r *Registry) receiveBlob(ctx context.Context, u *mirror, name string, d digest.Digest, to *download) error {
	if err := r.leftAlone(u, "blob", d.String(), false); err != nil {
		return err
	}
	end, err := r.fetches.take(ctx, u.UID.Root())
	if err != nil {
		return err
	}
	defer end()
	if repo, err := r.repoOf(ctx, u, name); err == nil {
		if _, err := r.store.Blob(ctx, repo, d.String()); !errors.Is(err, fault.NotFound) {
			return err
		}
	}
	in := &inflow{registry: r, u: u, digest: d, to: to}
	err = in.open(ctx)
	r.absences.note(u.key("blob", d.String()), err, r.config.Now())
	if err != nil {
		return err
	}
	defer in.close()
	row := openUpload{monolithic: true, Upload: registry.Upload{
		ID: newID(), Group: u.Group(), Repo: u.names[len(u.names)-1], Algorithm: d.Algorithm().String(),
	}}
	s, err := r.resume(ctx, &row)
	if err != nil {
		return err
	}
	if err := in.pour(ctx, s); err != nil {
		return errors.Join(err, s.file.Cancel(ctx), r.drop(ctx, &row))
	}
	to.verify()
	return r.keepBlob(ctx, u, name, s, d)
}

// keepBlob stores a blob that has arrived, as the service itself.
func (r *Registry) keepBlob(ctx context.Context, u *mirror, name string, s *session, d digest.Digest) error {
	ctx = bySystem(ctx)
	if err := s.commit(ctx, d); err != nil {
		return errors.Join(err, r.drop(ctx, s.openUpload))
	}
	ref, err := r.mirrorRef(ctx, u, name)
	if err != nil {
		return errors.Join(err, r.drop(ctx, s.openUpload))
	}
	used, err := r.store.MirrorBlob(ctx, ref, registry.Blob{Digest: d.String(), Size: s.Size, Path: pathOf(s.ID)})
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return errors.Join(err, r.drop(ctx, s.openUpload))
	}
	if err == nil && !used { // another replica was faster, or another repo has it
		err = r.storage.remove(ctx, pathOf(s.ID))
	}
	return err
}

// An inflow reads a blob from an upstream, and goes on where it broke off.
type inflow struct {
	registry *Registry
	u        *mirror
	digest   digest.Digest
	to       *download
	room     *store.Headroom
	body     *upstream.Blob
	resumes  int
}

// open asks the upstream for the blob, if there is room for it.
func (in *inflow) open(ctx context.Context) (err error) {
	r := in.registry
	if in.room, err = r.store.Headroom(ctx, in.u.Group(), resource.StoredBytes); err != nil {
		return err
	}
	if err := in.ask(ctx, 0); err != nil {
		return err
	}
	if err := in.room.Require(ctx, max(1, in.body.Size)); err != nil {
		return errors.Join(err, in.body.Close())
	}
	if err := in.to.start(r.config.Dir, in.body.Size); err != nil {
		return errors.Join(fmt.Errorf("hold a blob that arrives: %w", err), in.body.Close())
	}
	return nil
}

func (in *inflow) ask(ctx context.Context, from int64) (err error) {
	r := in.registry
	in.body, err = r.config.Upstreams.Blob(ctx, r.remote(in.u.Upstream), in.u.repo(), in.digest.String(), from)
	return err
}

func (in *inflow) close() {
	if in.body != nil {
		_ = in.body.Close()
	}
}

// pour writes the blob to its file, and to who waits for it. It returns an error unless it is the blob.
func (in *inflow) pour(ctx context.Context, s *session) error {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	size := in.body.Size
	for {
		n, err := in.body.Read(buf[:])
		if err := in.write(ctx, s, buf[:n], size); err != nil {
			return err
		}
		switch {
		case err == io.EOF && (size < 0 || s.Size == size):
			if digest.NewDigest(in.digest.Algorithm(), s.hash) != in.digest {
				return &upstream.Error{Reason: "what it sent does not have the digest that it should have"}
			}
			return nil
		case err != nil:
			if err := in.again(ctx, s.Size, err); err != nil {
				return err
			}
		}
	}
}

// write writes what has arrived.
func (in *inflow) write(ctx context.Context, s *session, p []byte, size int64) error {
	if len(p) == 0 {
		return nil
	}
	if size >= 0 && s.Size+int64(len(p)) > size {
		return &upstream.Error{Reason: "it sends more than it said"}
	}
	if err := in.room.Require(ctx, s.Size+int64(len(p))); err != nil {
		return err
	}
	if _, err := s.file.Write(p); err != nil {
		return fmt.Errorf("write upload: %w", err)
	}
	s.hash.Write(p)
	s.Size += int64(len(p))
	if _, err := in.to.Write(p); err != nil {
		return fmt.Errorf("hold a blob that arrives: %w", err)
	}
	return nil
}

// again asks for the rest of a blob that broke off.
func (in *inflow) again(ctx context.Context, from int64, cause error) error {
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
		err := in.ask(ctx, from)
		if err == nil {
			return nil
		}
		if _, limited := upstream.Limited(err); limited || upstream.NotFound(err) || upstream.Refused(err) {
			return err
		}
		cause = err
	}
}
