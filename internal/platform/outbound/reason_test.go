package outbound_test

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound/outboundtest"
)

// TestAttackReasons checks that the reasons for failures do not reveal our
// network: which names it resolves, which addresses they have, and which ports
// are open.
func TestAttackReasons(t *testing.T) {
	port := closedPort(t, "127.0.0.2")
	silent, cas := silentPort(t, "127.0.0.2")
	rude := rudePort(t, "127.0.0.2")
	const name = "https://example.com"
	told := map[string]string{}
	for what, tt := range map[string]struct {
		answer  []string // answer of the name server
		address string
	}{
		"a name that does not exist":         {nil, name + "/"},
		"a name of a private address":        {[]string{"10.0.0.1"}, name + "/"},
		"a name of the metadata service":     {[]string{"169.254.169.254"}, name + "/"},
		"a private address":                  {nil, "https://10.0.0.1/"},
		"this machine":                       {nil, "https://127.0.0.1/"},
		"an allowed host, a closed port":     {[]string{"127.0.0.2"}, name + ":" + port + "/"},
		"an allowed host, a silent port":     {[]string{"127.0.0.2"}, name + ":" + silent + "/"},
		"an allowed host, one that hangs up": {[]string{"127.0.0.2"}, name + ":" + rude + "/"},
	} {
		t.Run(what, func(t *testing.T) {
			outboundtest.NameServer(t, func() []string { return tt.answer })
			c := outbound.Client(outbound.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
				CAs: cas, Timeout: 300 * time.Millisecond})
			err := get(t, c, tt.address)
			if err == nil {
				t.Fatal("it was reached")
			}
			told[outbound.Reason(err)] = what
			for _, secret := range []string{"10.0", "169.254", "127.0", "example.com", port, silent} {
				if strings.Contains(outbound.Reason(err), secret) {
					t.Errorf("the reason tells %s: %s", secret, outbound.Reason(err))
				}
			}
		})
	}
	if len(told) != 1 {
		t.Errorf("what is told differs: %v", told)
	}
}

// TestReasons checks that the reasons say what to do, and reveal nothing about our network.
func TestReasons(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	cas := x509.NewCertPool()
	cas.AddCert(s.Certificate())
	allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL, "https://"))
	outboundtest.NameServer(t, func() []string { return []string{"127.0.0.1"} })
	for want, tt := range map[string]struct {
		cfg     outbound.Config
		address string
	}{
		"only https addresses are fetched": {outbound.Config{Allow: allow}, "http://127.0.0.1/"},
		"an authority that is not trusted": {outbound.Config{Allow: allow}, s.URL},
		"not valid for this host": {outbound.Config{Allow: allow, CAs: cas},
			"https://elsewhere.example:" + port},
	} {
		if err := get(t, outbound.Client(tt.cfg), tt.address); err == nil ||
			!strings.Contains(outbound.Reason(err), want) {
			t.Errorf("%v is told as %q, want %q", err, outbound.Reason(err), want)
		}
	}
	if err := get(t, outbound.Client(outbound.Config{Allow: allow, CAs: cas}),
		"https://example.com:"+port); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// closedPort returns a port on which nothing listens.
func closedPort(t *testing.T, host string) string {
	t.Helper()
	l := listen(t, host)
	defer l.Close()
	return portOf(l)
}

// silentPort returns a port that accepts requests for example.com and never answers, and
// the certificate authority for its certificate.
func silentPort(t *testing.T, host string) (string, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		<-r.Context().Done()
	}))
	s.Listener.Close()
	s.Listener = listen(t, host)
	s.StartTLS()
	t.Cleanup(s.Close)
	cas := x509.NewCertPool()
	cas.AddCert(s.Certificate())
	return portOf(s.Listener), cas
}

// rudePort returns a port that closes every connection immediately.
func rudePort(t *testing.T, host string) string {
	t.Helper()
	l := listen(t, host)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return portOf(l)
}

func listen(t *testing.T, host string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skipf("cannot listen on %s: %v", host, err)
	}
	return l
}

func portOf(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }
