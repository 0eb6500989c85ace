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

// minCompressed is the size of the smallest answer that is compressed. A page of the
// usual size is smaller, and is sent in less time than compressing it would take.
const minCompressed = 32 << 10

// A compressor compresses answers. It has as many writers as there are processors,
// because each takes about a megabyte; while all are in use, answers are sent as
// they are.
type compressor struct{ writers chan *gzip.Writer }

func newCompressor() *compressor {
	n := runtime.GOMAXPROCS(0)
	c := &compressor{make(chan *gzip.Writer, n)}
	for range n {
		c.writers <- nil // made when it is first needed
	}
	return c
}

// compress returns the body to send: compressed, with the header that says so, if
// it is large and the client accepts it. A compressed body is complete before any
// of it is sent, so a client that reads slowly keeps no writer busy.
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
	_, _ = w.Write(body) // a buffer does not fail
	_ = w.Close()        // likewise
	if out.Len() >= len(body) {
		return body
	}
	h.Set("Content-Encoding", "gzip")
	return out.Bytes()
}

// openapiGzip returns the description of the API, compressed once, because anybody
// can ask for it.
var openapiGzip = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(openapi.Document) // a buffer does not fail
	_ = w.Close()                    // likewise
	return out.Bytes()
})

// acceptsGzip reports whether an Accept-Encoding header names gzip, and not with a
// weight of 0.
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
