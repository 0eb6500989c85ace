package protocol

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
)

// The lease on an upload, which keeps other processes from writing to it. It is
// renewed as long as the process lives, however long the request takes, so it
// can be short: a client that lost its server waits for it to end.
const (
	leaseTime  = 10 * time.Second
	leaseRenew = 2 * time.Second
)

// An openUpload is an upload that no other request can write to.
type openUpload struct {
	registry.Upload
	holder     string             // of the lease; "" if no other process uses the database
	letGo      context.CancelFunc // stops renewing the lease; nil without one
	monolithic bool               // it ends with its request, and has no row
	done       bool               // it has ended, or its lease was released
}

// claim returns an upload that no other request can write to until release. If
// the holder before has not let go of it and its lease has ended, it may have
// been killed, or it may be about to continue and write to the same bytes. So
// claim deletes the upload, and the client has to start again.
func (r *Registry) claim(ctx context.Context, t target) (openUpload, error) {
	busy := problem(http.StatusConflict, uploadInvalid, "another request is writing to this upload")
	u := openUpload{done: true}
	if !r.lock(t.reference) {
		return u, busy
	}
	interrupted, err := false, error(nil)
	if r.store.Replicated() {
		u.holder = newID()
		u.Upload, interrupted, err = r.store.HoldUpload(ctx, t.group, t.base(), t.reference, u.holder,
			r.config.Now().Add(leaseTime))
	} else {
		u.Upload, err = r.store.Upload(ctx, t.group, t.base(), t.reference)
	}
	if interrupted {
		err = errors.Join(uploadInterrupted(u.ID), r.abandon(ctx, u.ID))
	}
	if err != nil {
		r.unlock(t.reference)
		if errors.Is(err, fault.Aborted) {
			return u, busy
		}
		return u, unknownUpload(err, t.reference)
	}
	if u.holder != "" {
		var held context.Context
		held, u.letGo = context.WithCancel(context.WithoutCancel(ctx))
		go r.renew(held, u.ID, u.holder)
	}
	u.done = false
	return u, nil
}

func uploadInterrupted(id string) error {
	return problem(http.StatusNotFound, uploadUnknown, "upload %s was interrupted; start again", id)
}

// release ends a claim.
func (r *Registry) release(ctx context.Context, u *openUpload) {
	if u.letGo != nil {
		u.letGo()
	}
	if u.holder != "" && !u.done {
		if err := r.store.ReleaseUpload(context.WithoutCancel(ctx), u.ID, u.holder); err != nil {
			r.config.Log.WarnContext(ctx, "release upload", "err", err) // the lease will expire
		}
	}
	r.unlock(u.ID)
}

// renew renews the lease on an upload until ctx is done or the lease is lost.
func (r *Registry) renew(ctx context.Context, id, holder string) {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := r.store.RenewUpload(ctx, id, holder, r.config.Now().Add(leaseTime))
		switch {
		case ctx.Err() != nil || errors.Is(err, fault.NotFound):
			return
		case err != nil:
			r.config.Log.WarnContext(ctx, "renew the lease on an upload", "err", err)
		}
	}
}

// lock reports whether the caller may write to an upload, until unlock.
func (r *Registry) lock(id string) bool {
	_, busy := r.busy.LoadOrStore(id, true)
	return !busy
}

func (r *Registry) unlock(id string) { r.busy.Delete(id) }

// A session writes to an upload. It hashes the bytes as they arrive and stores the state of the hash with the
// upload, because what is not committed cannot be read from an object store.
type session struct {
	*openUpload
	registry *Registry
	hash     hash.Hash
	file     blob.Writer
}

// resume opens u for writing. If a crash left more or fewer bytes than u has in the
// store, it deletes the upload and the client has to start again.
func (r *Registry) resume(ctx context.Context, u *openUpload) (*session, error) {
	h, err := restoreHash(digest.Algorithm(u.Algorithm), u.State)
	if err != nil {
		return nil, err
	}
	file, err := r.storage.Resume(ctx, pathOf(u.ID), u.Size)
	if blob.Missing(err) {
		return nil, errors.Join(uploadInterrupted(u.ID), r.abandon(ctx, u.ID))
	}
	if err != nil {
		return nil, storageFailed("open upload", err)
	}
	return &session{openUpload: u, registry: r, hash: h, file: file}, nil
}

// receive appends the body of a request. It returns a Problem if the client goes away or pauses for too long,
// after which the upload can be resumed, and another error if the storage fails or a budget has no room for it.
func (s *session) receive(ctx context.Context, w http.ResponseWriter, req *http.Request) error {
	span := s.registry.storage.span(ctx, "receive blob")
	defer span.End(nil)
	room, err := s.registry.store.Headroom(ctx, s.Group, resource.StoredBytes)
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
	before := s.Size // which is counted already
	for {
		_ = conn.SetReadDeadline(time.Now().Add(bodyPause)) // not every connection has deadlines
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
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return problem(http.StatusBadRequest, uploadInvalid, "the body ended early")
		}
	}
}

