package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestDrainDelay stops a server that has a shutdown_delay. Health checks must fail immediately, all other requests
// must succeed, and clients must be asked to reconnect.
func TestDrainDelay(t *testing.T) {
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_SHUTDOWN_DELAY=1h")
	conn, err := grpc.NewClient(p.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	drainHealth(t, watch, healthpb.HealthCheckResponse_SERVING)
	drainGet(t, p, drainClient(false), "/readyz", http.StatusOK)
	p.signal()
	drainHealth(t, watch, healthpb.HealthCheckResponse_NOT_SERVING)
	drainGet(t, p, drainClient(false), "/readyz", http.StatusServiceUnavailable)
	drainGet(t, p, drainClient(false), "/healthz", http.StatusOK)
	faultMake(t, p)
	for name, isHTTP2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		client := drainClient(isHTTP2)
		drainGet(t, p, client, "/healthz", http.StatusOK)
		// The GOAWAY frame, which asks the client to reconnect, may arrive after the answer.
		procUntil(t, "another connection over "+name, func() bool {
			return !drainGet(t, p, client, "/healthz", http.StatusOK)
		})
	}
	p.alive()
	p.signal()
	select {
	case <-p.ended:
	case <-time.After(procPatience):
		t.Fatal("the process did not end after a second signal")
	}
	p.killed = true
}

func drainHealth(
	t *testing.T, watch grpc.ServerStreamingClient[healthpb.HealthCheckResponse],
	want healthpb.HealthCheckResponse_ServingStatus,
) {
	t.Helper()
	if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
		t.Fatalf("health = %v, %v, want %v", got, err, want)
	}
}

// drainClient returns a client that reuses connections until the server closes them.
func drainClient(isHTTP2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!isHTTP2)
	protocols.SetUnencryptedHTTP2(isHTTP2)
	return &http.Client{Transport: &http.Transport{Protocols: &protocols}, Timeout: procPatience}
}

// drainGet fails the test unless a GET request returns the status. It reports whether the request reused a
// connection.
func drainGet(t *testing.T, p *proc, client *http.Client, path string, status int) (reused bool) {
	t.Helper()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != status {
		t.Fatalf("GET %s: %d (%v), want %d", path, resp.StatusCode, err, status)
	}
	return reused
}

// TestDrainEnds stops a server with a short shutdown_delay. The server must exit without an error, and not before the
// delay has passed.
func TestDrainEnds(t *testing.T) {
	const delay = time.Second
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_SHUTDOWN_DELAY="+delay.String())
	start := time.Now()
	p.stop()
	if took := time.Since(start); took < delay {
		t.Errorf("ended after %s, want %s", took, delay)
	}
}
