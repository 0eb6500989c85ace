package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
)

func (r *Registry) writeProblem(w http.ResponseWriter, req *http.Request, err error) {
	p := oci.AsProblem(err)
	// A bad gateway is a failure of an upstream, not of this server.
	ours := p.Status >= http.StatusInternalServerError && p.Status != http.StatusBadGateway
	if ours && !errors.Is(err, context.Canceled) {
		trace.FromContext(req.Context()).Fail()
		if id := trace.Reference(req.Context(), requestID(req)); id != "" && p.Status == http.StatusInternalServerError {
			p.Issues[0].Message += ": request " + id
		}
		r.config.Log.ErrorContext(req.Context(), "registry request failed",
			"method", req.Method, "path", req.URL.Path, "request", requestID(req), "err", err)
	}
	body, encoding := json.Marshal(map[string]any{"errors": p.Issues})
	if encoding != nil {
		r.config.Log.ErrorContext(req.Context(), "encode problem", "err", encoding)
	}
	h := w.Header()
	h.Del("Docker-Content-Digest")
	h.Del("Etag")
	h.Del("Cache-Control")
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.RetryIn > 0 {
		h.Set("Retry-After", fault.RetryAfter(f.RetryIn))
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	if req.Method != http.MethodHead {
		_, _ = w.Write(body) // fails only if the client has disconnected
	}
}

func writeJSON(w http.ResponseWriter, req *http.Request, mediaType string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if req.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	return nil
}
