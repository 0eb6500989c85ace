package e2e_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestProfiles checks that the control socket serves profiles, and that no TCP port does.
func TestProfiles(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{MetricsListen: "127.0.0.1:0"}, nil)
	path := filepath.Join(w.config.DataDir, "control.sock")
	procUntil(t, "there is a control socket", func() bool { _, err := os.Stat(path); return err == nil })
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for _, path := range []string{"/debug/pprof/heap", "/debug/pprof/goroutine", "/debug/pprof/profile?seconds=1"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://holdfastd"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := socket.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || len(body) == 0 {
			t.Errorf("%s over the socket: %d, %d bytes, %v", path, resp.StatusCode, len(body), err)
		}
		if got := w.send(t, w.Token, http.MethodGet, path, ""); got.status != http.StatusNotFound {
			t.Errorf("%s over the port: %d", path, got.status)
		}
	}
}
