package outbound_test

import (
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound/outboundtest"
)

// counting starts a server that counts its requests.
func counting(t *testing.T, address string) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	n := new(atomic.Int32)
	return outboundtest.Serve(t, address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n.Add(1) })), n
}

// TestRebinding uses a name that first resolves to an allowed address, and then to a
// forbidden one. It checks that the client checks the address to which it connects.
func TestRebinding(t *testing.T) {
	allowed, good := counting(t, "127.0.0.2:0")
	port := allowed.Listener.Addr().(*net.TCPAddr).Port
	_, private := counting(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	cas := x509.NewCertPool()
	cas.AddCert(allowed.Certificate())
	address := "https://example.com:" + strconv.Itoa(port) + "/"
	tests := map[string]struct {
		answers [][]string // answers of the name server, one for each request
		errs    []error
	}{
		"one that stays": {[][]string{{"127.0.0.2"}, {"127.0.0.2"}}, []error{nil, nil}},
		"one that moves": {[][]string{{"127.0.0.2"}, {"127.0.0.1"}},
			[]error{nil, outbound.ErrForbidden}},
		"one that moves to and fro": {[][]string{{"127.0.0.1"}, {"127.0.0.2"}},
			[]error{outbound.ErrForbidden, nil}},
		"one of two, the other first":  {[][]string{{"127.0.0.1", "127.0.0.2"}}, []error{nil}},
		"one that is the metadata's":   {[][]string{{"169.254.169.254"}}, []error{outbound.ErrForbidden}},
		"one of this network":          {[][]string{{"10.0.0.1", "192.168.0.1"}}, []error{outbound.ErrForbidden}},
		"one of nothing in particular": {[][]string{{"0.0.0.0"}}, []error{outbound.ErrForbidden}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var request atomic.Int32
			outboundtest.NameServer(t, func() []string { return tt.answers[request.Load()] })
			c := outbound.Client(outbound.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
				CAs: cas})
			before := good.Load()
			want := int32(0)
			for i, expected := range tt.errs {
				request.Store(int32(i))
				if err := get(t, c, address); !errors.Is(err, expected) {
					t.Errorf("request %d: %v, want %v", i+1, err, expected)
				}
				if expected == nil {
					want++
				}
				c.CloseIdleConnections() // otherwise the client would not resolve the name again
			}
			if n := good.Load() - before; n != want {
				t.Errorf("%d requests arrived, want %d", n, want)
			}
		})
	}
	if n := private.Load(); n != 0 {
		t.Errorf("%d requests arrived where none may", n)
	}
}
