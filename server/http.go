package server

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast/api"
	"github.com/holdfast-dev/holdfast/fault"
)

const (
	// Forms are read before anybody knows who sends them: so many of one
	// address at once, within a time.
	maxForms   = 128
	formTime   = 10 * time.Second
	retryForms = 5 * time.Second

	// strictTransport has browsers use https alone for a year, for this host and
	// no other.
	strictTransport = "max-age=31536000"
)

// withForm reads the body before next runs, for handlers that take forms from
// anybody. Each of them says itself what is too large: it sees that there is more
// than a form may have, and never the rest.
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

// readForm reads a body as far as a form may go. It reports false if too many of
// the address are being read.
func (s *Server) readForm(w http.ResponseWriter, r *http.Request) (io.Reader, bool) {
	from := api.Neighborhood(hostOf(r.RemoteAddr))
	if _, ok := s.forms.acquire(from); !ok {
		return nil, false
	}
	defer s.forms.release(from)
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(formTime)) // a connection that cannot have a deadline has none
	body, err := io.ReadAll(io.LimitReader(r.Body, maxForm+1))
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // net/http ends a request that is under way when its deadline comes
	if err != nil {
		return io.MultiReader(bytes.NewReader(body), errReader{err}), true
	}
	return bytes.NewReader(body), true
}

// errReader is a reader that fails.
type errReader struct{ err error }

func (f errReader) Read([]byte) (int, error) { return 0, f.err }

// withHSTS tells browsers to come over https alone, if that is ours to say. In dev
// mode the host is this machine, which other servers have in common with us.
func (s *Server) withHSTS(next http.Handler) http.Handler {
	if s.cfg.TLSCert == "" || s.cfg.Dev {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", strictTransport)
		next.ServeHTTP(w, r)
	})
}

// withWriteTimeout ends requests over HTTP/2 whose client takes nothing of the answer for a
// while. The connection may be read from all the same, because each stream has a
// window of its own: the deadlines of the connection do not see it.
func withWriteTimeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			next.ServeHTTP(w, r)
			return
		}
		p := &timeoutWriter{w, http.NewResponseController(w)}
		next.ServeHTTP(p, r)
		p.setDeadline() // for what net/http still has to send
	})
}

// A timeoutWriter gives each piece of an answer a deadline.
type timeoutWriter struct {
	http.ResponseWriter
	stream *http.ResponseController
}

func (p *timeoutWriter) setDeadline()   { _ = p.stream.SetWriteDeadline(time.Now().Add(writeTimeout)) } // net/http's streams have deadlines
func (p *timeoutWriter) clearDeadline() { _ = p.stream.SetWriteDeadline(time.Time{}) }

// Write is of io.Writer.
func (p *timeoutWriter) Write(b []byte) (n int, err error) {
	defer p.clearDeadline()
	for {
		p.setDeadline()
		m, err := p.ResponseWriter.Write(b[n:min(n+writeChunk, len(b))])
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// Flush is of http.Flusher.
func (p *timeoutWriter) Flush() {
	p.setDeadline()
	defer p.clearDeadline()
	_ = p.stream.Flush() // the next write fails, too
}

// Unwrap lets http.ResponseController reach the stream.
func (p *timeoutWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
