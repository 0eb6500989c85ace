package listen

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server/listen/listentest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// serveSplit runs two servers behind one splitter: a gRPC server with a health service,
// and an HTTP server that answers with the protocol of the request.
func serveSplit(t *testing.T, wrap func(net.Listener) net.Listener, timeout time.Duration) net.Addr {
	t.Helper()
	root := listenLoopback(t)
	split := NewSplitter(wrap(root), nil)
	split.timeout = timeout
	grpcServer := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(grpcServer, health.NewServer())
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	httpServer := &http.Server{Protocols: &protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.Proto)) },
	)}
	done := make(chan error, 3)
	go func() { done <- split.Serve() }()
	go func() { done <- unlessClosed(grpcServer.Serve(split.First.GRPC)) }()
	go func() { done <- unlessClosed(httpServer.Serve(split.First.HTTP)) }()
	t.Cleanup(func() {
		split.Close()
		grpcServer.Stop()
		httpServer.Close()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return root.Addr()
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func plaintext(l net.Listener) net.Listener { return l }

func TestSplitterProtocols(t *testing.T) {
	cert, key, roots := listentest.Files(t)
	encrypted := func(l net.Listener) net.Listener {
		wrapped, _, err := WithTLS(l, cert, key, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return wrapped
	}
	trust := &tls.Config{RootCAs: roots}
	var http1, h2c, h2 http.Protocols
	http1.SetHTTP1(true)
	h2c.SetUnencryptedHTTP2(true)
	h2.SetHTTP2(true)
	tests := map[string]struct {
		wrap      func(net.Listener) net.Listener
		scheme    string
		protocols map[string]*http.Protocols
		creds     credentials.TransportCredentials
	}{
		"plaintext": {
			plaintext, "http://", map[string]*http.Protocols{"HTTP/1.1": &http1, "HTTP/2.0": &h2c}, insecure.NewCredentials(),
		},
		"TLS": {
			encrypted, "https://", map[string]*http.Protocols{"HTTP/1.1": &http1, "HTTP/2.0": &h2}, credentials.NewTLS(trust),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			addr := serveSplit(t, tt.wrap, sniffTimeout).String()
			for want, protocols := range tt.protocols {
				client := &http.Client{
					Transport: &http.Transport{Protocols: protocols, TLSClientConfig: trust.Clone()},
				}
				for i := range 20 {
					body, reused := get(t, client, tt.scheme+addr)
					if body != want || reused != (i > 0) {
						t.Fatalf(
							"request %d came as %s on a connection used before: %t; want %s on one connection", i,
							body, reused, want,
						)
					}
				}
				client.CloseIdleConnections()
			}
			checkHealth(t, addr, tt.creds)
		})
	}
}

func get(t *testing.T, client *http.Client, url string) (body string, reused bool) {
	t.Helper()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), reused
}

func checkHealth(t *testing.T, addr string, creds credentials.TransportCredentials) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		resp, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatalf("health = %v, %v", resp, err)
		}
	}
}

// TestSplitterKeepsItsAcknowledgement: the client's acknowledgement of the splitter's
// SETTINGS may arrive before or after the first request. It must not reach net/http,
// which would close the connection.
func TestSplitterKeepsItsAcknowledgement(t *testing.T) {
	tests := map[string]func(f *http2.Framer) error{
		"before the first request": func(f *http2.Framer) error { return errors.Join(f.WriteSettingsAck(), writeGet(f)) },
		"after the first request":  func(f *http2.Framer) error { return errors.Join(writeGet(f), f.WriteSettingsAck()) },
	}
	for name, open := range tests {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, serveSplit(t, plaintext, sniffTimeout))
			write(t, conn, http2.ClientPreface)
			framer := http2.NewFramer(conn, conn)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			if f := next(t, framer); f.Header().Type != http2.FrameSettings { // the SETTINGS of the splitter
				t.Fatalf("the server opens with %v", f)
			}
			if err := open(framer); err != nil {
				t.Fatal(err)
			}
			for { // reads the server's own SETTINGS and its answer
				f := next(t, framer)
				if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
					if err := errors.Join(framer.WriteSettingsAck(), framer.WritePing(false, [8]byte{7})); err != nil {
						t.Fatal(err)
					}
				}
				if p, ok := f.(*http2.PingFrame); ok && p.IsAck() {
					return
				}
				if _, ok := f.(*http2.GoAwayFrame); ok {
					t.Fatalf("the server hangs up: %v", f)
				}
			}
		})
	}
}

