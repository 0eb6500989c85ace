package protocol

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
)

// startUpload handles the three uses of a POST: it mounts a blob, receives a whole blob in this request, or starts an
// upload.
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
	u := registry.Upload{ID: upload.NewID(), Group: t.group, Repo: t.base(), Algorithm: digest.SHA256.String()}
	if q.Has("digest") {
		d, err := oci.ParseDigest(q.Get("digest"))
		if err != nil {
			return err
		}
		return r.finish(w, req, t, upload.Monolithic(u), d)
	}
	if a := q.Get("digest-algorithm"); a != "" {
		if !oci.Supported(digest.Algorithm(a)) {
			return oci.NewProblem(http.StatusBadRequest, oci.DigestInvalid, "algorithm %.50q is not supported", a)
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
	if n := r.uploads.MinChunk(); n > 0 {
		w.Header().Set("OCI-Chunk-Min-Length", strconv.FormatInt(n, 10))
	}
	writeProgress(w, t, u, http.StatusAccepted)
	return nil
}

// mount responds with 201 if the blob is in another repository that the caller may
// pull from. Otherwise it returns false, and the client has to upload the blob.
func (r *Registry) mount(w http.ResponseWriter, req *http.Request, t target) (bool, error) {
	const holders = 20 // number of repos to try if the client names none
	ctx, q := req.Context(), req.URL.Query()
	d, err := oci.ParseDigest(q.Get("mount"))
	if err != nil {
		return false, err
	}
	if c, _ := authz.CallerFrom(ctx); oci.ValidName(q.Get("from")) && !inScope(c, "repository", q.Get("from"), "pull") {
		if names(c, q.Get("from")) {
			if held, err := r.heldActions(ctx, q.Get("from"), []string{"pull"}); err != nil || len(held) == 0 {
				return false, err // no token allows it, so the client uploads the blob
			}
		}
		needed := append(scopesOf(t, push), scopesOf(target{name: q.Get("from")}, pullBlob)...)
		return false, r.challengeFor(w, needed, insufficientScope, outOfScope())
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

// sources returns the repos from which a blob may be mounted.
func (r *Registry) sources(ctx context.Context, from, digest string, n int) ([]target, error) {
	c, _ := authz.CallerFrom(ctx)
	if from == "" && c.Registry != nil {
		return r.sourcesInScope(ctx, c)
	}
	if from == "" {
		holders, err := r.store.BlobHolders(ctx, digest, n)
		var targets []target
		for _, repo := range holders {
			targets = append(targets, target{repo: repo, group: repo.Parent(), found: true, unsaid: true})
		}
		return targets, err
	}
	t := target{name: from}
	if !oci.ValidName(from) {
		return nil, nil
	}
	err := r.locate(ctx, &t)
	return []target{t}, err // also if the repo is missing, so that admit does the same work as for a private repo
}

// sourcesInScope returns the repos from which a caller with a token for some repos may mount
// a blob if the client names none.
func (r *Registry) sourcesInScope(ctx context.Context, c authz.Caller) (targets []target, _ error) {
	for _, s := range c.Registry {
		if s.Type != "repository" || !slices.Contains(s.Actions, "pull") {
			continue
		}
		t := target{name: s.Name}
		if err := r.locate(ctx, &t); err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func (r *Registry) statUpload(w http.ResponseWriter, req *http.Request, t target) error {
	u, err := r.store.Upload(req.Context(), t.group, t.base(), t.reference)
	if err != nil {
		return upload.UnknownUpload(err, t.reference)
	}
	writeProgress(w, t, u, http.StatusNoContent)
	return nil
}

// patchUpload appends a chunk to an upload or, if the request has no Content-Range, a stream.
func (r *Registry) patchUpload(w http.ResponseWriter, req *http.Request, t target) error {
	u, err := r.uploads.Claim(req.Context(), t.group, t.base(), t.reference)
	if err != nil {
		return err
	}
	defer r.uploads.Release(req.Context(), u)
	if err := checkRange(w, req, t, u.Upload); err != nil {
		return err
	}
	if err := r.uploads.Append(w, req, u); err != nil {
		return err
	}
	writeProgress(w, t, u.Upload, http.StatusAccepted)
	return nil
}

// putUpload completes an upload. The request may contain the last chunk.
func (r *Registry) putUpload(w http.ResponseWriter, req *http.Request, t target) error {
	d, err := oci.ParseDigest(req.URL.Query().Get("digest"))
	if err != nil {
		return err
	}
	u, err := r.uploads.Claim(req.Context(), t.group, t.base(), t.reference)
	if err != nil {
		return err
	}
	defer r.uploads.Release(req.Context(), u)
	if err := checkRange(w, req, t, u.Upload); err != nil {
		return err
	}
	return r.finish(w, req, t, u, d)
}

// finish appends the body of a request to an upload and makes the upload the blob d.
func (r *Registry) finish(
	w http.ResponseWriter, req *http.Request, t target, u *upload.Claimed, d digest.Digest,
) error {
	ref, err := r.pushTo(req.Context(), t)
	if err != nil {
		return err
	}
	if err := r.uploads.Finish(w, req, ref, u, d); err != nil {
		return err
	}
	writeCreated(w, t, d)
	return nil
}

func (r *Registry) cancelUpload(w http.ResponseWriter, req *http.Request, t target) error {
	u, err := r.uploads.Claim(req.Context(), t.group, t.base(), t.reference)
	if err != nil {
		return err
	}
	defer r.uploads.Release(req.Context(), u)
	if err := r.uploads.Cancel(req.Context(), u); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkRange returns an error if a chunk does not begin at the end of the upload. In the OCI specification, the
// header is "first-last", without the unit and size of RFC 9110. checkRange also accepts these, because some clients
// send them.
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
		return oci.NewProblem(http.StatusBadRequest, oci.UploadInvalid, "Content-Range %.100q is not first-last", header)
	}
	if from != u.Size {
		setProgress(w, t, u)
		return oci.NewProblem(http.StatusRequestedRangeNotSatisfiable, oci.UploadInvalid,
			"the next chunk begins at %d, not %d", u.Size, from)
	}
	if req.ContentLength >= 0 && req.ContentLength != to-from+1 {
		return oci.NewProblem(http.StatusBadRequest, oci.SizeInvalid,
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
