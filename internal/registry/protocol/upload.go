package protocol

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// startUpload mounts a blob, receives one in this request, or starts an upload.
func (r *Registry) startUpload(w http.ResponseWriter, req *http.Request, t target) error {
	if _, err := r.pushTo(req.Context(), t); err != nil {
		return err
	}
	q := req.URL.Query()
	if q.Has("mount") {
		mounted, err := r.mount(w, req, t)
		if mounted || err != nil {
			return err
		}
	}
	u := registry.Upload{ID: newID(), Group: t.group, Repo: t.base(), Algorithm: digest.SHA256.String()}
	if q.Has("digest") {
		d, err := parseDigest(q.Get("digest"))
		if err != nil {
			return err
		}
		return r.finish(w, req, t, openUpload{Upload: u, monolithic: true}, d)
	}
	if a := q.Get("digest-algorithm"); a != "" {
		if !supported(digest.Algorithm(a)) {
			return problem(http.StatusBadRequest, digestInvalid, "algorithm %.50q is not supported", a)
		}
		u.Algorithm = a
	}
	room, err := r.store.Headroom(req.Context(), t.group, resource.StoredBytes)
	if err == nil {
		err = room.Require(req.Context(), 1)
	}
	if err != nil {
		return err
	}
	if err := r.store.InsertUpload(req.Context(), u); err != nil {
		return err
	}
	if n := r.storage.MinChunk(); n > 0 {
		w.Header().Set("OCI-Chunk-Min-Length", strconv.FormatInt(n, 10))
	}
	writeProgress(w, t, u, http.StatusAccepted)
	return nil
}

// mount responds with 201 if the blob is in another repository that the caller may
// pull from. Otherwise it returns false, and the client has to upload the blob.
func (r *Registry) mount(w http.ResponseWriter, req *http.Request, t target) (bool, error) {
	const holders = 20 // repositories to try if the client names none
	ctx, q := req.Context(), req.URL.Query()
	d, err := parseDigest(q.Get("mount"))
	if err != nil {
		return false, err
	}
	from, err := r.sources(ctx, q.Get("from"), d.String(), holders)
	if err != nil {
		return false, err
	}
	ref, err := r.pushTo(ctx, t)
	if err != nil {
		return false, err
	}
	for _, s := range from {
		if r.admit(ctx, &s, pullBlob) != nil {
			continue
		}
		err := r.store.MountBlob(ctx, s.repo, ref, d.String())
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		writeCreated(w, t, d)
		return true, nil
	}
	return false, nil
}

// sources returns the repositories that a blob may be mounted from.
func (r *Registry) sources(ctx context.Context, from, digest string, n int) ([]target, error) {
	if from == "" {
		holders, err := r.store.BlobHolders(ctx, digest, n)
		var all []target
		for _, repo := range holders {
			all = append(all, target{repo: repo, group: repo.Parent(), found: true})
		}
		return all, err
	}
	t := target{name: from}
	if !validName(from) {
		return nil, nil
	}
	err := r.locate(ctx, &t)
	if err != nil || t.repo == "" {
		return nil, err
	}
	return []target{t}, nil
}

func (r *Registry) statUpload(w http.ResponseWriter, req *http.Request, t target) error {
	u, err := r.store.Upload(req.Context(), t.group, t.base(), t.reference)
	if err != nil {
		return unknownUpload(err, t.reference)
	}
	writeProgress(w, t, u, http.StatusNoContent)
	return nil
}

func unknownUpload(err error, id string) error {
	if errors.Is(err, fault.NotFound) {
		return problem(http.StatusNotFound, uploadUnknown, "there is no upload %.100q here", id)
	}
	return err
}

// patchUpload appends a chunk or, without Content-Range, a stream.
func (r *Registry) patchUpload(w http.ResponseWriter, req *http.Request, t target) error {
	u, err := r.claim(req.Context(), t)
	if err != nil {
		return err
	}
	defer r.release(req.Context(), &u)
	if err := checkRange(w, req, t, u.Upload); err != nil {
		return err
	}
	ctx := context.WithoutCancel(req.Context()) // what has arrived is stored also if the client goes away
	s, err := r.resume(ctx, &u)
	if err != nil {
		return err
	}
	if err := s.receive(ctx, w, req); err != nil {
		return errors.Join(err, s.interrupt(ctx, err))
	}
	if err := s.pause(ctx); err != nil {
		return unknownUpload(err, u.ID)
	}
	writeProgress(w, t, u.Upload, http.StatusAccepted)
	return nil
}

// putUpload completes an upload, with or without a last chunk.
func (r *Registry) putUpload(w http.ResponseWriter, req *http.Request, t target) error {
	d, err := parseDigest(req.URL.Query().Get("digest"))
	if err != nil {
		return err
	}
	u, err := r.claim(req.Context(), t)
	if err != nil {
		return err
	}
	defer r.release(req.Context(), &u)
	if err := checkRange(w, req, t, u.Upload); err != nil {
		return err
	}
	err = r.finish(w, req, t, u, d)
	u.done = err == nil // and gone
	return err
}

func (r *Registry) cancelUpload(w http.ResponseWriter, req *http.Request, t target) error {
	u, err := r.claim(req.Context(), t)
	if err != nil {
		return err
	}
	defer r.release(req.Context(), &u)
	if err := r.abandon(req.Context(), u.ID); err != nil {
		return unknownUpload(err, u.ID)
	}
	u.done = true
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkRange refuses a chunk that does not begin at the end of the upload. The specification's header is
// "first-last", without the unit and size of RFC 9110, which some clients send all the same.
func checkRange(w http.ResponseWriter, req *http.Request, t target, u registry.Upload) error {
	header := req.Header.Get("Content-Range")
	if header == "" {
		return nil
	}
	span, _, _ := strings.Cut(strings.TrimPrefix(header, "bytes "), "/")
	first, last, ok := strings.Cut(span, "-")
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if !ok || err1 != nil || err2 != nil || from < 0 || to < from {
		return problem(http.StatusBadRequest, uploadInvalid, "Content-Range %.100q is not first-last", header)
	}
	if from != u.Size {
		setProgress(w, t, u)
		return problem(http.StatusRequestedRangeNotSatisfiable, uploadInvalid,
			"the next chunk begins at %d, not %d", u.Size, from)
	}
	if req.ContentLength >= 0 && req.ContentLength != to-from+1 {
		return problem(http.StatusBadRequest, sizeInvalid,
			"Content-Range has %d bytes, Content-Length %d", to-from+1, req.ContentLength)
	}
	return nil
}

func setProgress(w http.ResponseWriter, t target, u registry.Upload) {
	h := w.Header()
	h.Set("Location", "/v2/"+t.name+"/blobs/uploads/"+u.ID)
	h.Set("Docker-Upload-Uuid", u.ID)
	h.Set("Range", fmt.Sprintf("0-%d", max(u.Size-1, 0)))
}

func writeProgress(w http.ResponseWriter, t target, u registry.Upload, status int) {
	setProgress(w, t, u)
	w.WriteHeader(status)
}

func writeCreated(w http.ResponseWriter, t target, d digest.Digest) {
	w.Header().Set("Location", "/v2/"+t.name+"/blobs/"+d.String())
	w.Header().Set("Docker-Content-Digest", d.String())
	w.WriteHeader(http.StatusCreated)
}

// newID returns a random UUID, as the specification wants for an upload.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
