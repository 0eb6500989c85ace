package login

import (
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// Home serves the start page at the root of the server.
func (s *Service) Home() http.Handler {
	return s.site.WithActor(s.site.Handle(func(w http.ResponseWriter, r *http.Request) error {
		setUp, err := s.store.HasOrganizations(r.Context())
		if err != nil {
			return site.Titled("This page cannot be shown", err)
		}
		p := &homePage{SetUp: setUp, BaseURL: s.cfg.BaseURL}
		if n, ok := s.site.Session(r); ok {
			i, err := s.store.Identity(r.Context(), n.Identity)
			if err != nil {
				return site.Titled("This page cannot be shown", err)
			}
			p.Name = i.Title()
		}
		return s.show(w, r, http.StatusOK, "home", nil, p)
	}))
}

// Missing serves addresses that do not exist.
func (s *Service) Missing() http.Handler { return s.site.Missing() }
