package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A wire is an HTTP/2 connection on which a test can write arbitrary frames.
type wire struct {
	net.Conn
	*http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
	stream uint32
}

// newWire opens a connection. If deaf is false, it reads and discards the server's frames.
func newWire(t *testing.T, address string, deaf bool, settings ...http2.Setting) *wire {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := &wire{Conn: conn, Framer: http2.NewFramer(conn, conn), stream: 1}
	w.enc = hpack.NewEncoder(&w.block)
	if !deaf {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err := errors.Join(err, w.WriteSettings(settings...)); err != nil {
		return w // the server has already closed the connection
	}
	return w
}

// headers returns the encoded header block of a request.
func (w *wire) headers(fields ...string) []byte {
	w.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = w.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a write to memory does not fail
	}
	return bytes.Clone(w.block.Bytes())
}

// call starts a gRPC call. If message is not nil, it sends the whole message.
func (w *wire) call(method string, message []byte) error {
	block := w.headers(":method", "POST", ":scheme", "http", ":authority", "holdfast.test",
		":path", method, "content-type", "application/grpc", "te", "trailers")
	err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.stream, BlockFragment: block, EndHeaders: true})
	if err == nil && message != nil {
		err = w.WriteData(w.stream, true, message)
	}
	w.stream += 2
	return err
}

// get sends a request that is not gRPC.
func (w *wire) get(path string) error {
	err := w.WriteHeaders(http2.HeadersFrameParam{
		StreamID: w.stream, EndHeaders: true, EndStream: true,
		BlockFragment: w.headers(":method", "GET", ":scheme", "http", ":authority", "holdfast.test", ":path", path),
	})
	w.stream += 2
	return err
}

var emptyMessage = make([]byte, 5)

// TestAttackConnections opens a thousand connections from one address and uses each in the way that
// costs the server most. The address gets only the configured number of connections, and the
// server's memory stays small. Once the connections are closed, the server accepts the address
// again.
func TestAttackConnections(t *testing.T) {
	const connections = 1000
	noWindow := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	for name, open := range map[string]func(t *testing.T, address string){
		"that say nothing": func(t *testing.T, address string) {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		},
		"of gRPC": func(t *testing.T, address string) { _ = newWire(t, address, false).call(callPing, emptyMessage) },
		"of HTTP": func(t *testing.T, address string) { _ = newWire(t, address, false).get("/healthz") },
		"of gRPC, with calls that wait for messages": func(t *testing.T, address string) {
			w := newWire(t, address, false)
			for range 100 {
				_ = w.call(callPing, nil) // the server may close the connection, here and below
			}
		},
		"of gRPC, with answers that are not taken": func(t *testing.T, address string) {
			w := newWire(t, address, false, noWindow)
			for range 100 {
				_ = w.call(callPing, emptyMessage)
			}
		},
		"of gRPC, with refusals that are not read": func(t *testing.T, address string) {
			w := newWire(t, address, true)
			_ = w.SetWriteDeadline(time.Now().Add(time.Second)) // the server stops reading too, so writes could block
			for range 2000 {
				if w.call(callCreate, emptyMessage) != nil {
					return
				}
			}
		},
		"of HTTP, with answers that are not taken": func(t *testing.T, address string) {
			w := newWire(t, address, false, noWindow)
			for range 100 {
				_ = w.get("/openapi.json")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := attacked(t)
			rest := atRest(t, p)
			owner := p.owner() // the owner connects before the attack
			procMust[any](t, owner, http.MethodGet, "/iam/v2beta1/groups", nil)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range connections / 8 {
						open(t, p.address)
					}
				})
			}
			wg.Wait()
			most := int64(0)
			for range 20 {
				procMust[any](t, owner, http.MethodGet, "/iam/v2beta1/groups", nil)
				most = max(most, procResident(t, p)-rest)
			}
			t.Logf("%d MB more than the %d MB at rest", most>>20, rest>>20)
			if most > strangersMay {
				t.Errorf("the server uses %d MB more than at rest, want at most %d MB", most>>20, strangersMay>>20)
			}
			p.waitLog("max_connections_per_address")
		})
	}
}

// TestAttackConnectionsEnd checks that an address at its limit can open new connections as soon as
// it has closed others.
func TestAttackConnectionsEnd(t *testing.T) {
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_MAX_CONNECTIONS_PER_ADDRESS=3")
	var conns []net.Conn
	for range 3 {
		conns = append(conns, newWire(t, p.address, false))
	}
	refused, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Fatal("the server accepts a fourth connection")
	}
	conns[0].Close()
	procUntil(t, "the address is served again", func() bool {
		return p.owner().code(t.Context(), http.MethodGet, "/iam/v2beta1/groups", nil) == http.StatusOK
	})
}

// TestAttackRapidReset starts calls and cancels them immediately, as fast as possible. The server must continue to
// serve other callers, and its memory must stay small.
func TestAttackRapidReset(t *testing.T) {
	const resets = 50_000
	for name, begin := range map[string]func(w *wire) error{
		"gRPC":                    func(w *wire) error { return w.call(callPing, nil) },
		"gRPC, without a token":   func(w *wire) error { return w.call(callCreate, nil) },
		"HTTP":                    func(w *wire) error { return w.get("/openapi.json") },
		"gRPC, mixed with others": func(w *wire) error { return w.call(callPing, nil) },
	} {
		for how, deaf := range map[string]bool{"": false, ", reading nothing": true} {
			t.Run(name+how, func(t *testing.T) {
				p := attacked(t)
				rest := atRest(t, p)
				w := newWire(t, p.address, deaf)
				if strings.Contains(name, "mixed") {
					if err := w.get("/healthz"); err != nil {
						t.Fatal(err)
					}
				}
				_ = w.SetWriteDeadline(time.Now().Add(3 * time.Second)) // the server may stop reading
				for range resets {
					id := w.stream
					if err := errors.Join(begin(w), w.WriteRSTStream(id, http2.ErrCodeCancel)); err != nil {
						break // the server has closed the connection
					}
				}
				staysWithin(t, p, rest, strangersMay)
			})
		}
	}
}

