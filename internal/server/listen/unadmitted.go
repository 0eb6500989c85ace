package listen

import (
	"bytes"
	"errors"

	"golang.org/x/net/http2"
)

const (
	// A gRPC connection is admitted once a call on it has presented a valid token.
	// Before that, a stream may send maxUnadmittedBytes. The limit is larger than
	// the window of a stream, so that a refused call receives its error, and larger
	// than any message of a method that needs no token.
	maxUnadmittedBytes   = 128 << 10
	maxUnadmittedStreams = 1000 // maximum number of open streams of one connection
)

var errUnadmitted = errors.New("the client has sent too many bytes or streams without a valid token")

// A frameCounter parses the HTTP/2 frames that a gRPC client sends before it is
// admitted, and counts the bytes of each stream. The window of a stream does not limit
// them, because grpc-go enlarges it to the size of the message before the caller is
// authorized.
type frameCounter struct {
	head    []byte         // received part of a frame header
	left    int            // bytes of the current frame that have not arrived
	streams map[uint32]int // received bytes by stream
}

// count parses received bytes. It returns an error if a stream has sent too many bytes.
func (w *frameCounter) count(b []byte) error {
	for len(b) > 0 {
		if w.left > 0 {
			n := min(w.left, len(b))
			w.left -= n
			b = b[n:]
			continue
		}
		n := min(frameHeader-len(w.head), len(b))
		w.head = append(w.head, b[:n]...)
		b = b[n:]
		if len(w.head) < frameHeader {
			return nil
		}
		if err := w.countFrame(); err != nil {
			return err
		}
		w.head = w.head[:0]
	}
	return nil
}

// countFrame counts the frame whose header has arrived.
func (w *frameCounter) countFrame() error {
	h, err := http2.ReadFrameHeader(bytes.NewReader(w.head))
	if err != nil {
		return err
	}
	w.left = int(h.Length)
	switch h.Type {
	case http2.FrameRSTStream:
		delete(w.streams, h.StreamID)
	case http2.FrameData:
		total := w.streams[h.StreamID] + w.left
		if h.Flags.Has(http2.FlagDataEndStream) {
			delete(w.streams, h.StreamID)
		} else {
			w.streams[h.StreamID] = total
		}
		if total > maxUnadmittedBytes || len(w.streams) > maxUnadmittedStreams {
			return errUnadmitted
		}
	}
	return nil
}

// An unadmittedConn is a gRPC connection that is not admitted yet.
type unadmittedConn struct {
	*sniffedConn
	frames frameCounter
}

// newUnadmittedConn wraps c, which begins with the HTTP/2 preface.
func newUnadmittedConn(c *sniffedConn) *unadmittedConn {
	return &unadmittedConn{c, frameCounter{left: len(http2.ClientPreface), streams: map[uint32]int{}}}
}

func (c *unadmittedConn) Read(p []byte) (int, error) {
	n, err := c.sniffedConn.Read(p)
	if c.admitted.Load() {
		return n, err
	}
	if n > 0 && err == nil {
		err = c.frames.count(p[:n])
	}
	return n, err
}
