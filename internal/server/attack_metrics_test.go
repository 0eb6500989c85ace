package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
)

// TestAttackMetrics: a stranger at the main port reads no metrics. The counters of
// caches would reveal whether a private repo exists.
func TestAttackMetrics(t *testing.T) {
	for name, cfg := range map[string]server.Config{
		"default settings": {}, "a port of their own": {MetricsListen: "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, cfg)
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				resp, body := r.send(t, method, "/metrics", "")
				if resp.StatusCode != http.StatusNotFound || strings.Contains(body, "holdfast_") {
					t.Errorf("%s /metrics = %d %.100s", method, resp.StatusCode, body)
				}
			}
		})
	}
}

// TestMetricsOnTheMainPort: an operator can serve the metrics to everybody. Dev mode
// serves them, because it listens only on this machine and gives an owner's token to
// everybody there.
func TestMetricsOnTheMainPort(t *testing.T) {
	for name, cfg := range map[string]server.Config{
		"by a setting": {MetricsPublic: true}, "in dev mode": {Dev: true},
		"on both ports": {MetricsPublic: true, MetricsListen: "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, cfg)
			resp, body := r.send(t, http.MethodGet, "/metrics", "")
			if resp.StatusCode != http.StatusOK || !strings.Contains(body, "go_goroutines") {
				t.Errorf("GET /metrics = %d %.100s", resp.StatusCode, body)
			}
			resp, _ = r.send(t, http.MethodPost, "/metrics", "")
			if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("POST /metrics = %d %v", resp.StatusCode, resp.Header)
			}
		})
	}
}
