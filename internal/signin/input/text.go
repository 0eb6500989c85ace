// Package input reads and cleans what comes from outside: the headers and forms of
// requests, and the texts of identity providers.
package input

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Loopback parses an address and reports whether it is a loopback address,
// where a program on this computer can listen. Nothing is ever delivered to
// another host.
func Loopback(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || len(text) > 1024 || u.Scheme != "http" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return nil, false
	}
	return u, IsLoopbackHost(u.Hostname()) && !strings.ContainsAny(text, "\\\r\n")
}

// IsLoopbackHost reports whether host is a name or an address of this computer.
func IsLoopbackHost(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// Short sanitizes and shortens a text from elsewhere.
func Short(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return strings.TrimSpace(s)
}

// Readable reports whether a text can be used in a query of the database:
// UTF-8 without NUL. Browsers send no other text by themselves.
func Readable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
