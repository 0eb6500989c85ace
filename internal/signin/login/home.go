package login

import (
	"net/http"
	"strings"
)

// WantsPage reports whether a person opens an address in a browser. Programs ask
// for JSON or for anything, or show a token.
func WantsPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Authorization") == "" &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Home serves the page at the root: what this is, and where to go from here.
func (s *Service) Home() http.Handler {
	return s.withActor(s.handle(func(w http.ResponseWriter, r *http.Request) error {
		setUp, err := s.store.HasOrganizations(r.Context())
		if err != nil {
			return titled("This page cannot be shown", err)
		}
		p := &homePage{SetUp: setUp, BaseURL: s.cfg.BaseURL}
		if n, ok := s.browser(r); ok {
			i, err := s.store.Identity(r.Context(), n.Identity)
			if err != nil {
				return titled("This page cannot be shown", err)
			}
			p.Name = i.Title()
		}
		return s.show(w, r, http.StatusOK, "home", nil, p)
	}))
}

// Missing serves the page for an address at which there is nothing.
func (s *Service) Missing() http.Handler { return s.withActor(s.handle(s.missing)) }

func (s *Service) missing(w http.ResponseWriter, r *http.Request) error {
	if !WantsPage(r) {
		http.NotFound(w, r)
		return nil
	}
	return s.problem(w, r, http.StatusNotFound, "There is nothing here",
		"Check the address, or start from the first page of this server.")
}
