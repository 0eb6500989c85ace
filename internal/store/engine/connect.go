package engine

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// serverDelay is how long to wait for a server in an address before the next server
// is tried, too. A machine that is off does not answer at all, and a renewal of a
// lease has only two seconds.
const serverDelay = 250 * time.Millisecond

// A Connector opens sessions with the one server in an address that accepts writes.
// It begins with the server that was used last.
type Connector struct {
	servers []driver.Connector
	last    atomic.Int32 // index of the server that was last connected to

	mu   sync.Mutex
	open map[*trackedConn]bool
}

// NewConnector returns a Connector to the servers in cfg. validate returns an error
// if a session must not be used.
func NewConnector(cfg *pgx.ConnConfig, validate func(context.Context, *pgconn.PgConn) error) *Connector {
	c := &Connector{open: map[*trackedConn]bool{}}
	ways := append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	for len(ways) > 0 {
		first, n := ways[0], 1 // further entries for the same server are connections without TLS
		for n < len(ways) && ways[n].Host == first.Host && ways[n].Port == first.Port {
			n++
		}
		server := cfg.Copy()
		server.Host, server.Port, server.TLSConfig, server.Fallbacks = first.Host, first.Port, first.TLSConfig, ways[1:n]
		server.ValidateConnect, server.DialFunc = validate, c.dial(cfg.DialFunc)
		c.servers = append(c.servers, stdlib.GetConnector(*server))
		ways = ways[n:]
	}
	return c
}

// Driver implements driver.Connector.
func (c *Connector) Driver() driver.Driver { return c.servers[0].Driver() }

// A session is the result of connecting to one server.
type session struct {
	server int
	conn   driver.Conn
	err    error
}

// Connect implements driver.Connector.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the attempts that are still running
	results := make(chan session, len(c.servers))
	next, running := 0, 0
	start := func() {
		if next == len(c.servers) {
			return
		}
		server := (int(c.last.Load()) + next) % len(c.servers)
		next++
		running++
		go func() {
			conn, err := c.servers[server].Connect(ctx)
			results <- session{server, conn, err}
		}()
	}
	start()
	slow := time.NewTicker(serverDelay)
	defer slow.Stop()
	var errs []error
	for running > 0 {
		select {
		case <-slow.C:
			start()
		case r := <-results:
			running--
			if r.err == nil {
				c.last.Store(int32(r.server))
				go closeSessions(results, running)
				return r.conn, nil
			}
			errs = append(errs, r.err)
			start()
		}
	}
	return nil, errors.Join(errs...)
}

// closeSessions closes the sessions in the next n results, because another session
// was faster.
func closeSessions(results <-chan session, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.conn.Close() // the session was never used
		}
	}
}

// A trackedConn is a network connection that its Connector can close while it is in use.
type trackedConn struct {
	net.Conn
	connector *Connector
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.connector.mu.Lock()
	delete(c.connector.open, c)
	c.connector.mu.Unlock()
	return c.Conn.Close()
}

func (c *Connector) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tracked := &trackedConn{conn, c}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[tracked] = true
		return tracked, nil
	}
}

// CloseAll closes all connections, including those on which a statement is running,
// because a server that hangs would never answer the statement.
func (c *Connector) CloseAll() {
	c.mu.Lock()
	open := make([]*trackedConn, 0, len(c.open))
	for conn := range c.open {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close() // the connection is not used again
	}
}
