package server

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	// Forms are read before their sender is authenticated, so the number of
	// concurrent forms of one address, and their time, are limited.
	maxForms   = 128
	formTime   = 10 * time.Second
	retryForms = 5 * time.Second

	// strictTransport makes browsers use only https for a year, without the
	// subdomains of the host.
	strictTransport = "max-age=31536000"
)

// withForm reads the body before it calls next, for handlers that accept forms from
// anonymous clients. A handler can detect that a body is too large, because it gets
// one byte more than the limit.
func (s *Server) withForm(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		body, ok := s.readForm(w, r)
		if !ok {
			f := fault.New(fault.ResourceExhausted, "Resource exhausted: too many forms at once; try again")
			f.RetryIn = retryForms
			writeFault(w, f, s.cfg.ErrorDomain)
			return
		}
		r2 := *r
		r2.Body = io.NopCloser(body)
		next.ServeHTTP(w, &r2)
	})
}

// readForm reads a body up to the limit of a form. It reports false if it is already
// reading too many forms of the address.
func (s *Server) readForm(w http.ResponseWriter, r *http.Request) (io.Reader, bool) {
	from := resource.NetworkOf(resource.HostOf(r.RemoteAddr))
	if _, ok := s.forms.Acquire(from); !ok {
		return nil, false
	}
	defer s.forms.Release(from)
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(formTime)) // ignored if the connection does not support deadlines
	body, err := io.ReadAll(io.LimitReader(r.Body, maxForm+1))
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // an expired deadline would end the request
	if err != nil {
		return io.MultiReader(bytes.NewReader(body), errReader{err}), true
	}
	return bytes.NewReader(body), true
}

// An errReader is a reader that fails.
type errReader struct{ err error }

func (f errReader) Read([]byte) (int, error) { return 0, f.err }

// withHSTS makes browsers use only https, except in dev mode, where other servers may
// share the host.
func (s *Server) withHSTS(next http.Handler) http.Handler {
	if s.cfg.TLSCert == "" || s.cfg.Dev {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", strictTransport)
		next.ServeHTTP(w, r)
	})
}
