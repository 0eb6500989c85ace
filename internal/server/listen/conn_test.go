package listen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/holdfast-dev/holdfast/internal/api"
)

// pipe returns both ends of a connection. The server's end has the form in which the
// splitter delivers it.
func pipe() (client net.Conn, conn *sniffedConn) {
	client, inner := net.Pipe()
	conn = &sniffedConn{Conn: inner}
	conn.open, conn.close = context.WithCancel(context.Background())
	return client, conn
}

// TestAttackUnread: a client that stops reading is disconnected. A client that reads
// slowly is not disconnected, however long it takes.
func TestAttackUnread(t *testing.T) {
	const size = 4 << 20
	send := map[string]func(*sniffedConn) error{
		"an answer": func(c *sniffedConn) error { _, err := c.Write(make([]byte, size)); return err },
		"a file":    func(c *sniffedConn) error { _, err := c.ReadFrom(&endless{size}); return err },
		"a part of a file": func(c *sniffedConn) error {
			_, err := c.ReadFrom(io.LimitReader(&endless{2 * size}, size))
			return err
		},
	}
	tests := map[string]struct {
		reads int // number of reads, with a pause after each
		pause time.Duration
		err   error
	}{
		"slowly":              {reads: size / (16 << 10), pause: time.Second},
		"nothing":             {reads: 0, err: os.ErrDeadlineExceeded},
		"the beginning alone": {reads: 20, pause: time.Second, err: os.ErrDeadlineExceeded},
	}
	for what, send := range send {
		for name, tt := range tests {
			t.Run(what+" is read: "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, conn := pipe()
					done := make(chan struct{})
					go func() {
						defer close(done)
						for range tt.reads {
							_, _ = io.CopyN(io.Discard, client, 16<<10)
							time.Sleep(tt.pause)
						}
					}()
					start := time.Now()
					err := send(conn)
					if !errors.Is(err, tt.err) {
						t.Errorf("error = %v, want %v", err, tt.err)
					}
					if took := time.Since(start) - time.Duration(tt.reads)*tt.pause; tt.err != nil &&
						took > writeTimeout {
						t.Errorf("shown out %s after it stopped", took)
					}
					client.Close()
					<-done
				})
			})
		}
	}
}

// endless is a reader of `left` bytes.
type endless struct{ left int }

func (e *endless) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	e.left -= n
	return n, nil
}

// TestAttackUnreadStream: an HTTP/2 client can read from the connection without enlarging
// the window of a stream. Such a stream ends. A stream whose window the client keeps
// enlarging does not end.
func TestAttackUnreadStream(t *testing.T) {
	for name, opens := range map[string]bool{"never opened": false, "opened slowly": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				result := make(chan error, 1)
				var protocols http.Protocols
				protocols.SetUnencryptedHTTP2(true)
				answer := func(w http.ResponseWriter, _ *http.Request) {
					_, err := w.Write(make([]byte, 1<<20))
					result <- err
				}
				srv := &http.Server{
					Protocols: &protocols, ReadHeaderTimeout: time.Hour, Handler: WithWriteTimeout(http.HandlerFunc(answer)),
				}
				l := newQueue(conn.LocalAddr())
				go func() { _ = srv.Serve(l) }()
				defer srv.Close()
				l.deliver(conn)
				framer := http2.NewFramer(client, client)
				done := make(chan struct{})
				// Each goroutine needs its own framer.
				go func() { defer close(done); drain(http2.NewFramer(client, client), opens) }()
				write(t, client, http2.ClientPreface)
				if err := errors.Join(framer.WriteSettings(), writeGet(framer)); err != nil {
					t.Fatal(err)
				}
				if err := <-result; (err == nil) != opens {
					t.Errorf("the answer ended with %v", err)
				}
				client.Close()
				<-done
			})
		})
	}
}

// drain slowly reads the frames of a server. If opens is set, it enlarges the windows by
// the number of bytes that it has read.
func drain(framer *http2.Framer, opens bool) {
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if d, ok := f.(*http2.DataFrame); ok && opens && len(d.Data()) > 0 {
			n := uint32(len(d.Data()))
			time.Sleep(time.Second)
			if errors.Join(framer.WriteWindowUpdate(0, n), framer.WriteWindowUpdate(1, n)) != nil {
				return
			}
		}
	}
}

