package config

import (
	"net"
	"net/url"
	"strconv"
	"strings"
)

// isLocalHost reports whether a host can only be this machine. Names below .localhost
// always are this machine (RFC 6761), and nobody can register a name below .test.
func isLocalHost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".test") ||
		net.ParseIP(host).IsLoopback()
}

func isAddress(s string) bool {
	_, port, _ := net.SplitHostPort(s)
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// IsLoopback reports whether the host of a host:port address is this machine.
func IsLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}
