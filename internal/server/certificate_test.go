package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// newPair creates a self-signed certificate for loopback addresses.
func newPair(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func writePair(t *testing.T, certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		keyFile:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// certFiles writes a certificate for loopback addresses, and returns a pool
// that trusts it.
func certFiles(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	dir, pair := t.TempDir(), newPair(t)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePair(t, cert, key, pair)
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(leaf)
	return cert, key, roots
}

func TestCertificateIsReadAgain(t *testing.T) {
	cert, key, _ := certFiles(t)
	c := &certificate{certFile: cert, keyFile: key, log: slog.New(slog.DiscardHandler)}
	first, err := c.get(nil)
	if err != nil || first == nil {
		t.Fatalf("certificate = %v, %v", first, err)
	}
	if err := os.WriteFile(cert, []byte("half a renewal"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _ := c.get(nil); again != first {
		t.Error("a certificate that cannot be read replaced the old one")
	}
	writePair(t, cert, key, newPair(t))
	renewed, err := c.get(nil)
	if err != nil || bytes.Equal(renewed.Certificate[0], first.Certificate[0]) {
		t.Errorf("the renewed certificate is not used: %v", err)
	}
}

// A client that uses http instead of https is told so.
func TestPlaintextToTLS(t *testing.T) {
	cert, key, _ := certFiles(t)
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
		body, _ := io.ReadAll(resp.Body) // of what is missing, the next line tells
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "https") {
			t.Errorf("answer = %d %s", resp.StatusCode, body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestCertificateMetric: the expiry of the certificate that is in use is a metric.
func TestCertificateMetric(t *testing.T) {
	addr, roots := serveTLS(t, Config{})
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
