// Package outbound provides the HTTP client for addresses that users choose:
// issuers, feeds, webhooks. The client connects only to public addresses and to
// addresses that the operator allows, whatever a host name resolves to. It never
// follows a redirect.
package outbound

import (
	"cmp"
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

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// Config limits what a client may connect to. The zero value allows public
// addresses over https.
type Config struct {
	Loopback bool           // also allows this machine, without TLS: for dev mode
	Allow    []netip.Prefix // private addresses that are allowed too
	CAs      *x509.CertPool // the only trusted certificate authorities; nil means the system's
	Timeout  time.Duration  // limit for a request and its response; 0 means 10 seconds
	PerHost  int            // concurrent connections to one host; 0 means 8
}

const (
	defaultTimeout = 10 * time.Second
	maxHeader      = 64 << 10
	maxPerHost     = 8
)

// ErrForbidden is returned for a request to an address that is neither public nor
// allowed by the operator.
var ErrForbidden = errors.New("the address is not public, and the operator has not allowed it")

// ErrInsecure is returned for a request that is not over https.
var ErrInsecure = errors.New("only https addresses are fetched")

// Client returns a client with the limits of cfg. It does not follow redirects: it
// returns the redirect as the response. It uses no proxy, because a proxy would
// resolve names on its own.
func Client(cfg Config) *http.Client {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	cfg.PerHost = cmp.Or(cfg.PerHost, maxPerHost)
	dialer := &net.Dialer{
		Timeout: cfg.Timeout,
		// This checks the resolved address right before the connection is made,
		// so that a second DNS answer cannot differ from the checked one.
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
			MaxIdleConnsPerHost:    maxPerHost,
			MaxConnsPerHost:        cfg.PerHost,
			IdleConnTimeout:        time.Minute,
		}},
	}
}

// Check returns ErrInsecure or ErrForbidden if a client with these limits would
// never send a request to u. It does not resolve names.
func (c Config) Check(u *url.URL) error {
	if !c.secureEnough(u) {
		return ErrInsecure
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() == "localhost" {
		ip, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil {
		return nil // the host is a name, not an address
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

// reserved contains prefixes that netip reports as public although they are
// not, or that embed another address.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),          // IPv4-compatible
	netip.MustParsePrefix("64:ff9b::/96"),   // NAT64
	netip.MustParsePrefix("64:ff9b:1::/48"), // NAT64, local use
	netip.MustParsePrefix("100::/64"),       // discard only
	netip.MustParsePrefix("2001::/23"),      // protocol assignments, tunnels
	netip.MustParsePrefix("2001:db8::/32"),  // documentation
	netip.MustParsePrefix("2002::/16"),      // 6to4
	netip.MustParsePrefix("3fff::/20"),      // documentation
	netip.MustParsePrefix("5f00::/16"),      // segment routing
	netip.MustParsePrefix("fec0::/10"),      // site local, deprecated
}

// secure is a RoundTripper that refuses requests that do not use https. If the
// Config allows it, it accepts such requests to this machine.
type secure struct {
	cfg  Config
	next *http.Transport
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (s secure) CloseIdleConnections() { s.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper. The span of a request contains the host
// but no other part of the address, which may contain a secret. The request does
// not carry the id of the trace, because it leaves the installation.
func (s secure) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.cfg.secureEnough(r.URL) {
		span := trace.Call(r.Context(), r.Method)
		span.Set("server.address", r.URL.Hostname())
		resp, err := s.next.RoundTrip(r)
		if err == nil {
			span.SetInt("http.response.status_code", resp.StatusCode)
		}
		span.End(err)
		return resp, err
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

// ErrTooLong is returned by Read if there are more bytes than the limit.
var ErrTooLong = errors.New("the answer is too long")

// Read reads all of r, or returns ErrTooLong if it is longer than limit.
func Read(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, ErrTooLong
	}
	return b, err
}

// unreached is the reason for every request that got no response. A more precise
// reason would reveal our network to the user who chose the address: which names it
// resolves, which addresses are private, and which ports are open.
const unreached = "the host cannot be reached: its name has no address, the address is not public, " +
	"the connection was refused, or there was no answer in time"

// Reason returns why a request failed, in words for the user who chose the
// address. It contains neither the address, which may hold a secret, nor anything
// about our network; err has the details, for the log.
func Reason(err error) string {
	_, tooLong := errors.AsType[*http.MaxBytesError](err)
	_, unknownCA := errors.AsType[x509.UnknownAuthorityError](err)
	_, cert := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrInsecure):
		return ErrInsecure.Error()
	case errors.Is(err, ErrTooLong), tooLong:
		return ErrTooLong.Error()
	case unknownCA:
		return "the certificate is signed by an authority that is not trusted here"
	case cert:
		return "the certificate is not valid for this host"
	}
	return unreached
}
