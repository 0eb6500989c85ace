package e2e_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// A link is the network connection between one replica and its database. It is a TCP proxy that a test can interrupt.
type link struct {
	address string // host:port at which the link listens
	target  string // path of the database server's socket

	mu     sync.Mutex
	fails  linkFailure
	delay  time.Duration // delay of every packet
	mended chan struct{} // closed when the field fails changes
	conns  map[net.Conn]bool
}

// A linkFailure is a kind of network failure.
type linkFailure int

const (
	linkWorks  linkFailure = iota
	linkStalls             // packets do not arrive, but connections stay open
	linkDrops              // existing and new connections are closed
)

// newLink opens a link to the PostgreSQL server with this socket.
func newLink(t *testing.T, socket string) *link {
	t.Helper()
	l := &link{target: socket, mended: make(chan struct{}), conns: map[net.Conn]bool{}}
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		l.set(linkDrops, 0)
	})
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go l.carry(ctx, near)
		}
	}()
	return l
}

// set makes the link fail, or work again with the given delay. Packets that were stalled are delivered late.
func (l *link) set(fails linkFailure, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails, l.delay = fails, delay
	close(l.mended)
	l.mended = make(chan struct{})
	if fails == linkDrops {
		for c := range l.conns {
			_ = c.Close()
		}
	}
}

// carry forwards packets between a client and the server.
func (l *link) carry(ctx context.Context, near net.Conn) {
	defer near.Close()
	if !l.pass(ctx) {
		return
	}
	far, err := new(net.Dialer).DialContext(ctx, "unix", l.target)
	if err != nil {
		return // the deferred call closes the client's connection
	}
	defer far.Close()
	l.mu.Lock()
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, near)
		delete(l.conns, far)
	}()
	var wg sync.WaitGroup
	wg.Go(func() { l.copy(ctx, near, far); _ = far.Close() })
	wg.Go(func() { l.copy(ctx, far, near); _ = near.Close() })
	wg.Wait()
}

func (l *link) copy(ctx context.Context, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.pass(ctx) {
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// pass waits while the link stalls or delays packets. It reports whether a packet may be forwarded.
func (l *link) pass(ctx context.Context) bool {
	for {
		l.mu.Lock()
		fails, delay, mended := l.fails, l.delay, l.mended
		l.mu.Unlock()
		if fails == linkDrops {
			return false
		}
		if fails == linkWorks && delay == 0 {
			return true
		}
		var late <-chan time.Time
		if fails == linkWorks {
			late = time.After(delay)
		}
		select {
		case <-ctx.Done():
			return false
		case <-late:
			return true
		case <-mended:
		}
	}
}
