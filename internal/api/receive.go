package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// A Conn is a connection that carries calls over gRPC. peer.Addr of a call
// implements it.
type Conn interface {
	Admitted() bool // reports whether a call on the connection had a valid token
	Admit()         // records that a call on the connection had a valid token
	Close() error   // ends the calls in flight
	// AfterClose calls f after the connection is closed. If the returned function is called
	// first, f is not called.
	AfterClose(f func()) func() bool
}

// connOf returns the connection of a call over gRPC, or nil.
func connOf(ctx context.Context) Conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	c, _ := p.Addr.(Conn)
	return c
}

// A stop ends the reading of a call's message. The context of every call over
// gRPC has one.
type stop context.CancelFunc

type stopKey struct{}

// tap is called by grpc-go when the headers of a call have arrived, before it
// allocates a goroutine or memory for the message. On a connection that has not
// shown a valid token, tap refuses a call that needs a token and has no valid one.
// It also refuses a call that needs no token if its address has too many in flight.
//
// It adds a stop to the context, because there is no other way to make grpc-go
// stop waiting for a message.
func (c *chain) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx) // ends with ctx, which is the context of the call
	ctx = context.WithValue(ctx, stopKey{}, stop(cancel))
	conn := connOf(ctx)
	if conn == nil || conn.Admitted() {
		return ctx, nil
	}
	k := c.begin(ctx, info.FullMethodName)
	defer c.metrics.inFlight.Dec()
	var refusal error
	if !k.rule.open {
		// The chain authenticates the call again. This authentication blocks the
		// connection, so its time is limited.
		short, end := context.WithTimeout(ctx, admitTime)
		defer end()
		if _, refusal = c.admit(short, k); refusal == nil {
			return ctx, nil
		}
	}
	// grpc-go never ends the context of a call that a tap refuses. If the call has
	// a deadline, which may be years away, its timer would stay until then. So the
	// chain refuses such a call, or tap closes its connection.
	_, timed := ctx.Deadline()
	if refusal == nil || timed {
		if c.calls.acquire(k.network, 1) {
			context.AfterFunc(ctx, func() { c.calls.release(k.network, 1) })
			return ctx, nil
		}
		refusal = busy("calls without a token")
	}
	if err := c.end(ctx, k, refusal); !timed {
		return ctx, err
	}
	return ctx, conn.Close()
}

// stopReading ends the reading of a call's message over gRPC.
func stopReading(ctx context.Context) {
	if f, ok := ctx.Value(stopKey{}).(stop); ok {
		f()
	}
}

// A receiveError is the error of a call whose message did not arrive. grpc-go has
// already answered the client.
type receiveError struct{ err error }

func (e receiveError) Error() string { return e.err.Error() }

// receive calls decode to read the message of a call over gRPC, within the limits of
// the caller.
func (c *chain) receive(ctx context.Context, decode func(any) error, in any) error {
	k := callOf(ctx)
	if k.anonymous() && compressed(ctx) { // grpc-go would decompress the message before it checks the size
		return fault.Field("body", "must not be compressed")
	}
	if g := gateOf(ctx); g != nil {
		g.open(k.maxMessage())
	}
	r := &lazyRequest{into: in, most: k.maxMessage()}
	err := c.read(k, func() { stopReading(ctx) }, func() error { return decode(r) })
	if _, answered := status.FromError(err); err != nil && answered {
		return receiveError{err}
	}
	return errors.Join(err, r.err)
}

// compressed reports whether the messages of a call over gRPC are compressed.
func compressed(ctx context.Context) bool {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	return ok && s.RecvCompress() != "" && s.RecvCompress() != encoding.Identity
}

// read runs f, which reads the message of a call. It returns
// fault.ResourceExhausted without running f if the caller is anonymous and too many
// messages of its address are being read. It calls stop, which must make f return,
// if f takes too long, or if f is slow and the caller already has too many slow
// messages.
func (c *chain) read(k *call, stop func(), f func() error) error {
	slow := &slowRead{quota: c.slow, call: k, stop: stop, rest: defaultDeadline - slowAfter}
	if k.anonymous() {
		if !c.reading.acquire(k.network, 1) {
			return busy("requests without a token")
		}
		defer c.reading.release(k.network, 1)
		slow.rest = anonymousTime - slowAfter
	}
	slow.begin()
	err := f()
	if !slow.end() {
		return errors.Join(err, busy("slow requests"))
	}
	return err
}

// A slowRead watches the reading of a message, which may turn out to be slow.
type slowRead struct {
	quota callQuota
	call  *call
	stop  func()
	rest  time.Duration // time that a slow message may take after slowAfter

	mu      sync.Mutex
	timer   *time.Timer
	ended   bool
	counted bool
	refused bool
}

// begin starts the timer.
func (s *slowRead) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(slowAfter, s.late)
}

// late runs when the message turns out to be slow, and again when its time has
// passed.
func (s *slowRead) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
	case s.counted:
		s.stop()
	case s.quota.acquire(s.call, 1):
		s.counted = true
		s.timer.Reset(s.rest)
	default:
		s.refused = true
		s.stop()
	}
}

// end stops the timer. It returns false if the reading was stopped because the
// caller had too many slow messages.
func (s *slowRead) end() bool {
	s.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.counted {
		s.quota.release(s.call, 1)
	}
	return !s.refused
}
