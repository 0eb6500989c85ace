package trust_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/outbound"
	"github.com/holdfast-dev/holdfast/trust"
)

// resolving has this process ask a name server whose answer is what address says,
// until the test ends.
func resolving(t *testing.T, address func() netip.Addr) {
	t.Helper()
	pc, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(addressReply(b[:n], address), from)
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = pc.Close() // nobody asks any more
	})
}

// addressReply answers a query of one question, if it is for an IPv4 address.
func addressReply(query []byte, address func() netip.Addr) []byte {
	end := 12
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if query[end-3] == 1 {
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, address().AsSlice()...)
	}
	return out
}

// TestAttackRebinding has an issuer whose name leads to a public address when its
// discovery document is fetched, and to another, with the same certificate, when
// its keys are.
func TestAttackRebinding(t *testing.T) {
	k := newKey(t, "one")
	public, private := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
	var reached [2]atomic.Int32
	var at atomic.Int32 // which address the name leads to
	var port int
	handler := func(n int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached[n].Add(1)
			w.Header().Set("Connection", "close") // or there would be no second question
			if r.URL.Path == "/keys" {
				_, _ = w.Write(keySet(k))
				return
			}
			at.Add(1)
			fmt.Fprintf(w, `{"issuer":"https://example.com:%d","jwks_uri":"https://example.com:%d/keys"}`, port, port)
		})
	}
	first := serveAt(t, net.JoinHostPort(public.String(), "0"), handler(0))
	port = first.Listener.Addr().(*net.TCPAddr).Port
	serveAt(t, net.JoinHostPort(private.String(), strconv.Itoa(port)), handler(1))
	cas := x509.NewCertPool()
	cas.AddCert(first.Certificate())
	for name, tt := range map[string]struct {
		leads []netip.Addr // for the discovery document, and for the keys
		ok    bool
	}{
		"one that stays":     {[]netip.Addr{public, public}, true},
		"one that moves":     {[]netip.Addr{public, private}, false},
		"one that moves out": {[]netip.Addr{private, public}, false},
	} {
		t.Run(name, func(t *testing.T) {
			at.Store(0)
			resolving(t, func() netip.Addr { return tt.leads[min(int(at.Load()), 1)] })
			client := outbound.Client(outbound.Config{Allow: []netip.Prefix{netip.PrefixFrom(public, 32)}, CAs: cas})
			trusted, err := trust.New(trust.Config{Client: client})
			if err != nil {
				t.Fatal(err)
			}
			err = trusted.Verify(t.Context(), named, k.token(t, good(fmt.Sprintf("https://example.com:%d", port))))
			var away *trust.Unreachable
			if (err == nil) != tt.ok || err != nil && !errors.As(err, &away) {
				t.Errorf("error = %v, want one: %v", err, !tt.ok)
			}
			if away != nil && strings.Contains(away.Reason(), "127.") {
				t.Errorf("the reason tells an address: %s", away.Reason())
			}
		})
	}
	if n := reached[1].Load(); n != 0 {
		t.Errorf("%d requests arrived where none may", n)
	}
}

// serveAt starts a server of example.com, over TLS.
func serveAt(t *testing.T, address string, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", address, err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}
