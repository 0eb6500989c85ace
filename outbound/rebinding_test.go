package outbound_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast/outbound"
)

// nameServer answers questions for IPv4 addresses with what answer says, and is
// asked by this process until the test ends.
func nameServer(t *testing.T, answer func() []string) {
	t.Helper()
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
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
			_, _ = pc.WriteTo(dnsReply(b[:n], answer), from)
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "udp", pc.LocalAddr().String())
		}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = pc.Close() // nobody asks any more
	})
}

// dnsReply answers a query of one question.
func dnsReply(query []byte, answer func() []string) []byte {
	end := 12
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5
	isA := query[end-3] == 1
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if !isA {
		return out
	}
	for _, address := range answer() {
		ip := netip.MustParseAddr(address).As4()
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, ip[:]...)
		out[7]++
	}
	return out
}

// secureAt starts a server of example.com, over TLS, that counts who comes.
func secureAt(t *testing.T, address string) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", address, err)
	}
	n := new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n.Add(1) }))
	s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, n
}

// TestRebinding has a name that leads to an address that is allowed, and then to
// one that is not: what is checked is what is dialled.
func TestRebinding(t *testing.T) {
	allowed, good := secureAt(t, "127.0.0.2:0")
	port := allowed.Listener.Addr().(*net.TCPAddr).Port
	_, private := secureAt(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	cas := x509.NewCertPool()
	cas.AddCert(allowed.Certificate())
	address := "https://example.com:" + strconv.Itoa(port) + "/"
	tests := map[string]struct {
		answers [][]string // to one request after the other
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
			var turn atomic.Int32
			nameServer(t, func() []string { return tt.answers[turn.Load()] })
			c := outbound.Client(outbound.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
				CAs: cas})
			before := good.Load()
			want := int32(0)
			for i, expected := range tt.errs {
				turn.Store(int32(i))
				if err := get(t, c, address); !errors.Is(err, expected) {
					t.Errorf("request %d: %v, want %v", i+1, err, expected)
				}
				if expected == nil {
					want++
				}
				c.CloseIdleConnections() // or there would be no second question
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
