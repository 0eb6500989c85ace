// Package link finds the address of the next page in the Link header of a registry's response.
package link

import (
	"net/http"
	"net/url"
	"strings"
)

// Next returns the query of the next page after a response. ok is false if there is no next page. If the address
// cannot be parsed, the query is "", which selects the first page. Next returns no other part of the address: the
// caller requests the next page at the address of the first, so that a registry cannot redirect a client, with its
// credentials, to another host.
func Next(h http.Header) (query string, ok bool) {
	for _, text := range h.Values("Link") {
		for text != "" {
			var address, params string
			address, params, text = cut(text)
			if !isNext(params) {
				continue
			}
			u, err := url.Parse(address)
			if err != nil {
				return "", true
			}
			return strings.ReplaceAll(u.RawQuery, " ", "%20"), true // a space would end the request line
		}
	}
	return "", false
}

// cut returns the first link of a header, such as <address>; rel="next", and the text after it.
func cut(text string) (address, params, rest string) {
	_, text, _ = strings.Cut(text, "<")
	address, text, _ = strings.Cut(text, ">")
	quoted := false
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ',' && !quoted:
			return address, text[:i], text[i+1:]
		}
	}
	return address, text, ""
}

// isNext reports whether the parameters of a link mark it as the next page.
func isNext(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "rel") {
			continue
		}
		for word := range strings.FieldsSeq(strings.Trim(strings.TrimSpace(value), `"`)) {
			if strings.EqualFold(word, "next") {
				return true
			}
		}
	}
	return false
}
