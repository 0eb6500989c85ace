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
// trusted. Only the operator can name them, because any client can send the header.
type Proxies []netip.Prefix

// Client returns the address of the client of a request, without a port. That is
// the peer, unless the peer is a proxy. Each proxy appends the address of its client
// to the header, so Client reads the header from its end while the addresses belong
// to trusted proxies. It does not trust the addresses before them. A proxy that has
// added no address is the client.
func (p Proxies) Client(peer string, forwarded []string) string {
	client := resource.HostOf(peer)
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return client
	}
	for _, line := range slices.Backward(forwarded) {
		for unread := true; unread; {
			if !p.trust(addr) {
				return client
			}
			end := strings.LastIndexByte(line, ',')
			hop := line[end+1:]
			if unread = end >= 0; unread {
				line = line[:end]
			}
			if addr, err = readHop(hop); err != nil {
				return client
			}
			client = addr.String()
		}
	}
	return client
}

// Trust reports whether an address, without a port, belongs to a trusted proxy.
func (p Proxies) Trust(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && p.trust(addr)
}

func (p Proxies) trust(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// readHop reads one address of the header. Some proxies add a port.
func readHop(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return addr.Unmap().WithZone(""), err
}
