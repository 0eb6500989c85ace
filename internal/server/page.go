package server

import (
	"net/http"
	"net/url"

	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// withPages answers browsers with pages for people: at the root, at /login, which
// people type, and at addresses that do not exist. Programs get the answer of next.
func (s *Server) withPages(next http.Handler) http.Handler {
	home, missing := s.login.Home(), s.login.Missing()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !site.WantsPage(r):
			next.ServeHTTP(w, r)
			return
		case r.URL.Path == "/":
			home.ServeHTTP(w, r)
			return
		case r.URL.Path == "/login":
			http.Redirect(w, r, (&url.URL{Path: "/signin", RawQuery: r.URL.RawQuery}).String(), http.StatusSeeOther)
			return
		}
		m := &missingWriter{ResponseWriter: w}
		next.ServeHTTP(m, r)
		if m.missing {
			w.Header().Del("Content-Length")
			missing.ServeHTTP(w, r)
		}
	})
}

// A missingWriter is a ResponseWriter that discards an answer with the status 404, so
// that a page can replace it.
type missingWriter struct {
	http.ResponseWriter
	missing bool
}

func (m *missingWriter) WriteHeader(status int) {
	if m.missing = status == http.StatusNotFound; !m.missing {
		m.ResponseWriter.WriteHeader(status)
	}
}

func (m *missingWriter) Write(b []byte) (int, error) {
	if m.missing {
		return len(b), nil
	}
	return m.ResponseWriter.Write(b)
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (m *missingWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }
