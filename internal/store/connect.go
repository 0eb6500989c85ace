package store

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

// serverDelay is how long a server of an address has to itself before the next one is
// tried beside it. A machine that is off does not answer at all, and a renewal has
// two seconds.
const serverDelay = 250 * time.Millisecond

// A connector opens sessions with that server, of those that an address names, which
// takes writes. It begins with the one that did so last.
type connector struct {
	servers []driver.Connector
	last    atomic.Int32 // the index of the server that was connected to last

	mu   sync.Mutex
	open map[*countedConn]bool
}

// newConnector returns a connector to the servers of cfg. validate decides whether a
// session can be used.
func newConnector(cfg *pgx.ConnConfig, validate func(context.Context, *pgconn.PgConn) error) *connector {
	c := &connector{open: map[*countedConn]bool{}}
	ways := append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	for len(ways) > 0 {
		first, n := ways[0], 1 // further ways to the same server are those without TLS
		for n < len(ways) && ways[n].Host == first.Host && ways[n].Port == first.Port {
			n++
		}
		one := cfg.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = first.Host, first.Port, first.TLSConfig, ways[1:n]
		one.ValidateConnect, one.DialFunc = validate, c.dial(cfg.DialFunc)
		c.servers = append(c.servers, stdlib.GetConnector(*one))
		ways = ways[n:]
	}
	return c
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.servers[0].Driver() }

// A session is the result of connecting to one server.
type session struct {
	server int
	conn   driver.Conn
	err    error
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the attempts that are not needed
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

// closeSessions closes those of the next n sessions that were opened although another
// was faster.
func closeSessions(results <-chan session, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.conn.Close() // nobody has used it
		}
	}
}

// A countedConn is a connection that its connector can close while it is in use.
type countedConn struct {
	net.Conn
	of *connector
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (c *connector) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		counted := &countedConn{conn, c}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[counted] = true
		return counted, nil
	}
}

// closeAll closes all connections, also those on which a statement is running. A
// server that hangs would not answer it.
func (c *connector) closeAll() {
	c.mu.Lock()
	all := make([]*countedConn, 0, len(c.open))
	for conn := range c.open {
		all = append(all, conn)
	}
	c.mu.Unlock()
	for _, conn := range all {
		_ = conn.Close() // it is not used again
	}
}