// TestAttackStrangerStream: the bytes of each stream are counted, however they are
// divided into frames and reads.
func TestAttackStrangerStream(t *testing.T) {
	const window = 16 << 10
	data := func(f *http2.Framer, stream uint32, n int, end bool) {
		for ; n > window; n -= window {
			_ = f.WriteData(stream, false, make([]byte, window)) // the framer writes to memory, so there is no error
		}
		_ = f.WriteData(stream, end, make([]byte, n))
	}
	tests := map[string]struct {
		send func(f *http2.Framer)
		err  error
	}{
		"a message":        {func(f *http2.Framer) { data(f, 1, maxUnadmittedBytes, true) }, nil},
		"a larger message": {func(f *http2.Framer) { data(f, 1, maxUnadmittedBytes+1, true) }, errUnadmitted},
		"a stream of pieces": {func(f *http2.Framer) { data(f, 1, maxUnadmittedBytes, false); data(f, 1, 1, false) },
			errUnadmitted},
		"many messages": {func(f *http2.Framer) {
			for i := range uint32(2 * maxUnadmittedStreams) {
				data(f, 2*i+1, 1<<10, true)
			}
		}, nil},
		"many streams that are given up": {func(f *http2.Framer) {
			for i := range uint32(2 * maxUnadmittedStreams) {
				data(f, 2*i+1, 1<<10, false)
				_ = f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
			}
		}, nil},
		"many streams that do not end": {func(f *http2.Framer) {
			for i := range uint32(2 * maxUnadmittedStreams) {
				data(f, 2*i+1, 1, false)
			}
		}, errUnadmitted},
		"headers and pings": {func(f *http2.Framer) {
			for range 1000 {
				_ = errors.Join(writeGet(f), f.WritePing(false, [8]byte{}))
			}
		}, nil},
	}
	for name, tt := range tests {
		for how, step := range map[string]int{"at once": 1 << 20, "in pieces": 13, "by the byte": 1} {
			t.Run(name+", "+how, func(t *testing.T) {
				var sent bytes.Buffer
				sent.WriteString(http2.ClientPreface)
				tt.send(http2.NewFramer(&sent, nil))
				w := newUnadmittedConn(nil).frames
				var err error
				for err == nil && sent.Len() > 0 {
					err = w.count(sent.Next(step))
				}
				if !errors.Is(err, tt.err) {
					t.Errorf("error = %v, want %v", err, tt.err)
				}
			})
		}
	}
}

// from is a connection with a given remote address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}

// TestAttackManyConnections: the connections of an address are limited, and its HTTP/2
// connections to half as many. An IPv6 network counts as one address. Connections of
// proxies are not counted.
func TestAttackManyConnections(t *testing.T) {
	const most, half = 3, 2
	tests := map[string]struct {
		addresses    []string
		taken, http2 int
	}{
		"one address": {repeat("192.0.2.1:80", 5), most, half},
		"another":     {append(repeat("192.0.2.1:80", 5), "192.0.2.2:80"), most + 1, half + 1},
		"one network": {
			[]string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3:0:0:4]:1", "[2001:db8::5]:1", "[2001:db8::6]:1"},
			most, half,
		},
		"another network": {
			[]string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "[2001:db8:0:1::4]:1"}, most + 1, half + 1,
		},
		"one address, mapped":  {append(repeat("192.0.2.1:80", 3), repeat("[::ffff:192.0.2.1]:80", 3)...), most, half},
		"a proxy":              {repeat("10.1.2.3:80", 9), 9, 9},
		"a proxy, mapped":      {repeat("[::ffff:10.1.2.3]:80", 9), 9, 9},
		"an address near that": {repeat("11.1.2.3:80", 9), most, half},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newQueue(&net.TCPAddr{})
			var log bytes.Buffer
			d := Limit(
				l, most, api.Proxies{netip.MustParsePrefix("10.0.0.0/8")}, slog.New(slog.NewTextHandler(&log, nil)),
			)
			for again := range 2 { // in the second round, closed connections no longer count
				go func() {
					for _, a := range tt.addresses {
						_, conn := net.Pipe()
						l.deliver(from{conn, a})
					}
					l.deliver(from{nil, "203.0.113.1:1"}) // marks the end of the list
				}()
				var taken []net.Conn
				for {
					conn, err := d.Accept()
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(conn.RemoteAddr().String(), "203.") {
						d.all.Release("203.0.113.1")
						break
					}
					taken = append(taken, conn)
				}
				if len(taken) != tt.taken {
					t.Errorf("round %d: %d connections were taken, want %d", again, len(taken), tt.taken)
				}
				multiplexed := 0
				for _, conn := range taken {
					if _, ok := acquireHTTP2(conn); ok {
						multiplexed++
					}
				}
				if multiplexed != tt.http2 {
					t.Errorf("round %d: %d of them may be of HTTP/2, want %d", again, multiplexed, tt.http2)
				}
				for _, conn := range taken {
					conn.Close()
					conn.Close() // servers close their connections
				}
			}
			if told := strings.Count(log.String(), "max_connections_per_address"); tt.taken < len(tt.addresses) &&
				told != 1 {
				t.Errorf("the log tells of it %d times, want once:\n%s", told, &log)
			}
			if len(d.all.counts)+len(d.http2.counts) != 0 {
				t.Errorf("counted after all were closed: %v, %v", d.all.counts, d.http2.counts)
			}
		})
	}
}

func repeat(address string, n int) []string {
	var all []string
	for range n {
		all = append(all, address)
	}
	return all
}
