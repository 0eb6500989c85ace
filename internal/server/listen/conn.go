package listen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Limits of writes to a connection.
const (
	// A client must read each chunk of a response within writeTimeout. The whole
	// response has no time limit.
	writeTimeout = 30 * time.Second
	writeChunk   = 64 << 10        // bytes of a response between two deadlines
	fileChunk    = 256 << 10       // the same for a file that the kernel sends, in bytes
	extendEvery  = 5 * time.Second // a deadline that is newer than this is not extended
)

// A peerAddr is the address of a client. It implements api.Conn, through which
// the API controls the connection.
type peerAddr struct {
	net.Addr
	conn *sniffedConn
}

// Admitted reports whether a caller on the connection has been authenticated.
func (p peerAddr) Admitted() bool { return p.conn.admitted.Load() }

// Admit records that a caller on the connection has been authenticated.
func (p peerAddr) Admit() { p.conn.admitted.Store(true) }

// Close ends the connection.
func (p peerAddr) Close() error { return p.conn.Close() }

// AfterClose calls f when the connection is closed. If the returned function is called
// first, f is not called.
func (p peerAddr) AfterClose(f func()) func() bool { return context.AfterFunc(p.conn.open, f) }

// A writeDeadline extends the deadline of a connection's writes as long as they make
// progress.
type writeDeadline struct {
	mu    sync.Mutex
	until time.Time // current deadline; zero if it was not set by extend
}

// extend sets the deadline of the next write, unless the current deadline is recent,
// because setting a deadline costs as much as a small write.
func (p *writeDeadline) extend(conn net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := time.Now().Add(writeTimeout)
	if until.Sub(p.until) < extendEvery {
		return nil
	}
	p.until = until
	return conn.SetWriteDeadline(p.until)
}

// reset is called when another caller sets the deadline.
func (p *writeDeadline) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
}

