package upload

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store/access"
)

// BodyPause is how long a client may pause while it sends a body.
const BodyPause = time.Minute

// Append appends the body of a request to an upload. If the body ends early, Append still stores the bytes that have
// arrived, so that the client can resume.
func (u *Uploads) Append(w http.ResponseWriter, req *http.Request, c *Claimed) error {
	ctx := context.WithoutCancel(req.Context()) // received bytes are stored even if the client disconnects
	s, err := u.Resume(ctx, c)
	if err != nil {
		return err
	}
	if err := s.receive(ctx, w, req); err != nil {
		return errors.Join(err, s.interrupt(ctx, err))
	}
	if err := s.pause(ctx); err != nil {
		return UnknownUpload(err, c.ID)
	}
	return nil
}

// Finish appends the body of a request to an upload and makes the upload the blob d of the repo ref. If the digest of
// the bytes is not d, Finish deletes the upload and returns an error.
func (u *Uploads) Finish(
	w http.ResponseWriter, req *http.Request, ref registrydb.RepoRef, c *Claimed, d digest.Digest,
) error {
	ctx := context.WithoutCancel(req.Context())
	if c.Size == 0 {
		c.Algorithm, c.State = d.Algorithm().String(), nil
	}
	s, err := u.Resume(ctx, c)
	if err != nil {
		return err
	}
	if err := s.receive(ctx, w, req); err != nil {
		return errors.Join(err, s.interrupt(ctx, err))
	}
	if err := s.Commit(ctx, d); err != nil {
		return errors.Join(err, s.Drop(ctx))
	}
	b := registry.Blob{Digest: d.String(), Size: s.Size, Path: PathOf(c.ID)}
	row := c.Upload
	if c.monolithic {
		row.ID = ""
	}
	added, err := u.store.AddBlob(ctx, ref, row, c.holder, b)
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Quota != nil {
		return errors.Join(err, s.Drop(ctx))
	}
	if err != nil {
		return err
	}
	if !added {
		if err := u.RemoveBlob(ctx, b.Path); err != nil {
			u.log.WarnContext(ctx, "remove a second copy", "err", err) // the collector will remove the second copy
		}
	}
	c.done = true
	return nil
}

// A Session writes to an upload. It hashes the bytes as they arrive and stores the state of the hash with the
// upload, because bytes that are not committed cannot be read from an object store.
type Session struct {
	*Claimed
	uploads *Uploads
	hash    hash.Hash
	file    blob.Writer
}

// Resume opens an upload for writing. If a crash left more or fewer bytes than the row of the upload says, Resume
// deletes the upload and the client has to start again.
func (u *Uploads) Resume(ctx context.Context, c *Claimed) (*Session, error) {
	h, err := restoreHash(digest.Algorithm(c.Algorithm), c.State)
	if err != nil {
		return nil, err
	}
	file, err := u.Storage.Resume(ctx, PathOf(c.ID), c.Size)
	if blob.Missing(err) {
		return nil, errors.Join(interruptedProblem(c.ID), u.abandon(ctx, c.ID))
	}
	if err != nil {
		return nil, storageFailed("open upload", err)
	}
	return &Session{Claimed: c, uploads: u, hash: h, file: file}, nil
}

// Write appends p to the upload.
func (s *Session) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	if err != nil {
		return n, fmt.Errorf("write upload: %w", err)
	}
	s.hash.Write(p)
	s.Size += int64(n)
	return n, nil
}

// Is reports whether d is the digest of the bytes that were written. The upload must use the same algorithm as d.
func (s *Session) Is(d digest.Digest) bool { return digest.NewDigest(d.Algorithm(), s.hash) == d }

// receive appends the body of a request. If the client disconnects or pauses for too long, receive returns a Problem,
// and the upload can be resumed. It returns another error if the storage fails, if a budget has no room for the bytes,
// or if the caller has lost access.
func (s *Session) receive(ctx context.Context, w http.ResponseWriter, req *http.Request) error {
	span := s.uploads.span(ctx, "receive blob")
	defer span.End(nil)
	room, err := s.uploads.store.Headroom(ctx, s.Group, resource.StoredBytes)
	if err == nil {
		err = room.Require(ctx, max(0, req.ContentLength))
	}
	if err != nil || req.ContentLength == 0 {
		return err
	}
	conn := http.NewResponseController(w)
	h := newHasher(s.hash)
	buf := h.buffer()
	defer func() { h.end(buf) }()
	before := s.Size // bytes that already count towards the budget
	for {
		_ = conn.SetReadDeadline(time.Now().Add(BodyPause)) // fails for connections without deadlines
		n, err := req.Body.Read(buf[:])
		if n > 0 {
			h.add(buf, n)
			if _, err := s.file.Write(buf[:n]); err != nil {
				buf = nil
				return s.failed("write upload", err)
			}
			buf = h.buffer()
			s.Size += int64(n)
		}
		if over := room.Require(ctx, s.Size-before); over != nil {
			return over
		}
		if lost := access.Recheck(ctx); lost != nil {
			return lost
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return oci.NewProblem(http.StatusBadRequest, oci.UploadInvalid, "the body ended early")
		}
	}
}

