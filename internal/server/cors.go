package server

import (
	"net/http"
	"slices"
)

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
