package listen

import (
	"net/http"
	"time"
)

// WithWriteTimeout returns a handler that ends an HTTP/2 request if its client does not
// read the response. The deadlines of the connection do not detect this, because each
// stream has its own window.
func WithWriteTimeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			next.ServeHTTP(w, r)
			return
		}
		p := &timeoutWriter{w, http.NewResponseController(w)}
		next.ServeHTTP(p, r)
		p.setDeadline() // gives the bytes that net/http has not sent yet a deadline
	})
}

// A timeoutWriter sets a deadline for each chunk of a response.
type timeoutWriter struct {
	http.ResponseWriter
	stream *http.ResponseController
}

// setDeadline sets the deadline of the next chunk. It ignores the error, because the
// streams of net/http support deadlines.
func (p *timeoutWriter) setDeadline() { _ = p.stream.SetWriteDeadline(time.Now().Add(writeTimeout)) }

func (p *timeoutWriter) clearDeadline() { _ = p.stream.SetWriteDeadline(time.Time{}) }

func (p *timeoutWriter) Write(b []byte) (n int, err error) {
	defer p.clearDeadline()
	return writeChunks(b, func(chunk []byte) (int, error) {
		p.setDeadline()
		return p.ResponseWriter.Write(chunk)
	})
}

func (p *timeoutWriter) Flush() {
	p.setDeadline()
	defer p.clearDeadline()
	_ = p.stream.Flush() // if this fails, the next write fails as well
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (p *timeoutWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
