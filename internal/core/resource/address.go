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

// NetworkOf returns the network that a host is counted with where attempts,
// calls or connections are limited by address: the /64 of an IPv6 address,
// because a client that has one address of it can use all of them, and otherwise
// the address alone.
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