// failed returns the error for a client if the storage has failed.
func (s *session) failed(operation string, err error) error {
	if blob.Missing(err) { // the storage has lost what was written before
		return errors.Join(uploadInterrupted(s.ID), err)
	}
	return storageFailed(operation, err)
}

// storageFailed says what failed, and tells the client if there is no room.
func storageFailed(operation string, err error) error {
	err = fmt.Errorf("%s: %w", operation, err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &fault.Error{Code: fault.Unavailable, Message: "Unavailable: the storage of the registry is full", Cause: err}
	}
	return err
}

// pause makes the bytes durable and then stores the state of the upload. It returns
// fault.NotFound if the upload was cancelled. If a budget has no room for it, it ends
// the upload and returns fault.FailedPrecondition.
func (s *session) pause(ctx context.Context) (err error) {
	if err := s.file.Pause(ctx); err != nil {
		return errors.Join(s.failed("pause upload", err), s.file.Cancel(ctx))
	}
	if s.State, err = saveHash(s.hash); err != nil {
		return err
	}
	err = s.registry.store.SaveUpload(ctx, s.Upload, s.holder)
	s.done = err == nil
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Quota != nil {
		s.done = true
		return errors.Join(err, s.registry.drop(ctx, s.openUpload))
	}
	return err
}

// interrupt stores what arrived before cause, so that the client can resume, or
// deletes the upload if it cannot be resumed.
func (s *session) interrupt(ctx context.Context, cause error) error {
	if _, ok := errors.AsType[*Problem](cause); ok && !s.monolithic && !blob.Missing(cause) {
		err := s.pause(ctx)
		if !errors.Is(err, fault.NotFound) { // else it was cancelled
			return err
		}
		return s.registry.storage.discard(ctx, s.ID)
	}
	s.done = true
	return errors.Join(s.file.Cancel(ctx), s.registry.drop(ctx, s.openUpload))
}

// drop deletes an upload that failed.
func (r *Registry) drop(ctx context.Context, u *openUpload) error {
	if u.monolithic {
		return r.storage.discard(ctx, u.ID)
	}
	if err := r.abandon(ctx, u.ID); !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// finish appends the request's body to u and makes it the blob d, or ends the upload if it is not that blob.
func (r *Registry) finish(w http.ResponseWriter, req *http.Request, t target, u openUpload, d digest.Digest) error {
	ref, err := r.pushTo(req.Context(), t)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(req.Context())
	if u.Size == 0 {
		u.Algorithm, u.State = d.Algorithm().String(), nil
	}
	s, err := r.resume(ctx, &u)
	if err != nil {
		return err
	}
	if err := s.receive(ctx, w, req); err != nil {
		return errors.Join(err, s.interrupt(ctx, err))
	}
	if err := s.commit(ctx, d); err != nil {
		return errors.Join(err, r.drop(ctx, &u))
	}
	b := registry.Blob{Digest: d.String(), Size: s.Size, Path: pathOf(u.ID)}
	row := u.Upload
	if u.monolithic {
		row.ID = ""
	}
	added, err := r.store.AddBlob(ctx, ref, row, u.holder, b)
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Quota != nil {
		return errors.Join(err, r.drop(ctx, &u))
	}
	if err != nil {
		return err
	}
	if !added {
		if err := r.storage.remove(ctx, b.Path); err != nil {
			r.config.Log.WarnContext(ctx, "remove a second copy", "err", err) // the collector will remove it
		}
	}
	writeCreated(w, t, d)
	return nil
}

// commit makes the bytes durable if their digest is d.
func (s *session) commit(ctx context.Context, d digest.Digest) error {
	wrong := problem(http.StatusBadRequest, digestInvalid, "the content is not %s", d)
	same := s.Algorithm == d.Algorithm().String()
	if same && digest.NewDigest(d.Algorithm(), s.hash) != d {
		return errors.Join(wrong, s.file.Cancel(ctx))
	}
	if err := s.makeDurable(ctx); err != nil {
		return err
	}
	if !same {
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

// makeDurable ends the file of an upload and returns when it is on disk.
func (s *session) makeDurable(ctx context.Context) (err error) {
	span := s.registry.storage.span(ctx, "commit blob")
	defer func() { span.End(err) }()
	if err := s.file.Commit(ctx); err != nil {
		return s.failed("commit upload", err)
	}
	return nil
}

// verify reports whether the digest of the committed bytes is d. It reads them
// again, because the client has not announced the algorithm of d.
func (s *session) verify(ctx context.Context, d digest.Digest) (bool, error) {
	body, err := s.registry.storage.open(ctx, pathOf(s.ID), s.Size)
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

// abandon deletes an upload and its bytes. It returns fault.NotFound if there is no such upload.
func (r *Registry) abandon(ctx context.Context, id string) error {
	err := r.store.DeleteUpload(ctx, id)
	return errors.Join(err, r.storage.discard(ctx, id))
}
