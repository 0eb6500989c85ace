package listen

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Limits of HTTP/2. Requests need memory, too: with MaxStreams requests on every connection, one address could have
// 12,800 requests at the same time. So only the first uncrowdedConns connections of an address may have MaxStreams
// requests, and further connections may have CrowdedStreams.
const (
	uncrowdedConns = 4
	MaxStreams     = 100
	CrowdedStreams = 8
)

const (
	refuseTimeout = time.Second // time for a refused client to read why and to close its connection
	// tooMany is the message for a client whose address has too many HTTP/2 connections.
	tooMany = "too many connections from this address: reuse connections, or ask the operator to raise " +
		"max_connections_per_address"
)

const warnEvery = time.Minute // minimum interval of log messages about refused connections

// An AddrCounter limits the number of units, such as connections, of each address. It
// is safe for concurrent use.
type AddrCounter struct {
	most int

	mu     sync.Mutex
	counts map[string]int
}

// NewAddrCounter returns a counter that allows most units per address.
func NewAddrCounter(most int) *AddrCounter { return &AddrCounter{most: most, counts: map[string]int{}} }

// Acquire reports whether an address may have one more unit, and returns the number
// that it then has.
func (c *AddrCounter) Acquire(from string) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[from] >= c.most {
		return 0, false
	}
	c.counts[from]++
	return c.counts[from], true
}

// Release gives back a unit that an address has acquired.
func (c *AddrCounter) Release(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[from]--; c.counts[from] == 0 {
		delete(c.counts, from)
	}
}

// A LimitListener limits the connections of each address. It allows only half as many
// HTTP/2 connections, because each can carry many requests. It does not count the
// connections of trusted proxies, because these carry the requests of many clients.
type LimitListener struct {
	net.Listener
	all, http2 *AddrCounter
	proxies    api.Proxies
	log        *slog.Logger

	mu     sync.Mutex
	warned time.Time // time of the last log message
}

// Limit returns a listener that allows most connections per address.
func Limit(l net.Listener, most int, proxies api.Proxies, log *slog.Logger) *LimitListener {
	return &LimitListener{
		Listener: l, all: NewAddrCounter(most), http2: NewAddrCounter((most + 1) / 2), proxies: proxies, log: log,
	}
}

// Accept returns the next connection that the limits allow, and closes the others.
func (d *LimitListener) Accept() (net.Conn, error) {
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
		if _, ok := d.all.Acquire(from); ok {
			return &limitedConn{Conn: conn, listener: d, from: from}, nil
		}
		conn.Close()
		d.warn(from)
	}
}

// warn logs that connections of an address are refused.
func (d *LimitListener) warn(from string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.warned) > warnEvery {
		d.warned = time.Now()
		d.log.Warn("refused connections of an address that has too many "+
			"(see max_connections_per_address and trusted_proxies)", "address", from)
	}
}

// A limitedConn is a connection that is counted until it is closed.
type limitedConn struct {
	net.Conn
	listener *LimitListener
	from     string

	mu     sync.Mutex
	http2  bool // whether it is also counted as an HTTP/2 connection
	closed bool
}

// acquireHTTP2 counts conn, which may use TLS, as an HTTP/2 connection. ok reports
// whether its address may have one more HTTP/2 connection. crowded reports whether the
// address has more than uncrowdedConns HTTP/2 connections.
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
	n, ok := c.listener.http2.Acquire(c.from)
	switch {
	case !ok:
		c.listener.warn(c.from)
	case c.closed:
		c.listener.http2.Release(c.from)
	default:
		c.http2 = true
	}
	return n > uncrowdedConns, ok
}

// ReadFrom implements io.ReaderFrom, so that the kernel can send files.
func (c *limitedConn) ReadFrom(body io.Reader) (int64, error) { return io.Copy(c.Conn, body) }

// CloseWrite sends the end of the data and leaves the connection open for reading.
func (c *limitedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *limitedConn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.listener.all.Release(c.from)
		if c.http2 {
			c.listener.http2.Release(c.from)
		}
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