func (c *sniffedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// Write fails if the client does not read a chunk in time.
func (c *sniffedConn) Write(b []byte) (n int, err error) {
	return writeChunks(b, func(chunk []byte) (int, error) {
		if err := c.deadline.extend(c.Conn); err != nil {
			return 0, err
		}
		return c.Conn.Write(chunk)
	})
}

// writeChunks calls write with the chunks of b, and once with no bytes if b is empty. A
// client must read each chunk within writeTimeout.
func writeChunks(b []byte, write func(chunk []byte) (int, error)) (n int, err error) {
	for {
		m, err := write(b[n:min(n+writeChunk, len(b))])
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// ReadFrom implements io.ReaderFrom, so that the kernel can send files.
func (c *sniffedConn) ReadFrom(body io.Reader) (n int64, err error) {
	rest, ok := body.(*io.LimitedReader)
	if !ok {
		rest = &io.LimitedReader{R: body, N: 1<<63 - 1}
	}
	for rest.N > 0 {
		if err := c.deadline.extend(c.Conn); err != nil {
			return n, err
		}
		// The kernel can send from one LimitedReader, but not from two.
		chunk := &io.LimitedReader{R: rest.R, N: min(rest.N, fileChunk)}
		m, err := io.Copy(c.Conn, chunk)
		n += m
		rest.N -= m
		if err != nil || chunk.N > 0 {
			return n, err
		}
	}
	return n, nil
}

func (c *sniffedConn) SetDeadline(at time.Time) error {
	c.deadline.reset()
	return c.Conn.SetDeadline(at)
}

func (c *sniffedConn) SetWriteDeadline(at time.Time) error {
	c.deadline.reset()
	return c.Conn.SetWriteDeadline(at)
}

const (
	sniffTimeout = 10 * time.Second // time limit to detect the protocol of a connection
	sniffLimit   = 64 << 10         // maximum number of bytes to read to detect the protocol

	frameHeader = 9 // size in bytes of a frame's length, type, flags and stream ID
	headerTable = 4 << 10
)

// emptySettings is a SETTINGS frame that changes nothing.
var emptySettings = []byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0}

// sniff reads enough of conn to detect its protocol, and returns a connection that
// reads these bytes again. It fails if the detection takes longer than timeout.
func sniff(conn net.Conn, timeout time.Duration) (sniffed *sniffedConn, isGRPC bool, err error) {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, false, err
	}
	c := &sniffedConn{Conn: conn}
	c.open, c.close = context.WithCancel(context.Background())
	if c.isHTTP2, err = c.readPreface(); err != nil {
		return nil, false, err
	}
	if c.isHTTP2 {
		isGRPC, err = c.readFirstHeaders()
	}
	return c, isGRPC, errors.Join(err, conn.SetDeadline(time.Time{}))
}

// A sniffedConn returns the buffered bytes again and then the rest of the connection.
// It removes the client's first acknowledgement of SETTINGS.
type sniffedConn struct {
	net.Conn
	isHTTP2  bool
	buffered []byte // bytes to read again
	awaitAck bool   // whether the client has not yet acknowledged our SETTINGS; until then, Read parses frames
	inFrame  int    // bytes of the current frame that have not been read

	deadline writeDeadline
	admitted atomic.Bool // whether a caller on the connection has been authenticated

	open  context.Context // context that ends when the connection is closed
	close context.CancelFunc
}

// RemoteAddr returns a peerAddr, through which the API controls the
// connection.
func (c *sniffedConn) RemoteAddr() net.Addr { return peerAddr{c.Conn.RemoteAddr(), c} }

// readPreface reports whether the client begins with the HTTP/2 preface. It
// reads no further than the first byte that differs.
func (c *sniffedConn) readPreface() (bool, error) {
	b := make([]byte, len(http2.ClientPreface))
	for n := 0; n < len(b); {
		m, err := c.Conn.Read(b[n:])
		n += m
		c.buffered = b[:n]
		if !strings.HasPrefix(http2.ClientPreface, string(c.buffered)) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// readFirstHeaders reads frames up to the headers of the first request, and reports
// whether they belong to a gRPC call. It reports false for malformed frames, which the
// HTTP server answers.
func (c *sniffedConn) readFirstHeaders() (isGRPC bool, err error) {
	if _, err := c.Conn.Write(emptySettings); err != nil {
		return false, err
	}
	seen := bytes.NewBuffer(c.buffered)
	framer := http2.NewFramer(io.Discard, io.TeeReader(io.LimitReader(c.Conn, sniffLimit), seen))
	framer.SetMaxReadFrameSize(16 << 10)
	framer.ReadMetaHeaders = hpack.NewDecoder(headerTable, nil)
	framer.MaxHeaderListSize = sniffLimit
	c.awaitAck = true
	for {
		start := seen.Len()
		frame, err := framer.ReadFrame()
		c.buffered = seen.Bytes()
		if netErr := net.Error(nil); errors.As(err, &netErr) {
			return false, err
		}
		if err != nil { // false: the HTTP server reports the reason to the client
			c.awaitAck = false
			return false, nil
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() && c.awaitAck {
				seen.Truncate(start)
				c.awaitAck = false
			}
		case *http2.MetaHeadersFrame:
			i := slices.IndexFunc(f.Fields, func(h hpack.HeaderField) bool { return h.Name == "content-type" })
			return i >= 0 && IsGRPC(f.Fields[i].Value), nil
		}
	}
}

// IsGRPC reports whether a content type belongs to gRPC, and not to gRPC-Web, which
// has the same prefix.
func IsGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

func (c *sniffedConn) Read(p []byte) (int, error) {
	switch {
	case len(c.buffered) > 0:
		n := copy(p, c.buffered)
		c.buffered = c.buffered[n:]
		return n, nil
	case !c.awaitAck:
		return c.Conn.Read(p)
	case c.inFrame > 0:
		n, err := c.Conn.Read(p[:min(len(p), c.inFrame)])
		c.inFrame -= n
		return n, err
	}
	if err := c.nextFrame(); err != nil {
		return 0, err
	}
	return c.Read(p)
}

// nextFrame reads the header of a frame. It drops an acknowledgement of
// SETTINGS, which consists only of a header.
func (c *sniffedConn) nextFrame() error {
	var raw bytes.Buffer
	h, err := http2.ReadFrameHeader(io.TeeReader(c.Conn, &raw))
	if err != nil {
		return err
	}
	if h.Type == http2.FrameSettings && h.Flags.Has(http2.FlagSettingsAck) {
		c.awaitAck = false
		return nil
	}
	c.buffered, c.inFrame = raw.Bytes(), int(h.Length)
	return nil
}