// TestAttackRefusals sends calls that the server refuses, with and without a long timeout. The server must keep no
// memory for them.
func TestAttackRefusals(t *testing.T) {
	const calls = 200_000
	for name, method := range map[string]string{"that needs a token": callCreate, "that needs none": callPing} {
		for how, timeout := range map[string]string{"": "", ", with a timeout of years": "99999999H"} {
			t.Run("a method "+name+how, func(t *testing.T) {
				p := attacked(t)
				rest := atRest(t, p)
				w := newWire(t, p.address, false)
				for range calls {
					fields := []string{
						":method", "POST", ":scheme", "http", ":authority", "holdfast.test",
						":path", method, "content-type", "application/grpc",
					}
					if timeout != "" {
						fields = append(fields, "grpc-timeout", timeout)
					}
					err := w.WriteHeaders(http2.HeadersFrameParam{
						StreamID: w.stream, BlockFragment: w.headers(fields...), EndHeaders: true, EndStream: true,
					})
					if err != nil { // the server has closed the connection, so open another connection
						w = newWire(t, p.address, false)
						continue
					}
					w.stream += 2
				}
				staysWithin(t, p, rest, strangersMay)
			})
		}
	}
}

// TestAttackHeaders sends headers that never end, and checks that the server closes the connection.
func TestAttackHeaders(t *testing.T) {
	for name, first := range map[string]func(w *wire) error{
		"on a new connection": func(*wire) error { return nil },
		"among calls":         func(w *wire) error { return w.call(callPing, emptyMessage) },
		"among requests":      func(w *wire) error { return w.get("/healthz") },
	} {
		t.Run(name, func(t *testing.T) {
			p := attacked(t)
			rest := atRest(t, p)
			w := newWire(t, p.address, false)
			if err := first(w); err != nil {
				t.Fatal(err)
			}
			block := w.headers(":method", "POST", ":scheme", "http", ":authority",
				"holdfast.test", ":path", callPing, "content-type", "application/grpc")
			err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.stream, BlockFragment: block})
			// A field that is not in the HPACK table, with a value of 16,000 bytes.
			junk := append([]byte{0, 1, 'x', 0x7f, 0x80 | (16000-127)&0x7f, (16000 - 127) >> 7}, make([]byte, 16000)...)
			_ = w.SetWriteDeadline(time.Now().Add(procPatience))
			n := 0
			for ; err == nil && n < 10_000; n++ {
				err = w.WriteContinuation(w.stream, false, junk)
			}
			if err == nil || isTimeout(err) {
				t.Errorf("after %d frames: %v, want a closed connection", n, err)
			}
			staysWithin(t, p, rest, strangersMay)
		})
	}
}

func isTimeout(err error) bool {
	netErr := net.Error(nil)
	return errors.As(err, &netErr) && netErr.Timeout()
}

// TestAttackBombs sends small messages that decompress to a gigabyte. For every caller and on every path, the server
// must stop decompressing at the size limit of a message. Messages of unauthenticated callers are not decompressed at
// all.
func TestAttackBombs(t *testing.T) {
	p := attacked(t)
	rest := atRest(t, p)
	bomb, smaller := gzipBomb(t, 1<<30), gzipBomb(t, 40<<20)
	owner := http.Header{"Authorization": {"Bearer " + p.dev.Token}}
	const invalid, exhausted = "3", "8"
	for name, tt := range map[string]struct {
		mixed  bool
		method string
		header http.Header
		bomb   []byte
		want   string
	}{
		"by a stranger":        {false, callPing, http.Header{}, smaller, invalid},
		"by a stranger, mixed": {true, callPing, http.Header{}, smaller, invalid},
		"by the owner":         {false, callCreate, owner.Clone(), bomb, exhausted},
		"by the owner, mixed":  {true, callCreate, owner.Clone(), bomb, exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			cc := knock(t, p.address)
			if tt.mixed {
				askHealth(t, cc)
			}
			tt.header.Set("Grpc-Encoding", "gzip")
			if got := callRaw(t, cc, tt.method, tt.header, framed(1, tt.bomb)); got != tt.want {
				t.Errorf("grpc-status %q, want %q", got, tt.want)
			}
			tt.header.Del("Grpc-Encoding")
			if got := callRaw(t, cc, callPing, tt.header, framed(0, nil)); got != "0" {
				t.Errorf("an uncompressed message: grpc-status %q", got)
			}
		})
	}
	staysWithin(t, p, rest, strangersMay)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+p.address+faultGroups(p, http.MethodPost), bytes.NewReader(bomb))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Authorization": {"Bearer " + p.dev.Token}, "Content-Type": {"application/json"}, "Content-Encoding": {"gzip"},
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("as JSON: %s", resp.Status)
	}
}

// gzipBomb returns size zero bytes in compressed form. size must be a multiple of a megabyte. The function repeats
// one compressed megabyte, because that is fast.
func gzipBomb(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b.Bytes(), size>>20)
}

// framed returns a message with its gRPC prefix.
func framed(compressed byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{compressed}, uint32(len(message))), message...)
}

// callRaw makes a gRPC call and returns its status, or "" if the server closed the connection.
func callRaw(t *testing.T, cc *http2.ClientConn, method string, header http.Header, body []byte) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://holdfast.test"+method, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	resp, err := cc.RoundTrip(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the trailers come after the body
	return resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status")
}
