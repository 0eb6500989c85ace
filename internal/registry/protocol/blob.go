package protocol

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/store/access"
)

// maxRanges is the number of ranges from which a Range header is ignored. Real clients ask for few ranges, and each
// range costs a request to an object store.
const maxRanges = 8

func (r *Registry) getBlob(w http.ResponseWriter, req *http.Request, t target) error {
	d, err := oci.ParseDigest(t.reference)
	if err != nil {
		return err
	}
	err = r.storedBlob(w, req, t, d)
	if errors.Is(err, fault.NotFound) {
		return r.fetchBlob(w, req, t, d, oci.StoreProblem(err, oci.BlobUnknown, "blob "+d.String()))
	}
	if _, copied, _ := r.mirror.UpstreamOf(req.Context(), t.group); copied && err == nil {
		r.config.Metrics.Upstreams.Add(1, metric.Blob, metric.Hit)
	}
	return err
}

// setBlob sets the response headers for a blob.
func setBlob(w http.ResponseWriter, d digest.Digest) {
	h := w.Header()
	h.Set("Docker-Content-Digest", d.String())
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Etag", strconv.Quote(d.String()))
	h.Set("Cache-Control", "private, max-age=31536000")
}

// storedBlob serves a blob that is stored in a repo. It returns fault.NotFound if the repo does not have the blob.
func (r *Registry) storedBlob(w http.ResponseWriter, req *http.Request, t target, d digest.Digest) error {
	b, err := r.store.Blob(req.Context(), t.repo, d.String())
	if err != nil {
		return err
	}
	h := w.Header()
	setBlob(w, d)
	if req.Method == http.MethodHead {
		h.Set("Content-Length", strconv.FormatInt(b.Size, 10))
		h.Set("Accept-Ranges", "bytes")
		return nil
	}
	if r.config.Redirect {
		u, err := r.uploads.Address(req.Context(), b.Path)
		if err == nil && u != "" {
			http.Redirect(w, req, u, http.StatusTemporaryRedirect)
			return nil
		}
	}
	body, err := r.uploads.OpenBlob(req.Context(), b.Path, b.Size)
	if err != nil {
		return err
	}
	defer body.Close()
	if ranges := req.Header.Get("Range"); strings.Count(ranges, ",") >= maxRanges || !strings.HasPrefix(ranges, "bytes=") {
		req.Header.Del("Range") // RFC 9110 allows this for many ranges, and demands it for an unknown unit
	}
	w = &guardedWriter{w, req.Context()}
	if req.Header.Get("Range") != "" {
		w = &rangeWriter{ResponseWriter: w, registry: r, req: req}
	}
	http.ServeContent(w, req, "", time.Time{}, body)
	return nil
}

// sendPiece is the number of bytes of a blob that are sent before the access of the caller is checked again.
const sendPiece = 4 << 20

// A guardedWriter writes a response until the caller loses access. Then it returns an error. The client notices,
// because it gets fewer bytes than Content-Length.
type guardedWriter struct {
	http.ResponseWriter
	ctx context.Context
}

func (w *guardedWriter) Write(p []byte) (int, error) {
	if err := access.Recheck(w.ctx); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that the kernel can send a file. The kernel sends only a reader that is a file
// or an io.LimitedReader of a file, so ReadFrom makes the pieces from the reader inside.
func (w *guardedWriter) ReadFrom(body io.Reader) (sent int64, _ error) {
	rest := int64(math.MaxInt64)
	if limited, ok := body.(*io.LimitedReader); ok {
		rest, body = limited.N, limited.R
	}
	for rest > 0 {
		if err := access.Recheck(w.ctx); err != nil {
			return sent, err
		}
		piece := min(rest, sendPiece)
		n, err := io.Copy(w.ResponseWriter, io.LimitReader(body, piece))
		sent += n
		rest -= n
		if err != nil || n < piece {
			return sent, err
		}
	}
	return sent, nil
}

// A rangeWriter handles ranges that cannot be satisfied. It replaces the plain text that net/http writes by an error
// in the protocol's format.
type rangeWriter struct {
	http.ResponseWriter
	registry *Registry
	req      *http.Request
	refused  bool
}

func (w *rangeWriter) WriteHeader(status int) {
	if status != http.StatusRequestedRangeNotSatisfiable {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	p := oci.NewProblem(status, oci.SizeInvalid, "the blob does not have that range")
	w.registry.writeProblem(w.ResponseWriter, w.req, p)
}

func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that the kernel can send a file.
func (w *rangeWriter) ReadFrom(body io.Reader) (int64, error) {
	return io.Copy(w.ResponseWriter, body)
}

func (r *Registry) deleteBlob(w http.ResponseWriter, req *http.Request, t target) error {
	d, err := oci.ParseDigest(t.reference)
	if err != nil {
		return err
	}
	if err := r.store.DeleteBlob(req.Context(), t.repo, d.String()); err != nil {
		return oci.StoreProblem(err, oci.BlobUnknown, "blob "+d.String())
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
