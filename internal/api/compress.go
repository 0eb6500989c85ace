package api

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/gen/openapi"
)

// minCompressed is the size of the smallest answer that is compressed, in bytes. A
// usual page is smaller, and compressing it would take longer than sending it.
const minCompressed = 32 << 10

// A compressor compresses answers. It has only one writer per processor, because
// each needs about a megabyte. While all are in use, answers are sent uncompressed.
type compressor struct{ writers chan *gzip.Writer }

func newCompressor() *compressor {
	n := runtime.GOMAXPROCS(0)
	c := &compressor{make(chan *gzip.Writer, n)}
	for range n {
		c.writers <- nil // nil, because a writer is created on first use
	}
	return c
}

// compress returns the body to send. If the body is large and the client accepts
// gzip, it compresses the body and sets Content-Encoding. The whole body is
// compressed before it is sent, so that a slow client does not occupy a writer.
func (c *compressor) compress(h http.Header, r *http.Request, body []byte) []byte {
	h.Add("Vary", "Accept-Encoding")
	if len(body) < minCompressed || !acceptsGzip(r.Header["Accept-Encoding"]) {
		return body
	}
	var w *gzip.Writer
	select {
	case w = <-c.writers:
	default:
		return body
	}
	defer func() { c.writers <- w }()
	if w == nil {
		w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for an unknown level
	}
	var out bytes.Buffer
	out.Grow(len(body) / 4)
	w.Reset(&out)
	_, _ = w.Write(body) // writing to a buffer never fails
	_ = w.Close()
	if out.Len() >= len(body) {
		return body
	}
	h.Set("Content-Encoding", "gzip")
	return out.Bytes()
}

// openapiGzip returns the compressed description of the API. It is compressed only
// once, because any client can request it.
var openapiGzip = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(openapi.Document) // writing to a buffer never fails
	_ = w.Close()
	return out.Bytes()
})

// acceptsGzip reports whether an Accept-Encoding header names gzip with a weight
// other than 0.
func acceptsGzip(values []string) bool {
	for coding := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, q, _ := strings.Cut(strings.ReplaceAll(weight, " ", ""), "=")
		return q == "" || strings.Trim(q, "0.") != ""
	}
	return false
}
