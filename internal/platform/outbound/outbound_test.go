package outbound_test

import (
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
)

// hits starts a server that counts the requests that reach it.
func hits(t *testing.T, h http.HandlerFunc) (address string, n *atomic.Int32) {
	n = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, n
}

func TestReach(t *testing.T) {
	private := func(cidr string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(cidr)} }
	tests := map[string]struct {
		cfg  outbound.Config
		host string // replaces the host of the server's address; the port stays
		err  error
	}{
		"this machine, in dev mode":         {outbound.Config{Loopback: true}, "", nil},
		"this machine by name, in dev mode": {outbound.Config{Loopback: true}, "localhost", nil},
		"this machine, otherwise":           {outbound.Config{}, "", outbound.ErrInsecure},
		"this machine without TLS, though allowed": {outbound.Config{Allow: private("127.0.0.0/8")}, "",
			outbound.ErrInsecure},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			address, n := hits(t, func(http.ResponseWriter, *http.Request) {})
			if tt.host != "" {
				_, port, _ := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
				address = "http://" + net.JoinHostPort(tt.host, port)
			}
			err := get(t, outbound.Client(tt.cfg), address)
			if !errors.Is(err, tt.err) {
				t.Errorf("error = %v, want %v", err, tt.err)
			}
			if reached := n.Load() == 1; reached != (tt.err == nil) {
				t.Errorf("the server was reached: %v", reached)
			}
		})
	}
}

// TestAddressesThatAreNotPublic checks that requests to these addresses are refused before anything
// is sent, so no server is needed there.
func TestAddressesThatAreNotPublic(t *testing.T) {
	hosts := []string{
		"127.0.0.1", "127.8.9.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
		"0.1.2.3",
		"192.0.0.8", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "[::1]", "[::]", "[::ffff:10.0.0.1]",
		"[::ffff:127.0.0.1]",
		"[fe80::1]", "[fc00::1]", "[ff02::1]", "[64:ff9b::a00:1]", "[2002:a00:1::]", "[::7f00:1]", "[2001::1]",
		"[fec0::1]", "localhost",
	}
	for _, host := range hosts {
		t.Run(host, func(t *testing.T) {
			err := get(t, outbound.Client(outbound.Config{Timeout: time.Minute}), "https://"+host+":1/")
			if !errors.Is(err, outbound.ErrForbidden) {
				t.Errorf("error = %v, want %v", err, outbound.ErrForbidden)
			}
		})
	}
}

func TestAllowedPrivateAddress(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	cas := x509.NewCertPool()
	cas.AddCert(s.Certificate())
	allowed := outbound.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, CAs: cas}
	if err := get(t, outbound.Client(allowed), s.URL); err != nil {
		t.Errorf("an address the operator allows: %v", err)
	}
	allowed.CAs = nil
	if err := get(t, outbound.Client(allowed), s.URL); err == nil ||
		!strings.Contains(outbound.Reason(err), "authority") {
		t.Errorf("a certificate of an unknown authority: %v, %q", err, outbound.Reason(err))
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	target, n := hits(t, func(http.ResponseWriter, *http.Request) {})
	from, _ := hits(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, from, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := outbound.Client(outbound.Config{Loopback: true}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusFound || n.Load() != 0 {
		t.Errorf("status %d, and the target was asked %d times", resp.StatusCode, n.Load())
	}
}

func TestRead(t *testing.T) {
	if b, err := outbound.Read(strings.NewReader("abc"), 3); err != nil || string(b) != "abc" {
		t.Errorf("three of three bytes: %q, %v", b, err)
	}
	if _, err := outbound.Read(strings.NewReader("abcd"), 3); !errors.Is(err, outbound.ErrTooLong) {
		t.Errorf("four of three bytes: %v", err)
	}
}

func get(t *testing.T, c *http.Client, address string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
