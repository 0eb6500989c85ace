// Package listen serves gRPC and HTTP, with or without TLS, on one port, and limits the connections of each client.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"regexp"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Splitter shares one listener between a gRPC server and an HTTP server. A
// connection goes to gRPC if its first request has the content type
// application/grpc, and to HTTP otherwise.
//
// A gRPC client sends requests only after it has received the server's SETTINGS, so
// the splitter sends empty SETTINGS to every client that begins with the HTTP/2
// preface. The server that gets the connection sends its own SETTINGS, which HTTP/2
// allows. The splitter removes the client's acknowledgement of the first SETTINGS,
// because net/http closes a connection on an acknowledgement that it does not expect.
type Splitter struct {
	First   Listeners // listeners for the first connections of an address
	Crowded Listeners // listeners for further connections of an address

	root    net.Listener
	timeout time.Duration
	proxies api.Proxies // trusted proxies

	sniffing  sync.WaitGroup
	mu        sync.Mutex
	undecided map[net.Conn]struct{} // connections whose protocol is not known yet; nil after Close
}

// Listeners are the listeners for a gRPC server and an HTTP server.
type Listeners struct{ GRPC, HTTP *Queue }

func newListeners(addr net.Addr) Listeners { return Listeners{newQueue(addr), newQueue(addr)} }

// NewSplitter returns a Splitter for the connections that root accepts. A gRPC connection of
// a trusted proxy needs no token to be admitted.
func NewSplitter(root net.Listener, proxies api.Proxies) *Splitter {
	return &Splitter{
		First: newListeners(root.Addr()), Crowded: newListeners(root.Addr()),
		root: root, timeout: sniffTimeout, proxies: proxies, undecided: map[net.Conn]struct{}{},
	}
}

// Serve accepts connections until Close.
func (s *Splitter) Serve() error {
	var pause time.Duration
	for {
		conn, err := s.root.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil: // probably no free file descriptor: wait for one
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

// Close stops accepting and closes the connections whose protocol is not known yet.
// The servers close the other connections.
func (s *Splitter) Close() {
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
// closed. It adds conn to undecided and sniffing under the lock, so that a concurrent
// Close either finds conn or makes track return false.
func (s *Splitter) track(conn net.Conn) bool {
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
func (s *Splitter) dispatch(conn net.Conn) {
	sniffed, isGRPC, err := sniff(conn, s.timeout)
	s.mu.Lock()
	delete(s.undecided, conn)
	s.mu.Unlock()
	if err != nil {
		hintAtTLS(err)
		conn.Close()
		return
	}
	to := s.First
	if sniffed.isHTTP2 {
		crowded, ok := acquireHTTP2(conn)
		if !ok {
			refuse(conn)
			return
		}
		if crowded {
			to = s.Crowded
		}
	}
	switch {
	case !isGRPC:
		to.HTTP.deliver(sniffed)
	case s.proxies.Trust(resource.HostOf(conn.RemoteAddr().String())):
		sniffed.admitted.Store(true)
		to.GRPC.deliver(sniffed)
	default:
		to.GRPC.deliver(newUnadmittedConn(sniffed))
	}
}

// refuse sends an HTTP/2 client the reason why it may not connect, and closes conn. It first discards what the client
// sends until the client closes the connection, for at most refuseTimeout, because a connection that is closed with
// unread bytes is reset, and the client might lose the message.
func refuse(conn net.Conn) {
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(refuseTimeout)) != nil {
		return
	}
	if http2.NewFramer(conn, nil).WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte(tooMany)) != nil {
		return
	}
	if c, ok := conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// hintAtTLS answers a client that sent plain HTTP instead of TLS. The answer is plain
// HTTP.
func hintAtTLS(err error) {
	spoke, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || spoke.Conn == nil || !plainHTTP.Match(spoke.RecordHeader[:]) {
		return
	}
	_, _ = io.WriteString(spoke.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis is an https address.\n")
}

// plainHTTP matches the first five bytes of a plain HTTP request.
var plainHTTP = regexp.MustCompile(`^[A-Z]{3,5}[ /]?`)

// A Queue is a listener that accepts the connections which are delivered to it.
type Queue struct {
	addr  net.Addr
	conns chan net.Conn
	ctx   context.Context
	close context.CancelFunc
}

func newQueue(addr net.Addr) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	return &Queue{addr, make(chan net.Conn), ctx, cancel}
}

// deliver passes conn to Accept, or closes conn if the listener is closed.
func (h *Queue) deliver(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.ctx.Done():
		conn.Close()
	}
}

// Accept returns the next delivered connection, or net.ErrClosed after Close.
func (h *Queue) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr returns the address of the port.
func (h *Queue) Addr() net.Addr { return h.addr }

// Close ends Accept. Connections that are delivered later are closed.
func (h *Queue) Close() error {
	h.close()
	return nil
}