// TestSplitterSaysWhyItRefuses: an HTTP/2 client whose address has too many connections gets the reason in a GOAWAY
// frame, and the log has one line about all of them.
func TestSplitterSaysWhyItRefuses(t *testing.T) {
	var log bytes.Buffer
	limited := func(l net.Listener) net.Listener {
		return Limit(l, 4, nil, slog.New(slog.NewTextHandler(&log, nil)))
	}
	t.Cleanup(func() { // runs after the splitter is closed, because the cleanup of serveSplit was registered later
		if n := strings.Count(log.String(), "max_connections_per_address"); n != 1 {
			t.Errorf("the log has %d lines:\n%s", n, &log)
		}
	})
	addr := serveSplit(t, limited, sniffTimeout)
	open := func() *http2.Framer {
		conn := dial(t, addr)
		write(t, conn, http2.ClientPreface)
		framer := http2.NewFramer(conn, conn)
		if err := errors.Join(framer.WriteSettings(), writeGet(framer)); err != nil {
			t.Fatal(err)
		}
		return framer
	}
	for range 2 {
		admitted := open()
		for answered := false; !answered; {
			_, answered = next(t, admitted).(*http2.HeadersFrame)
		}
	}
	for range 2 {
		refused := open()
		var goAway *http2.GoAwayFrame
		for goAway == nil {
			goAway, _ = next(t, refused).(*http2.GoAwayFrame)
		}
		if goAway.ErrCode != http2.ErrCodeEnhanceYourCalm || !strings.Contains(string(goAway.DebugData()), "too many") {
			t.Errorf("GOAWAY: %v, %q", goAway, goAway.DebugData())
		}
		if f, err := refused.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("after GOAWAY: %v, %v, want the end", f, err)
		}
	}
}

func writeGet(f *http2.Framer) error {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: "/"},
	} {
		if err := enc.WriteField(h); err != nil {
			return err
		}
	}
	return f.WriteHeaders(
		http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true},
	)
}

func next(t *testing.T, framer *http2.Framer) http2.Frame {
	t.Helper()
	f, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func dial(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

func TestSplitterReadsWhatComesByTheByte(t *testing.T) {
	conn := dial(t, serveSplit(t, plaintext, sniffTimeout))
	// The request begins with P, like the HTTP/2 preface.
	for _, b := range []byte("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") {
		write(t, conn, string(b))
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
		t.Errorf("answer = %q, %v", answer, err)
	}
}

func TestSplitterDropsWhoeverSaysNothing(t *testing.T) {
	tests := map[string]string{
		"at all":             "",
		"but half a preface": http2.ClientPreface[:10],
		"after the preface":  http2.ClientPreface,
	}
	for name, opening := range tests {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, serveSplit(t, plaintext, 20*time.Millisecond))
			write(t, conn, opening)
			if _, err := io.Copy(io.Discard, conn); err != nil && !isReset(err) {
				t.Error(err)
			}
		})
	}
}

func TestSplitterCloses(t *testing.T) {
	root := listenLoopback(t)
	split := NewSplitter(root, nil)
	done := make(chan error, 1)
	go func() { done <- split.Serve() }()
	conn := dial(t, root.Addr())
	write(t, conn, http2.ClientPreface)
	// The splitter has begun to detect the protocol.
	if f := next(t, http2.NewFramer(conn, conn)); f.Header().Type != http2.FrameSettings {
		t.Fatalf("the server opens with %v", f)
	}
	split.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !isReset(err) {
		t.Error(err)
	}
}

// TestSplitterClosesWhileAClientConnects is for the race detector. A connection is either
// tracked before Close waits for it, or not accepted.
func TestSplitterClosesWhileAClientConnects(t *testing.T) {
	for range 200 {
		root := listenLoopback(t)
		split := NewSplitter(root, nil)
		done := make(chan error, 1)
		dial(t, root.Addr())
		go func() { done <- split.Serve() }()
		for held := 0; held == 0; {
			split.mu.Lock()
			held = len(split.undecided)
			split.mu.Unlock()
		}
		split.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestSniffedConnectionHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		defer client.Close()
		go func() { _, _ = io.WriteString(client, "GET") }()
		sniffed, _, err := sniff(conn, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // passes immediately, because synctest has a fake clock
		go func() { _, _ = io.WriteString(client, " /") }()
		got := make([]byte, 5)
		if _, err := io.ReadFull(sniffed, got); err != nil || string(got) != "GET /" {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// TestSplitterLimitsTheOpening: a client that never sends its first request is
// disconnected.
func TestSplitterLimitsTheOpening(t *testing.T) {
	conn := dial(t, serveSplit(t, plaintext, time.Hour))
	write(t, conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for range sniffLimit / 17 {
		if err := framer.WritePing(false, [8]byte{}); err != nil {
			break
		}
	}
	for {
		f, err := framer.ReadFrame()
		if _, ok := f.(*http2.PingFrame); ok || err != nil {
			return // the splitter has delivered the connection to the HTTP server
		}
	}
}

func isReset(err error) bool {
	var netErr *net.OpError
	return errors.As(err, &netErr) && !netErr.Timeout()
}

func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
