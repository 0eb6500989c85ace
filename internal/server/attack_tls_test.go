package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server/listen/listentest"

	"golang.org/x/net/http2"
)

// serveTLS runs a server over TLS until the test ends.
func serveTLS(t *testing.T, cfg Config) (addr string, roots *x509.CertPool) {
	t.Helper()
	var cert, key string
	cert, key, roots = listentest.Files(t)
	if cfg.TLSCert == "" {
		cfg.TLSCert, cfg.TLSKey = cert, key
	}
	return serveWith(t, cfg), roots
}

func serveWith(t *testing.T, cfg Config) (addr string) {
	t.Helper()
	cfg.Listen, cfg.DataDir, cfg.Stdout, cfg.Stderr = "127.0.0.1:0", t.TempDir(), io.Discard, io.Discard
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

// TestAttackTLS: versions older than TLS 1.2 are refused, and so are protocols
// other than HTTP.
func TestAttackTLS(t *testing.T) {
	addr, roots := serveTLS(t, Config{})
	for name, tt := range map[string]struct {
		version uint16
		ciphers []uint16
		speaks  []string
		want    string // protocol that the server chooses; "none" if it refuses the connection
	}{
		"TLS 1.0":               {tls.VersionTLS10, nil, nil, "none"},
		"TLS 1.1":               {tls.VersionTLS11, nil, nil, "none"},
		"TLS 1.2":               {tls.VersionTLS12, nil, []string{"h2", "http/1.1"}, "h2"},
		"TLS 1.3":               {tls.VersionTLS13, nil, []string{"http/1.1", "h2"}, "h2"},
		"a client of HTTP/1.1":  {tls.VersionTLS13, nil, []string{"http/1.1"}, "http/1.1"},
		"one that does not say": {tls.VersionTLS13, nil, nil, ""},
		"one that speaks SSH":   {tls.VersionTLS13, nil, []string{"ssh"}, "none"},
		"a cipher without forward secrecy": {
			// The server must refuse this cipher.
			tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}, nil, "none",
		},
		"RC4": {tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA}, nil, "none"}, //nolint:gosec // likewise
	} {
		t.Run(name, func(t *testing.T) {
			d := tls.Dialer{Config: &tls.Config{
				RootCAs: roots, NextProtos: tt.speaks, CipherSuites: tt.ciphers,
				MinVersion: tt.version, MaxVersion: tt.version, //nolint:gosec // it is to be refused
			}}
			conn, err := d.DialContext(t.Context(), "tcp", addr)
			got := "none"
			if err == nil {
				defer conn.Close()
				got = conn.(*tls.Conn).ConnectionState().NegotiatedProtocol
			}
			if got != tt.want {
				t.Errorf("speaks %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// TestAttackPlainToTLS: a client without TLS gets only the information that TLS is
// expected.
func TestAttackPlainToTLS(t *testing.T) {
	addr, _ := serveTLS(t, Config{})
	for name, tt := range map[string]struct{ send, want string }{
		"HTTP/1.1": {
			"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.0 400 Bad Request\r\n\r\nThis is an https address.\n",
		},
		"HTTP/2": {http2.ClientPreface, "HTTP/1.0 400 Bad Request\r\n\r\nThis is an https address.\n"},
		"noise":  {strings.Repeat("\x00", 100), ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, tt.send); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if string(got) != tt.want && !(tt.want == "" && len(got) < 20) { // a TLS alert has seven bytes
				t.Errorf("answer %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// TestAttackDowngrade: if the server itself provides TLS, every answer makes browsers use
// only https. Without TLS, behind a proxy that provides TLS, and in dev mode, it does not
// send the header.
func TestAttackDowngrade(t *testing.T) {
	get := func(t *testing.T, client *http.Client, url string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Header.Get("Strict-Transport-Security")
	}
	paths := []string{"/healthz", "/signin", "/setup", "/iam/v2beta1/groups", "/v2/", "/nowhere", "/openapi.json"}
	for name, tt := range map[string]struct {
		cfg  Config
		tls  bool
		want string
	}{
		"TLS of ours":   {Config{}, true, strictTransport},
		"a proxy's TLS": {Config{BaseURL: "https://holdfast.example.com"}, false, ""},
		"none":          {Config{}, false, ""},
		"dev mode":      {Config{Dev: true}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, trust := "http://", &tls.Config{}
			var addr string
			if tt.tls {
				scheme = "https://"
				addr, trust.RootCAs = serveTLS(t, tt.cfg)
			} else {
				addr = serveWith(t, tt.cfg)
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}
			defer client.CloseIdleConnections()
			for _, path := range paths {
				if got := get(t, client, scheme+addr+path); got != tt.want {
					t.Errorf("%s: %q, want %q", path, got, tt.want)
				}
			}
		})
	}
}

// TestAttackCertificateUnderTraffic replaces the certificate file and then the key file
// while clients connect. Every connection gets a certificate with its matching key, and
// connections after the renewal get the new certificate.
func TestAttackCertificateUnderTraffic(t *testing.T) {
	cert, key, roots := listentest.Files(t)
	addr, _ := serveTLS(t, Config{TLSCert: cert, TLSKey: key})
	renewed := listentest.NewPair(t)
	leaf, err := x509.ParseCertificate(renewed.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	var served atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	connect := func() (isNew bool) {
		d := tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}}
		conn, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Error(err)
			return false
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Error(err)
			return false
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("answer %v, %v", resp, err)
			return false
		}
		resp.Body.Close()
		served.Add(1)
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Equal(leaf)
	}
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					connect()
				}
			}
		})
	}
	until := func(n int64) {
		for served.Load() < n && !t.Failed() {
			connect()
		}
	}
	until(20)
	listentest.WritePair(t, cert, key, renewed) // first the certificate, then the key
	until(served.Load() + 20)
	close(stop)
	wg.Wait()
	if !connect() {
		t.Error("the old certificate is still in use")
	}
}
