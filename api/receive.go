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

	"github.com/holdfast-dev/holdfast/fault"
)

// A Conn is the connection that calls over gRPC come on. The server says so
// with the address of the peer: peer.Addr is one.
type Conn interface {
	Admitted() bool                  // somebody on the other side is known
	Admit()                          // notes that somebody is
	Close() error                    // what is under way ends
	AfterClose(f func()) func() bool // calls f when the connection is closed, unless what it returns is called before
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

// A stop ends the reading of a call's message. It is on the context of every
// call over gRPC.
type stop context.CancelFunc

type stopKey struct{}

// tap is called by grpc-go when the headers of a call have come, before it has a
// goroutine or memory for its message. On a connection on which nobody is known it
// refuses calls that need a token and have none that is good, and any call without
// one if its address has many under way.
//
// It also makes the call stoppable: there is no other way to make grpc-go stop
// waiting for a message.
func (c *chain) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx) // ends with its parent, which is the call's
	ctx = context.WithValue(ctx, stopKey{}, stop(cancel))
	conn := connOf(ctx)
	if conn == nil || conn.Admitted() {
		return ctx, nil
	}
	k := c.begin(ctx, info.FullMethodName)
	defer c.metrics.inFlight.Dec()
	var refusal error
	if !k.rule.open {
		// It is asked again in the call itself. Now the connection waits for it.
		soon, end := context.WithTimeout(ctx, admitTime)
		defer end()
		if _, refusal = c.admit(soon, k); refusal == nil {
			return ctx, nil
		}
	}
	// grpc-go never ends the context of a call that a tap refuses. With a
	// deadline, which may be years away, its timer would stay for as long: such
	// a call is refused in the chain, or its connection is closed.
	_, timed := ctx.Deadline()
	if refusal == nil || timed {
		if c.calls.take(k.from, 1) {
			context.AfterFunc(ctx, func() { c.calls.give(k.from, 1) })
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

// A notReceived is the error of a call whose message did not come. Over gRPC the
// library has told the client already.
type notReceived struct{ err error }

func (n notReceived) Error() string { return n.err.Error() }

// receive has decode read the message of a call over gRPC, once it is known that
// the caller may send one.
func (c *chain) receive(ctx context.Context, decode func(any) error, in any) error {
	k := callOf(ctx)
	if k.stranger() && compressed(ctx) { // it is inflated before its size is looked at
		return fault.Field("body", "must not be compressed")
	}
	if g := gateOf(ctx); g != nil {
		g.open(k.mostMessage())
	}
	r := &undecided{into: in, most: k.mostMessage()}
	err := c.read(k, func() { stopReading(ctx) }, func() error { return decode(r) })
	if _, told := status.FromError(err); err != nil && told {
		return notReceived{err}
	}
	return errors.Join(err, r.err)
}

// compressed tells whether a call over gRPC says that its messages are compressed.
func compressed(ctx context.Context) bool {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	return ok && s.RecvCompress() != "" && s.RecvCompress() != encoding.Identity
}

// read runs f, which reads the message of a call. It returns
// fault.ResourceExhausted without running it if the caller is a stranger of whom
// too many calls are being read. It runs stop, which must make f return, if f
// takes too long, or longer than others while many of the caller's do.
func (c *chain) read(k *call, stop func(), f func() error) error {
	slow := &slowRead{share: c.slow, call: k, stop: stop, rest: defaultDeadline - patience}
	if k.stranger() {
		if !c.reading.take(k.from, 1) {
			return busy("requests without a token")
		}
		defer c.reading.give(k.from, 1)
		slow.rest = strangerTime - patience
	}
	slow.begin()
	err := f()
	if !slow.end() {
		return errors.Join(err, busy("slow requests"))
	}
	return err
}

// A slowRead is a message that is being read, and may turn out to be slow.
type slowRead struct {
	share share
	call  *call
	stop  func()
	rest  time.Duration // that a slow message may take

	mu      sync.Mutex
	timer   *time.Timer
	over    bool
	counted bool
	refused bool
}

// begin is for when the reading begins.
func (s *slowRead) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(patience, s.late)
}

// late runs when the message has taken longer than most, and again when it has
// taken all its time.
func (s *slowRead) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.counted:
		s.stop()
	case s.share.take(s.call, 1):
		s.counted = true
		s.timer.Reset(s.rest)
	default:
		s.refused = true
		s.stop()
	}
}

// end is for when the reading is over. It reports false if it was ended because
// too many were slow.
func (s *slowRead) end() bool {
	s.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.counted {
		s.share.give(s.call, 1)
	}
	return !s.refused
}

// tooLarge is the error for a message that is larger than it may be.
func tooLarge(most int64) error { return fault.Field("body", "must have at most %d bytes", most) }
