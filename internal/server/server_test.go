package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/server"
)

// A buffer is a bytes.Buffer that is safe for concurrent use, because a server writes to
// it while a test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A clock returns the current time, plus the duration by which it was advanced.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(d time.Duration) { c.ahead.Add(int64(d)) }

// A running is a running server. It stops when the test ends or stop is called.
type running struct {
	*server.Server
	url            string
	stdout, stderr *buffer
	cancel         context.CancelFunc
	done           chan error
}

// start runs a server on a free port. Unless cfg names a data folder, it uses a new one.
func start(t *testing.T, cfg server.Config) *running {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	r := &running{stdout: &buffer{}, stderr: &buffer{}, done: make(chan error, 1)}
	cfg.Stdout, cfg.Stderr = r.stdout, r.stderr
	srv, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Server, r.url = srv, "http://"+srv.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() { r.done <- srv.Run(ctx) }()
	t.Cleanup(func() { r.stop(t) })
	return r
}

// stop ends the server and fails the test if it returns an error.
func (r *running) stop(t *testing.T) {
	t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}

// TestNothingRunsOn: a server that has stopped leaves no goroutines behind.
func TestNothingRunsOn(t *testing.T) {
	start(t, server.Config{}).stop(t) // starts goroutines that all servers of the process share, and that do not stop
	before := runtime.NumGoroutine()
	for range 3 {
		start(t, server.Config{}).stop(t)
	}
	deadline := time.Now().Add(90 * time.Second)
	for runtime.NumGoroutine() > before+10 { // some goroutines end a little later; three servers would leave hundreds
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines more than before", runtime.NumGoroutine()-before)
		}
		runtime.Gosched()
	}
}

// send sends a request. headers are pairs of a name and a value.
func (r *running) send(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestRoutes(t *testing.T) {
	r := start(t, server.Config{})
	tests := map[string]struct {
		path   string
		status int
		says   string
	}{
		"alive":          {"/healthz", 200, `"ok"`},
		"ready":          {"/readyz", 200, `"ready"`},
		"no metrics":     {"/metrics", 404, `"code":5`},
		"discovery":      {"/.well-known/openid-configuration", 200, r.url},
		"keys":           {"/.well-known/jwks.json", 200, `"ES256"`},
		"the API":        {"/iam/v2beta1/groups", 401, `"code":16`},
		"its definition": {"/openapi.json", 200, `"openapi"`},
		"set-up":         {"/setup", 200, "<form"},
		"no test issuer": {"/dev/issuer/jwks", 404, `"code":5`},
		"anything else":  {"/nothing", 404, `"code":5`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp, body := r.send(t, http.MethodGet, tt.path, "")
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.says) {
				t.Errorf("GET %s = %d %.200s, want %d and %q", tt.path, resp.StatusCode, body, tt.status, tt.says)
			}
		})
	}
}

// TestPagesForPeople: browsers get HTML pages. Programs get the same answers as without
// the pages.
func TestPagesForPeople(t *testing.T) {
	r := start(t, server.Config{})
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	tests := map[string]struct {
		path, accept string
		status       int
		kind, says   string
	}{
		"the root":              {"/", browser, 200, "text/html", "not set up yet"},
		"nothing":               {"/nothing/here", browser, 404, "text/html", "There is nothing here"},
		"nothing below sign-in": {"/signin/nothing", browser, 404, "text/html", "There is nothing here"},
		"the icon":              {"/favicon.ico", "image/avif,*/*", 200, "image/svg+xml", "<svg"},
		"a program at the root": {"/", "*/*", 404, "application/json", `"code":5`},
		"a program's mistake":   {"/nothing", "application/json", 404, "application/json", `"code":5`},
		"the API":               {"/iam/v2beta1/groups", browser, 401, "application/json", `"code":16`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			resp, body := r.send(t, http.MethodGet, tt.path, "", "Accept", tt.accept)
			if resp.StatusCode != tt.status || !strings.HasPrefix(resp.Header.Get("Content-Type"), tt.kind) ||
				!strings.Contains(body, tt.says) {
				t.Errorf("GET %s = %d %s %.300s", tt.path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
			}
			if tt.kind == "text/html" && resp.Header.Get("Content-Security-Policy") == "" {
				t.Error("a page has no policy")
			}
		})
	}
	if resp, body := r.send(t, http.MethodGet, "/nothing", "", "Accept", browser, "Authorization",
		"Bearer x"); strings.Contains(body, "<html") {
		t.Errorf("a program with a token gets a page: %d", resp.StatusCode)
	}
}

func TestMetricsOnAPortOfTheirOwn(t *testing.T) {
	r := start(t, server.Config{MetricsListen: "127.0.0.1:0"})
	if resp, _ := r.send(t, http.MethodGet, "/metrics", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the main port answers %d", resp.StatusCode)
	}
	var address string
	for line := range strings.Lines(r.stderr.String()) {
		if strings.Contains(line, "serving metrics") {
			address = decode[struct{ Address string }](t, line).Address
		}
	}
	r.url = "http://" + address
	if resp, body := r.send(t, http.MethodGet, "/metrics", ""); resp.StatusCode != 200 ||
		!strings.Contains(body, "process_cpu_seconds_total") {
		t.Errorf("GET /metrics = %d %.100s", resp.StatusCode, body)
	}
}

