package resource

import (
	"net"
	"net/netip"
)

// HostOf returns the host of an address with a port, such as the RemoteAddr of
// a request. It returns an address without a port unchanged.
func HostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// NetworkOf returns the network that a host belongs to, for limits per address
// on attempts, calls or connections. For an IPv6 address it is the /64, because
// a client that has one address in it can use all of them. Otherwise it is the
// address itself.
func NetworkOf(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if prefix, err := ip.Prefix(64); ip.Is6() && err == nil {
		return prefix.String()
	}
	return ip.String()
}
