package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Limits of a client's connection.
const (
	// A client must read each chunk of a response within writeTimeout. One that
	// keeps reading may take as long as it needs in total.
	writeTimeout = 30 * time.Second
	writeChunk   = 64 << 10
	fileChunk    = 256 << 10       // of a file, sent by the kernel
	extendEvery  = 5 * time.Second // a chunk may have this much less time

	// A gRPC connection is admitted once a call on it has presented a valid
	// token. Until then a stream may send this much: more than its window, so
	// that a refused call receives its error, and more than a message of a
	// method that needs no token.
	maxUnadmittedBytes   = 128 << 10
	maxUnadmittedStreams = 1000 // open streams of one connection

	// Requests cost memory, too: an HTTP/2 connection may have a hundred at the
	// same time, and all connections of an address could have 12,800. So only
	// the first connections of an address may have as many, and others fewer.
	uncrowdedConns = 4
	maxStreams     = 100
	crowdedStreams = 8

	warnEvery = time.Minute // how often refused connections are logged
)

var errUnadmitted = errors.New("the client sends more than somebody unknown may")

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

// AfterClose calls f when the connection is closed, unless the returned
// function is called before.
func (p peerAddr) AfterClose(f func()) func() bool { return context.AfterFunc(p.conn.open, f) }

// A writeDeadline extends the deadline of writes as long as they make
// progress.
type writeDeadline struct {
	mu    sync.Mutex
	until time.Time // the deadline that was set; zero if it is not ours
}

// extend sets the deadline of the next write, unless the current one is
// recent: setting one costs as much as a small write.
func (p *writeDeadline) extend(conn net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.until.Sub(now) > writeTimeout-extendEvery {
		return nil
	}
	p.until = now.Add(writeTimeout)
	return conn.SetWriteDeadline(p.until)
}

// reset is called when somebody else has set the deadline.
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

// writeChunks writes b in chunks, each of which a client must read within
// writeTimeout. It calls write once if b is empty.
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

// A frameCounter parses the HTTP/2 frames that a gRPC client sends before it
// is admitted, and counts the bytes of each stream. This is needed because
// grpc-go enlarges the window of a stream to the size of its message before
// the caller is authorized.
type frameCounter struct {
	head    []byte // the part of a frame header that has arrived
	left    int    // bytes of the current frame that have not arrived
	streams map[uint32]int
}

// count parses received bytes. It fails if a stream has sent too much.
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

// An addrCounter limits how many of something each address may have.
type addrCounter struct {
	most int

	mu     sync.Mutex
	counts map[string]int
}

func newAddrCounter(most int) *addrCounter { return &addrCounter{most: most, counts: map[string]int{}} }

// acquire reports whether an address may have one more, and returns how many
// it then has.
func (c *addrCounter) acquire(from string) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[from] >= c.most {
		return 0, false
	}
	c.counts[from]++
	return c.counts[from], true
}

func (c *addrCounter) release(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[from]--; c.counts[from] == 0 {
		delete(c.counts, from)
	}
}

// A limitListener limits the connections of each address, and those of HTTP/2,
// which can carry many requests, to half as many. Connections of trusted
// proxies are not counted, because they belong to everybody behind them.
type limitListener struct {
	net.Listener
	all, http2 *addrCounter
	proxies    api.Proxies
	log        *slog.Logger

	mu     sync.Mutex
	warned time.Time // when a refusal was last logged
}

func newLimitListener(l net.Listener, most int, proxies api.Proxies, log *slog.Logger) *limitListener {
	return &limitListener{
		Listener: l, all: newAddrCounter(most), http2: newAddrCounter((most + 1) / 2), proxies: proxies, log: log,
	}
}

func (d *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := resource.HostOf(conn.RemoteAddr().String())
		if d.proxies.Trust(host) {
			return conn, nil
		}
		from := resource.NetworkOf(host)
		if _, ok := d.all.acquire(from); ok {
			return &limitedConn{Conn: conn, listener: d, from: from}, nil
		}
		conn.Close()
		d.warn(from)
	}
}

// warn logs that connections of an address are refused.
func (d *limitListener) warn(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.warned) > warnEvery {
		d.warned = now
		d.log.Warn("an address has as many connections as one may have; more are refused "+
			"(max_connections_per_address, trusted_proxies)", "address", from)
	}
}

// A limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn
	listener *limitListener
	from     string

	mu     sync.Mutex
	http2  bool // also counted as HTTP/2
	closed bool
}

// acquireHTTP2 counts conn, which may use TLS, as HTTP/2. It reports whether
// its address may have one more, and whether it has more than a few others.
func acquireHTTP2(conn net.Conn) (crowded, ok bool) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return false, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.listener.http2.acquire(c.from)
	switch {
	case !ok:
		c.listener.warn(c.from)
	case c.closed:
		c.listener.http2.release(c.from)
	default:
		c.http2 = true
	}
	return n > uncrowdedConns, ok
}

// ReadFrom implements io.ReaderFrom, so that the kernel can send files.
func (c *limitedConn) ReadFrom(body io.Reader) (int64, error) { return io.Copy(c.Conn, body) }

func (c *limitedConn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.listener.all.release(c.from)
		if c.http2 {
			c.listener.http2.release(c.from)
		}
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
