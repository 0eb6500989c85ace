package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// TestShare: the units of one holder do not count against another holder, and released
// units can be acquired again.
func TestShare(t *testing.T) {
	ann, bob := &call{subject: "a/1", tenant: "a", network: "1"}, &call{subject: "b/1", tenant: "b", network: "1"}
	cat, stranger := &call{subject: "a/2", tenant: "a", network: "2"}, &call{network: "1"}
	type step struct {
		who  *call
		n    int64
		want bool
	}
	tests := map[string][]step{
		"as much as a tenant may":         {{ann, 3, true}, {ann, 1, true}, {ann, 1, false}},
		"one of any size":                 {{ann, 100, true}, {ann, 1, false}, {cat, 1, false}},
		"a tenant of two addresses":       {{ann, 3, true}, {cat, 2, false}, {cat, 1, true}},
		"two tenants of one address":      {{ann, 4, true}, {bob, 2, true}, {bob, 1, false}, {ann, -4, true}, {bob, 1, true}},
		"strangers beside them":           {{ann, 4, true}, {bob, 2, true}, {stranger, 2, true}, {stranger, 1, false}},
		"what was refused is not counted": {{ann, 4, true}, {ann, 4, false}, {ann, -4, true}, {ann, 4, true}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			s := newCallQuota(4, 6, 2)
			for i, step := range steps {
				if step.n < 0 {
					s.release(step.who, -step.n)
					continue
				}
				if got := s.acquire(step.who, step.n); got != step.want {
					t.Errorf("step %d: %t, want %t", i, got, step.want)
				}
			}
		})
	}
}

// TestAttackSlowMessages: the server waits for a slow message while the caller's tenant
// has few slow messages, but never longer than the time limit.
func TestAttackSlowMessages(t *testing.T) {
	known, stranger := &call{subject: "a/1", tenant: "a", network: "192.0.2.1"}, &call{network: "192.0.2.1"}
	for name, tt := range map[string]struct {
		call   *call
		others int           // slow messages of the same caller that are already being read
		takes  time.Duration // time that the message needs to arrive
		want   error
		after  time.Duration
	}{
		"at once":                    {known, 2 * maxSlow, 0, nil, 0},
		"soon":                       {known, maxSlow, slowAfter - 1, nil, slowAfter - 1},
		"late":                       {known, maxSlow - 1, 20 * time.Second, nil, 20 * time.Second},
		"late, and too many are":     {known, maxSlow, 20 * time.Second, fault.ResourceExhausted, slowAfter},
		"never":                      {known, 0, time.Hour, io.ErrClosedPipe, defaultDeadline},
		"a stranger's, late":         {stranger, maxSlowAnonymous - 1, 5 * time.Second, nil, 5 * time.Second},
		"a stranger's, too many are": {stranger, maxSlowAnonymous, 5 * time.Second, fault.ResourceExhausted, slowAfter},
		"a stranger's, never":        {stranger, 0, time.Hour, io.ErrClosedPipe, anonymousTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := quietChain(&bytes.Buffer{})
				read := func(takes time.Duration) error {
					stopped := make(chan struct{})
					return c.read(tt.call, func() { close(stopped) }, func() error {
						select {
						case <-time.After(takes):
							return nil
						case <-stopped:
							return io.ErrClosedPipe
						}
					})
				}
				for range tt.others {
					go func() { _ = read(time.Hour) }()
				}
				if tt.takes >= slowAfter {
					time.Sleep(2 * slowAfter) // until the other messages count as slow
				}
				start := time.Now()
				err := read(tt.takes)
				if !errors.Is(err, tt.want) {
					t.Errorf("error = %v, want %v", err, tt.want)
				}
				if took := time.Since(start); took != tt.after {
					t.Errorf("took %s, want %s", took, tt.after)
				}
				time.Sleep(time.Hour)
				if n := holders(c.slow.tenants, c.slow.addresses, c.slow.anonymous, c.reading); n != 0 {
					t.Errorf("%d are counted after all", n)
				}
			})
		})
	}
}

// holders returns the number of holders that use units of the quotas.
func holders(quotas ...*quota) (n int) {
	for _, q := range quotas {
		q.mu.Lock()
		n += len(q.used)
		q.mu.Unlock()
	}
	return n
}

// TestAttackManyStrangersReading: the number of messages that are read concurrently
// from one address is limited.
func TestAttackManyStrangersReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := quietChain(&bytes.Buffer{})
		never := func(from string) error {
			stopped := make(chan struct{})
			return c.read(&call{network: from}, func() { close(stopped) }, func() error { <-stopped; return nil })
		}
		for range maxAnonymousReading {
			go func() { _ = never("192.0.2.1") }()
		}
		synctest.Wait()
		if err := never("192.0.2.1"); !errors.Is(err, fault.ResourceExhausted) {
			t.Errorf("one more: %v", err)
		}
		if err := c.read(&call{network: "192.0.2.2"}, nil, func() error { return nil }); err != nil {
			t.Errorf("of another address: %v", err)
		}
		time.Sleep(time.Hour) // by then, all calls have been stopped
	})
}

