package site

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

// A scriptError is an error that the script of a page shows. Its cause is logged if it
// is not nil.
type scriptError struct {
	status int
	text   string
	cause  error
}

func (e *scriptError) Error() string { return e.text }

// ScriptFailure returns an error for HandleScript. The script of the page shows text.
// cause is logged if it is not nil.
func ScriptFailure(status int, text string, cause error) error {
	return &scriptError{status, text, cause}
}

// A ScriptRequest is a request of the script of a page.
type ScriptRequest struct {
	Flow       string          `json:"flow"`
	CSRF       string          `json:"csrf"`
	Name       string          `json:"name"`
	Current    string          `json:"current"`  // current password
	Required   string          `json:"required"` // for the first passkey: "either" if the password alone is still enough
	Credential json.RawMessage `json:"credential"`
}

// HandleScript serves requests of the script of a page. It writes the result of h, or
// its error. It accepts only JSON, because another site cannot make a browser send
// JSON without a preflight request.
func (s *Site) HandleScript(
	h func(http.ResponseWriter, *http.Request, ScriptRequest) (any, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in ScriptRequest
		var answer any
		var err error
		if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
			err = &scriptError{http.StatusUnsupportedMediaType, "The request is not JSON.", nil}
		} else if json.NewDecoder(http.MaxBytesReader(w, r.Body, input.MaxForm)).Decode(&in) != nil {
			err = &scriptError{http.StatusBadRequest, "The request cannot be read.", nil}
		} else {
			answer, err = h(w, r, in)
		}
		status := http.StatusOK
		if e, ok := errors.AsType[*scriptError](err); ok {
			if e.cause != nil {
				s.LogError(r, e.cause)
			}
			status, answer = e.status, map[string]string{"problem": e.text}
		} else if err != nil {
			f := s.Report(r, err)
			status, answer = f.Code.HTTPStatus(), map[string]string{"problem": PlainText(f)}
		}
		SecureHeaders(w, "")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // this fails only if the client has gone
	}
}
