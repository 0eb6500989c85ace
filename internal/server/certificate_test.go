package server

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server/listen/listentest"
)

// TestPlaintextToTLS: a client that uses http instead of https gets an answer that says
// so.
func TestPlaintextToTLS(t *testing.T) {
	cert, key, _ := listentest.Files(t)
	s, err := New(t.Context(), Config{
		Listen: "127.0.0.1:0", DataDir: t.TempDir(), TLSCert: cert, TLSKey: key, Stdout: io.Discard,
		Stderr: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
	} else {
		body, _ := io.ReadAll(resp.Body) // the next line reports an incomplete body
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "https") {
			t.Errorf("answer = %d %s", resp.StatusCode, body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestCertificateMetric: a metric has the expiry time of the current certificate.
func TestCertificateMetric(t *testing.T) {
	addr, roots := serveTLS(t, Config{MetricsPublic: true})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(body), "\nholdfast_tls_certificate_expiry_timestamp_seconds ")
	value, _, _ := strings.Cut(rest, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	left := time.Until(time.Unix(int64(seconds), 0))
	if !ok || err != nil || left < 50*time.Minute || left > time.Hour {
		t.Errorf("it expires in %s: %v", left, err)
	}
}
