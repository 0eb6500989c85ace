// Package outbound makes the HTTP client for addresses that others have chosen:
// issuers, feeds, webhooks. It reaches the public internet and what the operator
// allows, whatever a name resolves to, and never goes where a redirect points.
package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"
)

// Config is how far a client may reach. The zero value reaches public addresses
// over https.
type Config struct {
	Loopback bool           // this machine too, and there without TLS: for dev mode
	Allow    []netip.Prefix // private addresses the operator vouches for
	CAs      *x509.CertPool // trusted beside nothing else; nil is the system's
	Timeout  time.Duration  // of a whole request with its answer; 0 is 10 seconds
}

const (
	defaultTimeout = 10 * time.Second
	maxHeader      = 64 << 10
	maxPerHost     = 8
)

// ErrForbidden is why a request was not sent: it went to an address that a
// stranger has no business to send us to.
var ErrForbidden = errors.New("the address is not public, and the operator has not allowed it")

// ErrInsecure is why a request was not sent: it was not over https.
var ErrInsecure = errors.New("only https addresses are fetched")

// Client returns a client under these limits. It does not follow redirects: the
// answer is then the redirect itself. It uses no proxy, because a proxy would
// resolve names on its own.
func Client(cfg Config) *http.Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	dialer := &net.Dialer{
		Timeout: cfg.Timeout,
		// The address is what is about to be dialled, so that no second answer
		// of the name server can differ from the one that was checked.
		Control: func(_, address string, _ syscall.RawConn) error { return cfg.check(address) },
	}
	return &http.Client{
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: secure{cfg, &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: cfg.CAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    cfg.Timeout,
			ResponseHeaderTimeout:  cfg.Timeout,
			MaxResponseHeaderBytes: maxHeader,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           100,
			MaxIdleConnsPerHost:    maxPerHost, // what was opened for a few requests at once serves the next few
			MaxConnsPerHost:        maxPerHost,
			IdleConnTimeout:        time.Minute,
		}},
	}
}

// Check tells why a client under these limits would never send anything to u:
// ErrInsecure or ErrForbidden, as far as that can be known without asking for
// the addresses of a name.
func (c Config) Check(u *url.URL) error {
	if !c.secureEnough(u) {
		return ErrInsecure
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" {
		ip, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil {
		return nil // a name
	}
	return c.check(netip.AddrPortFrom(ip, 443).String())
}

func (c Config) secureEnough(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && c.Loopback && isLoopback(u.Hostname())
}

func (c Config) check(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrForbidden, address)
	}
	ip := ap.Addr().Unmap().WithZone("")
	switch {
	case ip.IsLoopback() && c.Loopback:
		return nil
	case slices.ContainsFunc(c.Allow, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return nil
	case !ip.IsGlobalUnicast(), ip.IsPrivate(), ip.IsLoopback(),
		slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return ErrForbidden
	}
	return nil
}

// reserved are addresses that look public and are not, or that carry another
// address inside.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),   // carriers' own
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),          // IPv4 inside, the old way
	netip.MustParsePrefix("64:ff9b::/96"),   // IPv4 inside, for translators
	netip.MustParsePrefix("64:ff9b:1::/48"), // the same, local
	netip.MustParsePrefix("100::/64"),       // discarded
	netip.MustParsePrefix("2001::/23"),      // protocol assignments, tunnels
	netip.MustParsePrefix("2001:db8::/32"),  // documentation
	netip.MustParsePrefix("2002::/16"),      // 6to4: IPv4 inside
	netip.MustParsePrefix("3fff::/20"),      // documentation
	netip.MustParsePrefix("5f00::/16"),      // segment routing
	netip.MustParsePrefix("fec0::/10"),      // site local, once
}

// secure refuses what is not https, but for this machine where that is allowed.
type secure struct {
	cfg  Config
	next *http.Transport
}

// CloseIdleConnections is for http.Client, which looks for it here.
func (s secure) CloseIdleConnections() { s.next.CloseIdleConnections() }

func (s secure) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.cfg.secureEnough(r.URL) {
		return s.next.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, ErrInsecure
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// ErrTooLong is why an answer was not read to its end.
var ErrTooLong = errors.New("the answer is too long")

// Read reads all of r, or returns ErrTooLong if it is longer than limit.
func Read(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, ErrTooLong
	}
	return b, err
}

// unreached is told of every request that got no answer. Whoever chooses the
// address could otherwise learn which names our network knows, which of them are
// private, and where somebody listens, of what the operator has allowed.
const unreached = "the host cannot be reached: its name has no address, the address is not public, the connection was refused, or there was no answer in time"

// Reason says why a request failed, without the address, which may hold a
// secret, and without what our network looks like from inside. What it does not
// tell is in err, for the log.
func Reason(err error) string {
	var unknownCA x509.UnknownAuthorityError
	var cert *tls.CertificateVerificationError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrInsecure):
		return ErrInsecure.Error()
	case errors.Is(err, ErrTooLong):
		return ErrTooLong.Error()
	case errors.As(err, &unknownCA):
		return "the certificate is signed by an authority that is not trusted here"
	case errors.As(err, &cert):
		return "the certificate is not valid for this host"
	}
	return unreached
}