// TestAttackGate: the gate returns a message only after it was asked for, and no byte of
// the message after it.
func TestAttackGate(t *testing.T) {
	message := func(n int) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(n))) + strings.Repeat("x", n)
	}
	for name, tt := range map[string]struct {
		sent  string
		asked int   // number of messages
		most  int64 // maximum size of a message, in bytes
		want  string
		err   error
	}{
		"one":                 {message(10), 1, 100, message(10), io.EOF},
		"one, and another":    {message(10) + message(20), 1, 100, message(10), io.ErrUnexpectedEOF},
		"both":                {message(10) + message(20), 2, 100, message(10) + message(20), io.EOF},
		"none":                {message(10), 0, 100, "", io.ErrUnexpectedEOF},
		"nothing":             {"", 1, 100, "", io.EOF},
		"an empty one":        {message(0), 1, 100, message(0), io.EOF},
		"half a prefix":       {"\x00\x00", 1, 100, "", io.ErrUnexpectedEOF},
		"half a message":      {message(10)[:9], 1, 100, message(10)[:9], io.EOF},
		"as large as may be":  {message(100), 1, 100, message(100), io.EOF},
		"larger than may be":  {message(101), 1, 100, "\x00\xff\xff\xff\xff", io.ErrUnexpectedEOF},
		"one that comes late": {message(10), 1, 100, message(10), io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{
					body: io.NopCloser(strings.NewReader(tt.sent)), asked: make(chan struct{}, 1), closed: make(chan struct{}),
				}
				go func() {
					for range tt.asked {
						g.open(tt.most)
						time.Sleep(time.Second)
					}
					_ = g.Close()
				}()
				var got []byte
				var err error
				for b := make([]byte, 7); err == nil; {
					var n int
					n, err = g.Read(b)
					got = append(got, b[:n]...)
				}
				if string(got) != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("%q, %v, want %q, %v", got, err, tt.want, tt.err)
				}
				<-g.closed
			})
		})
	}
}

// closing is a fake connection. Its context ends when it is closed.
type closing struct {
	context.Context
	cancel   context.CancelFunc
	admitted bool
}

func (c *closing) Admitted() bool                  { return c.admitted }
func (c *closing) Admit()                          { c.admitted = true }
func (c *closing) Close() error                    { c.cancel(); return nil }
func (c *closing) AfterClose(f func()) func() bool { return context.AfterFunc(c, f) }

// TestAttackUnsent: an answer is counted until grpc-go releases its buffers or its
// connection is closed. The connection of a client that does not read the answer in time
// is closed.
func TestAttackUnsent(t *testing.T) {
	const large = 1 << 20
	for name, end := range map[string]func(conn *closing, b mem.BufferSlice){
		"it is sent":               func(_ *closing, b mem.BufferSlice) { b.Free() },
		"the connection is closed": func(conn *closing, _ mem.BufferSlice) { _ = conn.Close() },
		"time is up": func(conn *closing, _ mem.BufferSlice) {
			time.Sleep(answerTime)
			if conn.Err() != nil {
				t.Error("shown out before its time")
			}
			time.Sleep(large/minAnswerRate*time.Second + time.Second)
		},
	} {
		for size, k := range map[int]*call{large: {subject: "a/1", tenant: "a", network: "1"}, 10: {network: "1"}} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := quietChain(&bytes.Buffer{})
					conn := &closing{}
					conn.Context, conn.cancel = context.WithCancel(context.Background())
					defer conn.cancel()
					release, err := c.countAnswer(k, max(size, anonymousAnswer))
					if err != nil {
						t.Fatal(err)
					}
					a := &answer{message: &iampb.Group{Description: strings.Repeat("x", size)}, conn: conn, free: release}
					a.size = newAnswer(t.Context(), a.message, nil).size
					b, err := codec{encoding.GetCodecV2("proto")}.Marshal(a)
					if err != nil || b.Len() != a.size {
						t.Fatalf("%d bytes of %d, %v", b.Len(), a.size, err)
					}
					held := func() int { return holders(c.unsent.tenants, c.unsent.anonymous) }
					if held() != 1 {
						t.Fatal("it is not counted")
					}
					end(conn, b)
					synctest.Wait()
					if held() != 0 {
						t.Error("it is still counted")
					}
				})
			})
		}
	}
}

// TestTimeoutHeader: a client cannot extend the deadline of a call with the Grpc-Timeout
// header, which other gateways read.
func TestTimeoutHeader(t *testing.T) {
	reached := false
	l := newLocal(func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		if at, ok := ctx.Deadline(); ok {
			t.Errorf("the call has until %s", at)
		}
		reached = true
		return nil, nil
	}, nil)
	h := newGateway(Config{Log: slog.New(slog.DiscardHandler)}, l, nil)
	v2.Register(l, Services{}, v2.Config{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/iam/v2beta1/groups", nil)
	r.Header.Set("Grpc-Timeout", "1H")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if !reached {
		t.Error("the method was not called")
	}
}
