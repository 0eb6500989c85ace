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
	writePause  = 30 * time.Second
	writePiece  = 64 << 10
	filePiece   = 256 << 10       // of a file, which the kernel sends
	freshenEach = 5 * time.Second // by which a piece may have less time

	// Nobody is known on a connection of gRPC until a call on it has shown a
	// token that is good. Until then a stream may bring this much: more than
	// its window, so that a call that is refused learns why, and more than the
	// message of a method that needs no token.
	strangerStream  = 128 << 10
	strangerStreams = 1000 // that have not ended, on one connection

	// Requests cost memory, too: a connection of HTTP/2 may have a hundred at
	// once, and all those of an address could have 12,800. So only its first
	// connections may have as many, and others fewer.
	roomy          = 4
	maxStreams     = 100
	crowdedStreams = 8

	warnEach = time.Minute // the log is told that an address has too many connections
)

var errStranger = errors.New("the client sends more than somebody unknown may")

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

// A pace gives writes to a connection deadlines as long as they make progress.
type pace struct {
	mu    sync.Mutex
	until time.Time // of the deadline that is set; zero if there is none of ours
}

// freshen sets the deadline of the next write, unless that of the last is as
// good: to set one costs as much as a small write.
func (p *pace) freshen(conn net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.until.Sub(now) > writePause-freshenEach {
		return nil
	}
	p.until = now.Add(writePause)
	return conn.SetWriteDeadline(p.until)
}

// forget is for when somebody else has set the deadline.
func (p *pace) forget() {
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
		if err := c.pace.freshen(c.Conn); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(b[n:min(n+writePiece, len(b))])
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// ReadFrom is of io.ReaderFrom: with it the kernel can send a file.
func (c *sniffedConn) ReadFrom(body io.Reader) (n int64, err error) {
	whole, ok := body.(*io.LimitedReader)
	if !ok {
		whole = &io.LimitedReader{R: body, N: 1<<63 - 1}
	}
	for whole.N > 0 {
		if err := c.pace.freshen(c.Conn); err != nil {
			return n, err
		}
		piece := &io.LimitedReader{R: whole.R, N: min(whole.N, filePiece)} // one of these the kernel looks into, but not two
		m, err := io.Copy(c.Conn, piece)
		n += m
		whole.N -= m
		if err != nil || piece.N > 0 {
			return n, err
		}
	}
	return n, nil
}

// SetDeadline is of net.Conn.
func (c *sniffedConn) SetDeadline(at time.Time) error {
	c.pace.forget()
	return c.Conn.SetDeadline(at)
}

// SetWriteDeadline is of net.Conn.
func (c *sniffedConn) SetWriteDeadline(at time.Time) error {
	c.pace.forget()
	return c.Conn.SetWriteDeadline(at)
}

// A watch follows the frames that a client of gRPC sends, as long as nobody is
// known on the connection, and counts what each stream brings. grpc-go gives a
// stream as large a window as its message says to need, before anybody is asked
// whether the caller may send it.
type watch struct {
	head    []byte // of a frame, as much as has come
	left    int    // bytes of the frame that have not come
	streams map[uint32]int
}

// see takes in what has been read. It fails if a stream has brought too much.
func (w *watch) see(b []byte) error {
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
		if err := w.frame(); err != nil {
			return err
		}
		w.head = w.head[:0]
	}
	return nil
}

// frame takes in the header of a frame.
func (w *watch) frame() error {
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
		if total > strangerStream || len(w.streams) > strangerStreams {
			return errStranger
		}
	}
	return nil
}

// watched is a connection of gRPC on which nobody is known yet.
type watched struct {
	*sniffedConn
	watch watch
}

// newWatched returns c, which begins with the preface of HTTP/2, as watched.
func newWatched(c *sniffedConn) *watched {
	return &watched{c, watch{left: len(http2.ClientPreface), streams: map[uint32]int{}}}
}

func (c *watched) Read(p []byte) (int, error) {
	n, err := c.sniffedConn.Read(p)
	if c.admitted.Load() {
		return n, err
	}
	if n > 0 && err == nil {
		err = c.watch.see(p[:n])
	}
	return n, err
}

// A counter bounds the connections of each address, or something else of it.
type counter struct {
	most int

	mu   sync.Mutex
	held map[string]int
}

func newCounter(most int) *counter { return &counter{most: most, held: map[string]int{}} }

// enter reports whether an address may have one more, and if so notes it, and
// returns how many it has.
func (c *counter) enter(from string) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[from] >= c.most {
		return 0, false
	}
	c.held[from]++
	return c.held[from], true
}

func (c *counter) leave(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[from]--; c.held[from] == 0 {
		delete(c.held, from)
	}
}

// A door is a listener that lets each address have so many connections, and half
// as many of HTTP/2, each of which can carry many requests. Those of proxies are
// not counted: they are connections of everybody behind them.
type door struct {
	net.Listener
	all, http2 *counter
	proxies    api.Proxies
	log        *slog.Logger

	mu     sync.Mutex
	warned time.Time // when the log was last told
}

func newDoor(l net.Listener, most int, proxies api.Proxies, log *slog.Logger) *door {
	return &door{Listener: l, all: newCounter(most), http2: newCounter((most + 1) / 2), proxies: proxies, log: log}
}

// Accept is of net.Listener.
func (d *door) Accept() (net.Conn, error) {
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
		if _, ok := d.all.enter(from); ok {
			return &counted{Conn: conn, door: d, from: from}, nil
		}
		conn.Close()
		d.warn(from)
	}
}

// warn has the log tell that an address is refused connections.
func (d *door) warn(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.warned) > warnEach {
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

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	door *door
	from string

	mu     sync.Mutex
	http2  bool // it is counted among those, too
	closed bool
}

// countHTTP2 counts conn, which may be of TLS, among those of HTTP/2. It reports
// whether its address may have one more, and whether it has others.
func countHTTP2(conn net.Conn) (crowded, ok bool) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*counted)
	if !ok {
		return false, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.door.http2.enter(c.from)
	switch {
	case !ok:
		c.door.warn(c.from)
	case c.closed:
		c.door.http2.leave(c.from)
	default:
		c.http2 = true
	}
	return n > roomy, ok
}

// ReadFrom is of io.ReaderFrom: with it the kernel can send a file.
func (c *counted) ReadFrom(body io.Reader) (int64, error) { return io.Copy(c.Conn, body) }

// Close is of net.Conn.
func (c *counted) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.door.all.leave(c.from)
		if c.http2 {
			c.door.http2.leave(c.from)
		}
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
