package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// CheckAddress returns an error if a text is not the address of a server: a scheme and a
// host, and nothing after them.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "%") || (u.Scheme != "http" && u.Scheme != "https") ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%q is not an address like https://holdfast.example.com", address)
	}
	return nil
}

// Audience returns the audience of tokens for the server at an address: the address as
// the server writes it, without the default port of its scheme.
func Audience(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return strings.ToLower(strings.TrimSuffix(u.Scheme+"://"+hostPort(u), ":"+defaultPorts[u.Scheme]))
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

func hostPort(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPorts[u.Scheme]))
}

// InTheOpen reports whether an address is on another machine and not encrypted, so that
// others can read what is sent to it.
func InTheOpen(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && !isLoopback(u.Hostname())
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func checkPrivate(address string) error {
	if InTheOpen(address) {
		return errors.New("tokens would travel in the open: use https://")
	}
	return nil
}
