// Package input reads and sanitizes input from browsers, programs and identity
// providers.
package input

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Loopback parses an address and reports whether it is an http address of the
// loopback interface, where a program on the person's computer can listen. Tokens
// are never delivered to another host.
func Loopback(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || len(text) > 1024 || u.Scheme != "http" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return nil, false
	}
	return u, IsLoopbackHost(u.Hostname()) && !strings.ContainsAny(text, "\\\r\n")
}

// IsLoopbackHost reports whether host is a name or an address of the loopback
// interface.
func IsLoopbackHost(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// Short returns s without control characters and invalid UTF-8, cut to 200 bytes.
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

// Readable reports whether a text is UTF-8 without NUL, so that it can be used in a
// query of the database. Browsers send only such text.
func Readable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
