package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Origins are the origins of web pages, as browsers spell them.
type Origins []string

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Origins) UnmarshalText(text []byte) error {
	var all Origins
	for part := range strings.SplitSeq(string(text), ",") {
		origin := strings.TrimSpace(part)
		if err := checkOrigin(origin); err != nil {
			return fmt.Errorf("%q %w", origin, err)
		}
		all = append(all, origin)
	}
	*o = all
	return nil
}

// checkOrigin returns an error unless a browser can send that origin, and nobody on
// the network can pretend to be it.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || strings.Contains(origin, "*") {
		return errors.New("is not an origin like https://console.example.com; each is named in full")
	}
	port := u.Port()
	if origin != u.Scheme+"://"+strings.ToLower(u.Host) || strings.HasSuffix(u.Host, ":") ||
		u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return errors.New("is not spelled as browsers do: scheme, host and port in lower case, " +
			"without a path and without the scheme's own port")
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && isLocalHost(u.Hostname())) {
		return errors.New("must be https, or http on this machine")
	}
	return nil
}

const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, X-Request-Id, Traceparent"
	corsExposed = "Allow, Deprecation, Holdfast-Page-Token, Holdfast-Warning, Link, Retry-After, " +
		"WWW-Authenticate, X-Request-Id"
	corsAge = "600" // seconds that a browser may remember it; a removed origin is then refused
)

// withCORS lets web pages of the origins in the settings read the answers of next,
// with a token of their own. It never allows credentials, so browsers neither send
// cookies nor show answers to requests that had some. Therefore next must not be
// anything that trusts where a request comes from.
func (s *Server) withCORS(next http.Handler) http.Handler {
	if len(s.cfg.CORSOrigins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		given := r.Header["Origin"]
		if len(given) != 1 || !slices.Contains(s.cfg.CORSOrigins, given[0]) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", given[0])
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders)
			h.Set("Access-Control-Max-Age", corsAge)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", corsExposed)
		next.ServeHTTP(w, r)
	})
}