// failed returns the error for a client after an operation of the storage has failed.
func (s *Session) failed(operation string, err error) error {
	if blob.Missing(err) { // the storage has lost bytes of an earlier request
		return errors.Join(interruptedProblem(s.ID), err)
	}
	return storageFailed(operation, err)
}

// storageFailed adds the name of the operation to err. If the storage is full, it returns fault.Unavailable.
func storageFailed(operation string, err error) error {
	err = fmt.Errorf("%s: %w", operation, err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &fault.Error{
			Code: fault.Unavailable, Message: "Unavailable: the storage of the registry is full", Cause: err,
		}
	}
	return err
}

// pause makes the bytes durable and then stores the state of the upload. It returns fault.NotFound if the upload was
// canceled. If a budget has no room for the bytes, it deletes the upload and returns fault.FailedPrecondition.
func (s *Session) pause(ctx context.Context) (err error) {
	if err := s.file.Pause(ctx); err != nil {
		return errors.Join(s.failed("pause upload", err), s.file.Cancel(ctx))
	}
	if s.State, err = saveHash(s.hash); err != nil {
		return err
	}
	err = s.uploads.store.SaveUpload(ctx, s.Upload, s.holder)
	s.done = err == nil
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Quota != nil {
		s.done = true
		return errors.Join(err, s.Drop(ctx))
	}
	return err
}

// interrupt stores the bytes that arrived before the error cause, so that the client can resume. If the upload cannot
// be resumed, it deletes the upload.
func (s *Session) interrupt(ctx context.Context, cause error) error {
	if _, ok := errors.AsType[*oci.Problem](cause); ok && !s.monolithic && !blob.Missing(cause) {
		err := s.pause(ctx)
		if !errors.Is(err, fault.NotFound) { // fault.NotFound means that the upload was canceled
			return err
		}
		return s.uploads.DiscardUpload(ctx, s.ID)
	}
	s.done = true
	return s.Cancel(ctx)
}

// Cancel ends the session and deletes the upload.
func (s *Session) Cancel(ctx context.Context) error {
	return errors.Join(s.file.Cancel(ctx), s.Drop(ctx))
}

// Drop deletes an upload whose session has ended.
func (s *Session) Drop(ctx context.Context) error { return s.uploads.drop(ctx, s.Claimed) }

// Commit makes the bytes durable if their digest is d.
func (s *Session) Commit(ctx context.Context, d digest.Digest) error {
	wrong := oci.NewProblem(http.StatusBadRequest, oci.DigestInvalid, "the content is not %s", d)
	hashed := s.Algorithm == d.Algorithm().String()
	if hashed && !s.Is(d) {
		return errors.Join(wrong, s.file.Cancel(ctx))
	}
	if err := s.makeDurable(ctx); err != nil {
		return err
	}
	if !hashed {
		ok, err := s.verify(ctx, d)
		if err != nil {
			return err
		}
		if !ok {
			return wrong
		}
	}
	return nil
}

// makeDurable commits the file of an upload, and returns when its bytes are durable.
func (s *Session) makeDurable(ctx context.Context) (err error) {
	span := s.uploads.span(ctx, "commit blob")
	defer func() { span.End(err) }()
	if err := s.file.Commit(ctx); err != nil {
		return s.failed("commit upload", err)
	}
	return nil
}

// verify reports whether the digest of the committed bytes is d. It reads the bytes again, because the client had not
// announced the algorithm of d.
func (s *Session) verify(ctx context.Context, d digest.Digest) (bool, error) {
	body, err := s.uploads.OpenBlob(ctx, PathOf(s.ID), s.Size)
	if err != nil {
		return false, err
	}
	defer body.Close()
	v := d.Verifier()
	if _, err := io.Copy(v, body); err != nil {
		return false, fmt.Errorf("read upload: %w", err)
	}
	return v.Verified(), nil
}
