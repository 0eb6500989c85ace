package api

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net/http"
	"sync"

	"google.golang.org/grpc"
)

// messagePrefix is the length of the prefix of every gRPC message, in bytes: one
// byte that says whether the message is compressed, and its length in four bytes.
const messagePrefix = 5

// A gate is the body of a gRPC call that arrived through net/http. grpc-go reads
// such a body as fast as the client sends it, and buffers messages that no method
// has asked for. A gate returns a message only after the chain has asked for it, so
// that the flow control of HTTP/2 makes the client wait.
type gate struct {
	body io.ReadCloser

	head []byte // unread part of the prefix of the message
	left int64  // unread bytes of the message

	mu     sync.Mutex
	most   int64 // largest message, in bytes
	asked  chan struct{}
	closed chan struct{}
	once   sync.Once
}

type gateKey struct{}

// gateOf returns the gate of a call, or nil if it has none.
func gateOf(ctx context.Context) *gate {
	g, _ := ctx.Value(gateKey{}).(*gate)
	return g
}

// Mixed serves gRPC calls that arrive on a connection of net/http among other
// requests. s is a server that API.GRPC has returned.
func Mixed(s *grpc.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := &gate{body: r.Body, asked: make(chan struct{}, 1), closed: make(chan struct{})}
		ctx := context.WithValue(r.Context(), gateKey{}, g)
		ctx = context.WithValue(ctx, stopKey{}, stop(g.shut))
		r = r.WithContext(ctx)
		r.Body = g
		s.ServeHTTP(w, r)
	})
}

// open lets Read return the next message, unless it has more bytes than most.
func (g *gate) open(most int64) {
	g.mu.Lock()
	g.most = most
	g.mu.Unlock()
	select {
	case g.asked <- struct{}{}:
	default: // the previous message has not arrived yet
	}
}

// shut ends reading.
func (g *gate) shut() {
	g.once.Do(func() {
		close(g.closed)
		_ = g.body.Close() // never fails in net/http
	})
}

func (g *gate) Close() error {
	g.shut()
	return nil
}

func (g *gate) Read(p []byte) (int, error) {
	if len(g.head) == 0 && g.left == 0 {
		if err := g.next(); err != nil {
			return 0, err
		}
	}
	if len(g.head) > 0 {
		n := copy(p, g.head)
		g.head = g.head[n:]
		return n, nil
	}
	n, err := g.body.Read(p[:min(int64(len(p)), g.left)])
	g.left -= int64(n)
	return n, err
}

// next reads the prefix of the next message, and waits for open.
func (g *gate) next() error {
	head := make([]byte, messagePrefix)
	switch n, err := io.ReadFull(g.body, head); {
	case n == 0:
		return err
	case err != nil:
		return io.ErrUnexpectedEOF
	}
	select {
	case <-g.asked:
	case <-g.closed:
		return io.ErrUnexpectedEOF
	}
	g.mu.Lock()
	most := g.most
	g.mu.Unlock()
	g.head, g.left = head, int64(binary.BigEndian.Uint32(head[1:]))
	if g.left > most {
		// grpc-go refuses this length and does not wait for the message.
		binary.BigEndian.PutUint32(head[1:], math.MaxUint32)
		g.left = 0
	}
	return nil
}
