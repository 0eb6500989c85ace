package api

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// ForwardedFor is the header to which a reverse proxy adds the address of its
// client.
const ForwardedFor = "x-forwarded-for"

// Proxies are the addresses of reverse proxies whose ForwardedFor header is
// trusted. Anybody can send that header, so there are none unless the operator
// names them.
type Proxies []netip.Prefix

// Client returns the address, without a port, that a request comes from: the
// peer's, unless that is a proxy. Each proxy has added the address of its client
// at the end of the header, so Client reads it from the end, as long as the
// addresses are those of proxies. It does not trust what precedes them. A proxy
// that has added no address is the client.
func (p Proxies) Client(peer string, forwarded []string) string {
	client := resource.HostOf(peer)
	at, err := netip.ParseAddr(client)
	if err != nil {
		return client
	}
	for _, line := range slices.Backward(forwarded) {
		for more := true; more; {
			if !p.trust(at) {
				return client
			}
			end := strings.LastIndexByte(line, ',')
			hop := line[end+1:]
			if more = end >= 0; more {
				line = line[:end]
			}
			if at, err = readHop(hop); err != nil {
				return client
			}
			client = at.String()
		}
	}
	return client
}

// Trust reports whether an address, without a port, is a proxy's.
func (p Proxies) Trust(address string) bool {
	at, err := netip.ParseAddr(address)
	return err == nil && p.trust(at)
}

func (p Proxies) trust(at netip.Addr) bool {
	at = at.Unmap().WithZone("")
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(at) })
}

// readHop reads one address of the header. Some proxies add a port.
func readHop(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap().WithZone(""), nil
	}
	at, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return at.Unmap().WithZone(""), err
}
