package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	attempts   = 10 // attempts per request
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// upload calls f to send content. It calls f again if the service is busy or the connection broke. The client
// could repeat a request by itself, but it would use the same reader again. If a service refuses a request before
// it has read all of it, net/http continues to read for a while, and bytes would be mixed up. So each attempt has
// its own reader, which returns no bytes after the end of the attempt. The caller may then reuse content.
func upload(ctx context.Context, content []byte, f func(body io.Reader) error) error {
	for n, pause := 1, firstPause; ; n, pause = n+1, min(2*pause, maxPause) {
		body := &attemptBody{in: bytes.NewReader(content)}
		err := f(body)
		body.end()
		if err == nil || n == attempts || ctx.Err() != nil || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// transient reports whether a request that failed may succeed if it is repeated.
func transient(err error) bool {
	refused, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok || refused.StatusCode == 0 { // the service did not answer
		return true
	}
	switch refused.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented:
		return false
	}
	return refused.StatusCode >= http.StatusInternalServerError || refused.Code == "RequestTimeout"
}

// An attemptBody is the body of one attempt. It cannot seek, so that the client does not repeat the request.
type attemptBody struct {
	mu   sync.Mutex
	in   *bytes.Reader
	over bool
}

// Read implements io.Reader.
func (b *attemptBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errors.New("the request has ended")
	}
	return b.in.Read(p)
}

// end waits until no goroutine is reading the content.
func (b *attemptBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}
