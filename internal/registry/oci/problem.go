package oci

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// The error codes of the specification.
const (
	BlobUnknown         = "BLOB_UNKNOWN"
	UploadInvalid       = "BLOB_UPLOAD_INVALID"
	UploadUnknown       = "BLOB_UPLOAD_UNKNOWN"
	DigestInvalid       = "DIGEST_INVALID"
	ManifestBlobUnknown = "MANIFEST_BLOB_UNKNOWN"
	ManifestInvalid     = "MANIFEST_INVALID"
	ManifestUnknown     = "MANIFEST_UNKNOWN"
	NameInvalid         = "NAME_INVALID"
	NameUnknown         = "NAME_UNKNOWN"
	SizeInvalid         = "SIZE_INVALID"
	Unauthorized        = "UNAUTHORIZED"
	Denied              = "DENIED"
	Unsupported         = "UNSUPPORTED"
	TooManyRequests     = "TOOMANYREQUESTS"
	Unavailable         = "UNAVAILABLE"
	UnknownError        = "UNKNOWN"
)

// A Problem is an error response of the distribution protocol.
type Problem struct {
	Status int
	Issues []Issue
}

// An Issue is one of the errors in a Problem.
type Issue struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  any    `json:"detail,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Issues[0].Code + ": " + p.Issues[0].Message }

// NewProblem returns a Problem with one Issue.
func NewProblem(status int, code, format string, args ...any) *Problem {
	return &Problem{Status: status, Issues: []Issue{{Code: code, Message: fmt.Sprintf(format, args...)}}}
}

// StoreProblem returns the Problem for an error of the store: what is missing, or what may not be deleted. It returns
// other errors unchanged.
func StoreProblem(err error, code, what string) error {
	switch {
	case errors.Is(err, fault.NotFound):
		return NewProblem(http.StatusNotFound, code, "%s is not in this repository", what)
	case errors.Is(err, fault.FailedPrecondition) && fault.From(err).Quota == nil:
		// The specification allows only 400 and 405 for a DELETE that is refused.
		return NewProblem(http.StatusMethodNotAllowed, Unsupported, "%s", fault.From(err).Unmet[0].Description)
	}
	return err
}

// answers has the HTTP status and the error code of the protocol for each fault.
var answers = map[fault.Code]struct {
	status int
	code   string
}{
	fault.Unauthenticated:    {http.StatusUnauthorized, Unauthorized},
	fault.PermissionDenied:   {http.StatusForbidden, Denied},
	fault.NotFound:           {http.StatusNotFound, NameUnknown},
	fault.FailedPrecondition: {http.StatusConflict, Denied},
	fault.Aborted:            {http.StatusConflict, UploadInvalid},
	fault.AlreadyExists:      {http.StatusConflict, UploadInvalid},
	fault.ResourceExhausted:  {http.StatusTooManyRequests, TooManyRequests},
	fault.Unavailable:        {http.StatusServiceUnavailable, Unavailable},
	fault.InvalidArgument:    {http.StatusBadRequest, Unsupported},
}

// AsProblem returns the Problem for an error. For an error that is not a fault, the status is 500 and the Problem
// contains no details.
func AsProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	f := fault.From(err)
	if f.Quota != nil && f.Code == fault.FailedPrecondition {
		return NewProblem(http.StatusForbidden, Denied, "%s", f.Quota.Description)
	}
	if a, ok := answers[f.Code]; ok {
		return NewProblem(a.status, a.code, "%s", f.Message)
	}
	return NewProblem(http.StatusInternalServerError, UnknownError, "%s", f.Message)
}
