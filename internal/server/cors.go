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
	corsAge = "600" // seconds for which a browser may cache the permission
)

// withCORS lets web pages of the origins in the settings read the answers of next with
// their own tokens. It never allows credentials, so browsers do not send cookies, and
// hide answers to requests that had some. next must not be a handler that trusts the
// address or origin of a request.
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
