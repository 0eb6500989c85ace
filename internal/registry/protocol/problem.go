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
)

// The error codes of the specification.
const (
	blobUnknown         = "BLOB_UNKNOWN"
	uploadInvalid       = "BLOB_UPLOAD_INVALID"
	uploadUnknown       = "BLOB_UPLOAD_UNKNOWN"
	digestInvalid       = "DIGEST_INVALID"
	manifestBlobUnknown = "MANIFEST_BLOB_UNKNOWN"
	manifestInvalid     = "MANIFEST_INVALID"
	manifestUnknown     = "MANIFEST_UNKNOWN"
	nameInvalid         = "NAME_INVALID"
	nameUnknown         = "NAME_UNKNOWN"
	sizeInvalid         = "SIZE_INVALID"
	unauthorized        = "UNAUTHORIZED"
	denied              = "DENIED"
	unsupported         = "UNSUPPORTED"
	tooManyRequests     = "TOOMANYREQUESTS"
	unavailable         = "UNAVAILABLE"
	unknownError        = "UNKNOWN"
)

// A Problem is an error in the format of the protocol.
type Problem struct {
	Status int
	Issues []Issue
}

// An Issue is one error of a Problem.
type Issue struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  any    `json:"detail,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Issues[0].Code + ": " + p.Issues[0].Message }

func problem(status int, code, format string, args ...any) *Problem {
	return &Problem{Status: status, Issues: []Issue{{Code: code, Message: fmt.Sprintf(format, args...)}}}
}

// unknown returns the Problem for an error of the store about what, if that is
// missing or may not be deleted, and err otherwise.
func unknown(err error, code, what string) error {
	switch {
	case errors.Is(err, fault.NotFound):
		return problem(http.StatusNotFound, code, "%s is not in this repository", what)
	case errors.Is(err, fault.FailedPrecondition) && fault.From(err).Quota == nil:
		// The specification allows only 400 and 405 for a DELETE that is refused.
		return problem(http.StatusMethodNotAllowed, unsupported, "%s", fault.From(err).Unmet[0].Description)
	}
	return err
}

// answers are the status and the error code for faults.
var answers = map[fault.Code]struct {
	status int
	code   string
}{
	fault.Unauthenticated:    {http.StatusUnauthorized, unauthorized},
	fault.PermissionDenied:   {http.StatusForbidden, denied},
	fault.NotFound:           {http.StatusNotFound, nameUnknown},
	fault.FailedPrecondition: {http.StatusConflict, denied},
	fault.Aborted:            {http.StatusConflict, uploadInvalid},
	fault.AlreadyExists:      {http.StatusConflict, uploadInvalid},
	fault.ResourceExhausted:  {http.StatusTooManyRequests, tooManyRequests},
	fault.Unavailable:        {http.StatusServiceUnavailable, unavailable},
	fault.InvalidArgument:    {http.StatusBadRequest, unsupported},
}

// asProblem returns the Problem for an error. Errors that are not faults become a 500 without details.
func asProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	f := fault.From(err)
	if f.Quota != nil && f.Code == fault.FailedPrecondition {
		return problem(http.StatusForbidden, denied, "%s", f.Quota.Description)
	}
	if a, ok := answers[f.Code]; ok {
		return problem(a.status, a.code, "%s", f.Message)
	}
	return problem(http.StatusInternalServerError, unknownError, "%s", f.Message)
}

func (r *Registry) writeProblem(w http.ResponseWriter, req *http.Request, err error) {
	p := asProblem(err)
	ours := p.Status >= http.StatusInternalServerError && p.Status != http.StatusBadGateway // which is the fault of an upstream
	if ours && !errors.Is(err, context.Canceled) {
		trace.Of(req.Context()).Fail()
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
		_, _ = w.Write(body) // fails only if the client is gone
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
