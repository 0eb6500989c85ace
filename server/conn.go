package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/holdfast-dev/holdfast/api"
)

// What a client must do, and must not, while it has a connection.
const (
	// A client must take a piece of an answer within writePause, or it is shown
	// out. One that goes on taking pieces is not, however many there are.
	writeTimeout = 30 * time.Second
	writeChunk   = 64 << 10
	fileChunk    = 256 << 10       // of a file, which the kernel sends
	extendEvery  = 5 * time.Second // by which a piece may have less time

	// Nobody is known on a connection of gRPC until a call on it has shown a
	// token that is good. Until then a stream may bring this much: more than
	// its window, so that a call that is refused learns why, and more than the
	// message of a method that needs no token.
	maxUnadmittedBytes   = 128 << 10
	maxUnadmittedStreams = 1000 // that have not ended, on one connection

	// Requests cost memory, too: a connection of HTTP/2 may have a hundred at
	// once, and all those of an address could have 12,800. So only its first
	// connections may have as many, and others fewer.
	uncrowdedConns = 4
	maxStreams     = 100
	crowdedStreams = 8

	warnEvery = time.Minute // the log is told that an address has too many connections
)

var errUnadmitted = errors.New("the client sends more than somebody unknown may")

// A peerAddr is the address of a client, and through it the API reaches the
// connection: it is an api.Conn.
type peerAddr struct {
	net.Addr
	conn *sniffedConn
}

// Admitted reports whether somebody on the connection is known.
func (p peerAddr) Admitted() bool { return p.conn.admitted.Load() }

// Admit notes that somebody on the connection is known.
func (p peerAddr) Admit() { p.conn.admitted.Store(true) }

// Close ends the connection.
func (p peerAddr) Close() error { return p.conn.Close() }

// AfterClose calls f when the connection is closed, unless the function it returns
// is called before.
func (p peerAddr) AfterClose(f func()) func() bool { return context.AfterFunc(p.conn.open, f) }

// A writeDeadline gives writes to a connection deadlines as long as they make progress.
type writeDeadline struct {
	mu    sync.Mutex
	until time.Time // of the deadline that is set; zero if there is none of ours
}

// extend sets the deadline of the next write, unless that of the last is as
// good: to set one costs as much as a small write.
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

// reset is for when somebody else has set the deadline.
func (p *writeDeadline) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
}

// Close is of net.Conn.
func (c *sniffedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// Write is of io.Writer. It fails if the client does not take a piece in time.
func (c *sniffedConn) Write(b []byte) (n int, err error) {
	for {
		if err := c.deadline.extend(c.Conn); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(b[n:min(n+writeChunk, len(b))])
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// ReadFrom is of io.ReaderFrom: with it the kernel can send a file.
func (c *sniffedConn) ReadFrom(body io.Reader) (n int64, err error) {
	rest, ok := body.(*io.LimitedReader)
	if !ok {
		rest = &io.LimitedReader{R: body, N: 1<<63 - 1}
	}
	for rest.N > 0 {
		if err := c.deadline.extend(c.Conn); err != nil {
			return n, err
		}
		piece := &io.LimitedReader{R: rest.R, N: min(rest.N, fileChunk)} // one of these the kernel looks into, but not two
		m, err := io.Copy(c.Conn, piece)
		n += m
		rest.N -= m
		if err != nil || piece.N > 0 {
			return n, err
		}
	}
	return n, nil
}

// SetDeadline is of net.Conn.
func (c *sniffedConn) SetDeadline(at time.Time) error {
	c.deadline.reset()
	return c.Conn.SetDeadline(at)
}

// SetWriteDeadline is of net.Conn.
func (c *sniffedConn) SetWriteDeadline(at time.Time) error {
	c.deadline.reset()
	return c.Conn.SetWriteDeadline(at)
}

// A frameCounter follows the frames that a client of gRPC sends, as long as nobody is
// known on the connection, and counts what each stream brings. grpc-go gives a
// stream as large a window as its message says to need, before anybody is asked
// whether the caller may send it.
type frameCounter struct {
	head    []byte // of a frame, as much as has come
	left    int    // bytes of the frame that have not come
	streams map[uint32]int
}

// count takes in what has been read. It fails if a stream has brought too much.
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

// countFrame takes in the header of a frame.
func (w *frameCounter) countFrame() error {
	h := w.head
	w.left = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	kind, flags := http2.FrameType(h[3]), http2.Flags(h[4])
	stream := uint32(h[5]&0x7f)<<24 | uint32(h[6])<<16 | uint32(h[7])<<8 | uint32(h[8])
	switch kind {
	case http2.FrameRSTStream:
		delete(w.streams, stream)
	case http2.FrameData:
		total := w.streams[stream] + w.left
		if flags.Has(http2.FlagDataEndStream) {
			delete(w.streams, stream)
		} else {
			w.streams[stream] = total
		}
		if total > maxUnadmittedBytes || len(w.streams) > maxUnadmittedStreams {
			return errUnadmitted
		}
	}
	return nil
}

// unadmittedConn is a connection of gRPC on which nobody is known yet.
type unadmittedConn struct {
	*sniffedConn
	frames frameCounter
}

// newUnadmittedConn returns c, which begins with the preface of HTTP/2, as watched.
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

// A addrCounter bounds the connections of each address, or something else of it.
type addrCounter struct {
	most int

	mu     sync.Mutex
	counts map[string]int
}

func newAddrCounter(most int) *addrCounter { return &addrCounter{most: most, counts: map[string]int{}} }

// acquire reports whether an address may have one more, and if so notes it, and
// returns how many it has.
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

// A limitListener is a listener that lets each address have so many connections, and half
// as many of HTTP/2, each of which can carry many requests. Those of proxies are
// not counted: they are connections of everybody behind them.
type limitListener struct {
	net.Listener
	all, http2 *addrCounter
	proxies    api.Proxies
	log        *slog.Logger

	mu     sync.Mutex
	warned time.Time // when the log was last told
}

func newLimitListener(l net.Listener, most int, proxies api.Proxies, log *slog.Logger) *limitListener {
	return &limitListener{Listener: l, all: newAddrCounter(most), http2: newAddrCounter((most + 1) / 2), proxies: proxies, log: log}
}

// Accept is of net.Listener.
func (d *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostOf(conn.RemoteAddr().String())
		if d.proxies.Trust(host) {
			return conn, nil
		}
		from := api.Neighborhood(host)
		if _, ok := d.all.acquire(from); ok {
			return &limitedConn{Conn: conn, listener: d, from: from}, nil
		}
		conn.Close()
		d.warn(from)
	}
}

// warn has the log tell that an address is refused connections.
func (d *limitListener) warn(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.warned) > warnEvery {
		d.warned = now
		d.log.Warn("an address has as many connections as one may have; more are refused (max_connections_per_address, trusted_proxies)", "address", from)
	}
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn
	listener *limitListener
	from     string

	mu     sync.Mutex
	http2  bool // it is counted among those, too
	closed bool
}

// acquireHTTP2 counts conn, which may be of TLS, among those of HTTP/2. It reports
// whether its address may have one more, and whether it has others.
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

// ReadFrom is of io.ReaderFrom: with it the kernel can send a file.
func (c *limitedConn) ReadFrom(body io.Reader) (int64, error) { return io.Copy(c.Conn, body) }

// Close is of net.Conn.
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
