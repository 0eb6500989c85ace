package issuers_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound/outboundtest"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

// TestAttackRebinding: if the name of an issuer resolves to an allowed address for the discovery document and to a
// forbidden address for the keys, or the other way around, then the issuer is unreachable, even if both addresses have
// the same certificate. The forbidden address gets no request.
func TestAttackRebinding(t *testing.T) {
	k := newKey(t, "one")
	public, private := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
	var reached [2]atomic.Int32
	var at atomic.Int32 // index of the address to which the name resolves
	var port int
	handler := func(n int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached[n].Add(1)
			w.Header().Set("Connection", "close") // otherwise the client would not resolve the name again
			if r.URL.Path == "/keys" {
				_, _ = w.Write(keySet(k))
				return
			}
			at.Add(1)
			fmt.Fprintf(w, `{"issuer":"https://example.com:%d","jwks_uri":"https://example.com:%d/keys"}`, port, port)
		})
	}
	first := outboundtest.Serve(t, net.JoinHostPort(public.String(), "0"), handler(0))
	port = first.Listener.Addr().(*net.TCPAddr).Port
	outboundtest.Serve(t, net.JoinHostPort(private.String(), strconv.Itoa(port)), handler(1))
	cas := x509.NewCertPool()
	cas.AddCert(first.Certificate())
	for name, tt := range map[string]struct {
		leads []netip.Addr // addresses of the name, first for the discovery document and then for the keys
		ok    bool
	}{
		"one that stays":     {[]netip.Addr{public, public}, true},
		"one that moves":     {[]netip.Addr{public, private}, false},
		"one that moves out": {[]netip.Addr{private, public}, false},
	} {
		t.Run(name, func(t *testing.T) {
			at.Store(0)
			outboundtest.NameServer(t, func() []string { return []string{tt.leads[min(int(at.Load()), 1)].String()} })
			client := outbound.Client(outbound.Config{Allow: []netip.Prefix{netip.PrefixFrom(public, 32)}, CAs: cas})
			trusted, err := issuers.New(issuers.Config{Client: client})
			if err != nil {
				t.Fatal(err)
			}
			err = trusted.Verify(t.Context(), named, k.token(t, good(fmt.Sprintf("https://example.com:%d", port))))
			var away *issuers.Unreachable
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
