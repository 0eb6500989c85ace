package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	sniffTimeout = 10 * time.Second // to detect the protocol of a connection
	sniffLimit   = 64 << 10         // bytes to detect it in

	frameHeader = 9 // bytes: length, type, flags, stream
	headerTable = 4 << 10
)

// emptySettings is a SETTINGS frame that changes nothing.
var emptySettings = []byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0}

// A splitter shares one listener between a gRPC server and an HTTP server. A
// connection goes to gRPC if its first request has the content type
// application/grpc, and to HTTP otherwise.
//
// A gRPC client sends requests only after it has received the server's
// SETTINGS, so the splitter sends empty ones to every client that begins with
// the HTTP/2 preface. The server that gets the connection sends its own, which
// is allowed. The acknowledgement of the first must not reach it, because
// net/http closes a connection on an acknowledgement it does not expect, so
// the splitter removes it.
type splitter struct {
	root      net.Listener
	listeners           // for the first connections of an address
	crowded   listeners // for further connections
	timeout   time.Duration
	proxies   api.Proxies // trusted proxies

	sniffing  sync.WaitGroup
	mu        sync.Mutex
	undecided map[net.Conn]struct{} // nil once closed
}

// listeners are where the servers accept connections.
type listeners struct{ grpc, http *connListener }

func newSplitter(root net.Listener) *splitter {
	return &splitter{
		root: root, timeout: sniffTimeout, undecided: map[net.Conn]struct{}{},
		listeners: listeners{newConnListener(root.Addr()), newConnListener(root.Addr())},
		crowded:   listeners{newConnListener(root.Addr()), newConnListener(root.Addr())},
	}
}

// Serve accepts connections until Close.
func (s *splitter) Serve() error {
	var pause time.Duration
	for {
		conn, err := s.root.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // most likely out of file descriptors: wait for some
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}
		pause = 0
		if !s.track(conn) {
			conn.Close()
			return nil
		}
	}
}

// Close stops accepting and closes the connections whose protocol is not known
// yet. The others are closed by their servers.
func (s *splitter) Close() {
	s.root.Close()
	s.mu.Lock()
	for conn := range s.undecided {
		conn.Close()
	}
	s.undecided = nil
	s.mu.Unlock()
	s.sniffing.Wait()
}

// track dispatches conn in the background, or returns false if the splitter is
// closed. It adds conn to undecided and sniffing under the lock, so that Close
// either sees it or comes first.
func (s *splitter) track(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undecided == nil {
		return false
	}
	s.undecided[conn] = struct{}{}
	s.sniffing.Go(func() { s.dispatch(conn) })
	return true
}

// dispatch detects the protocol of conn and delivers it to a server.
func (s *splitter) dispatch(conn net.Conn) {
	sniffed, isGRPC, err := sniff(conn, s.timeout)
	s.mu.Lock()
	delete(s.undecided, conn)
	s.mu.Unlock()
	if err != nil {
		hintAtTLS(err)
		conn.Close()
		return
	}
	to := s.listeners
	if sniffed.isHTTP2 {
		crowded, ok := acquireHTTP2(conn)
		if !ok {
			conn.Close()
			return
		}
		if crowded {
			to = s.crowded
		}
	}
	switch {
	case !isGRPC:
		to.http.deliver(sniffed)
	case s.proxies.Trust(resource.HostOf(conn.RemoteAddr().String())):
		sniffed.admitted.Store(true)
		to.grpc.deliver(sniffed)
	default:
		to.grpc.deliver(newUnadmittedConn(sniffed))
	}
}

// hintAtTLS answers a client that sent plain HTTP where TLS is expected, in
// plain HTTP.
func hintAtTLS(err error) {
	spoke, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || spoke.Conn == nil || !plainHTTP.Match(spoke.RecordHeader[:]) {
		return
	}
	_, _ = io.WriteString(spoke.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis is an https address.\n")
}

// plainHTTP matches the first five bytes of a plain HTTP request.
var plainHTTP = regexp.MustCompile(`^[A-Z]{3,5}[ /]?`)

// sniff reads enough of conn to detect its protocol, and returns a connection
// that reads those bytes again. It fails if that takes longer than timeout.
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

// A sniffedConn reads the buffered bytes again, then the rest without the
// client's first acknowledgement of SETTINGS, if that has not arrived yet.
type sniffedConn struct {
	net.Conn
	isHTTP2  bool
	buffered []byte // bytes to read again
	awaitAck bool   // the rest begins with a frame, and an acknowledgement is expected
	inFrame  int    // bytes left of the frame being read

	deadline writeDeadline
	admitted atomic.Bool // a caller on the connection has been authenticated

	open  context.Context // done when the connection is closed
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

// readFirstHeaders reads frames up to the headers of the first request, and
// reports whether they belong to a gRPC call. It leaves malformed frames to
// the HTTP server.
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
		if err != nil { // incomplete frames: the HTTP server will report why
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
			return i >= 0 && isGRPCContent(f.Fields[i].Value), nil
		}
	}
}

// isGRPCContent reports whether a content type is that of gRPC. That of
// gRPC-Web, which has the same beginning, is not.
func isGRPCContent(contentType string) bool {
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

// A connListener is a listener of connections that are delivered to it.
type connListener struct {
	addr  net.Addr
	conns chan net.Conn
	ctx   context.Context
	close context.CancelFunc
}

func newConnListener(addr net.Addr) *connListener {
	ctx, cancel := context.WithCancel(context.Background())
	return &connListener{addr, make(chan net.Conn), ctx, cancel}
}

// deliver passes conn to Accept, or closes it if the listener is closed.
func (h *connListener) deliver(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.ctx.Done():
		conn.Close()
	}
}

func (h *connListener) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (h *connListener) Addr() net.Addr { return h.addr }

func (h *connListener) Close() error {
	h.close()
	return nil
}