func TestGRPC(t *testing.T) {
	r := start(t, server.Config{})
	conn, err := grpc.NewClient(r.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := pingpb.NewPingServiceClient(conn).Ping(t.Context(), &pingpb.PingRequest{}); err != nil {
		t.Error(err)
	}
}

// TestGRPCOnAConnectionOfHTTP: a proxy can send gRPC calls over a connection that began
// with other requests.
func TestGRPCOnAConnectionOfHTTP(t *testing.T) {
	r := start(t, server.Config{})
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	defer client.CloseIdleConnections()
	message, err := proto.Marshal(&pingpb.PingRequest{})
	if err != nil {
		t.Fatal(err)
	}
	frame := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	for _, call := range []struct{ method, path, kind string }{
		{http.MethodGet, "/healthz", ""},
		{http.MethodPost, pingpb.PingService_Ping_FullMethodName, "application/grpc+proto"},
	} {
		var info httptrace.GotConnInfo
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			info = i
		}})
		req, err := http.NewRequestWithContext(ctx, call.method, r.url+call.path, bytes.NewReader(frame))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", call.kind)
		req.Header.Set("TE", "trailers")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		isGRPC := call.kind != ""
		if isGRPC && (!info.Reused || resp.Trailer.Get("Grpc-Status") != "0") {
			t.Errorf("%s: same connection %t, trailer %v", call.path, info.Reused, resp.Trailer)
		}
	}
}

func TestShutdownLetsARequestEnd(t *testing.T) {
	r := start(t, server.Config{})
	body, feed := io.Pipe()
	reading := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/setup", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	status := make(chan int, 1)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-reading // the handler waits for the rest of the body
	r.cancel()
	for { // connects until the listener is closed
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Addr().String())
		if err != nil {
			break
		}
		conn.Close()
	}
	if _, err := io.WriteString(feed, `{"code": "wrong"}`); err != nil {
		t.Fatal(err)
	}
	_ = feed.Close()
	if got := <-status; got != http.StatusForbidden {
		t.Errorf("the request in flight ended with status %d", got)
	}
	r.stop(t)
}

// TestShutdownEndsWatches: watching the health of a server does not keep it from
// stopping.
func TestShutdownEndsWatches(t *testing.T) {
	r := start(t, server.Config{ShutdownGrace: time.Hour})
	conn, err := grpc.NewClient(r.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || first.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health = %v, %v", first, err)
	}
	r.stop(t)
	last, err := stream.Recv()
	// The server had time to send its last state.
	if err == nil && last.Status == healthpb.HealthCheckResponse_NOT_SERVING {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("watching ended with %v", err)
	}
	if strings.Contains(r.stderr.String(), "ERROR") {
		t.Errorf("log = %s, want no error", r.stderr)
	}
}

func TestShutdownEndsWithTheGrace(t *testing.T) {
	r := start(t, server.Config{ShutdownGrace: time.Millisecond})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn,
		"POST /setup HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: "+
			"10\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100"))); err != nil {
		t.Fatal(err)
	}
	r.stop(t)
	if !strings.Contains(r.stderr.String(), "aborted requests") {
		t.Error("the log does not say that requests were aborted")
	}
}

func TestEncryptionKeyFile(t *testing.T) {
	dir := t.TempDir()
	r := start(t, server.Config{DataDir: dir, Dev: true})
	path := filepath.Join(dir, "holdfast.key")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key file: %v, %v", info, err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.stop(t)
	again := start(t, server.Config{DataDir: dir, Dev: true})
	second, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("a restart made another key: %v", err)
	}
	again.stop(t)
	_, err = server.New(
		t.Context(),
		server.Config{DataDir: dir, Listen: "127.0.0.1:0", EncryptionKey: secret.NewKey().Text(), Stderr: io.Discard},
	)
	if err == nil || !strings.Contains(err.Error(), "another encryption key") {
		t.Errorf("with another key, error = %v", err)
	}
}

func TestNewReportsMistakes(t *testing.T) {
	_, err := server.New(t.Context(), server.Config{Listen: "nowhere", CreateOrganizations: "all"})
	if err == nil || !strings.Contains(err.Error(), "listen:") ||
		!strings.Contains(err.Error(), "create_organizations:") {
		t.Errorf("error = %v", err)
	}
}

func TestNewReleasesTheAddress(t *testing.T) {
	r := start(t, server.Config{})
	cfg := server.Config{Listen: r.Addr().String(), DataDir: t.TempDir(), Stderr: io.Discard}
	if _, err := server.New(t.Context(), cfg); err == nil {
		t.Fatal("two servers share an address")
	}
	r.stop(t)
	cfg.Database = t.TempDir() // a folder cannot be opened as a database
	if _, err := server.New(t.Context(), cfg); err == nil {
		t.Fatal("a folder was opened as a database")
	}
	cfg.Database = ""
	srv, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}
