// Package link finds the next page of a list that a registry sends.
package link

import (
	"net/http"
	"net/url"
	"strings"
)

// Next returns the query of the page that follows an answer, and reports whether there is one. Where the address cannot be
// read, the query is "", which is that of a page that was read before. It returns nothing else of
// the address: a caller asks for the next page where it asked for the first, so that a registry cannot lead a client, with
// its credentials, elsewhere.
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
			return strings.ReplaceAll(u.RawQuery, " ", "%20"), true // a space would end the line of the request
		}
	}
	return "", false
}

// cut returns the first link of a header, such as <address>; rel="next", and what follows it.
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

// isNext reports whether the parameters of a link say that it leads to the next page.
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
