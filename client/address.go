package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// CheckAddress returns an error if address is not the address of a server: a scheme and a
// host, and nothing after them.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "%") || (u.Scheme != "http" && u.Scheme != "https") ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%q is not an address like https://holdfast.example.com", address)
	}
	return nil
}

// Audience returns the audience of tokens for the server at address. It is the address in
// the form that the server uses: lower case, without the default port of the scheme.
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

// InTheOpen reports whether address is unencrypted and on another machine, so that others
// can read the tokens sent to it.
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
		return errors.New("tokens would be sent unencrypted: use https://")
	}
	return nil
}
