package login

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// ConsolePath is where the console is. A sign-in returns to addresses below it.
const ConsolePath = "/console/"

const maxReturn = 2000

// returnTo returns the address of a view of the console to go to after a sign-in, or "" if
// text is another address, which could be one of somebody else.
func returnTo(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxReturn || u.Scheme != "" || u.Host != "" || u.User != nil || !input.Readable(text) {
		return ""
	}
	if !strings.HasPrefix(text, ConsolePath) || strings.Contains(text, `\`) || strings.Contains(u.Path, "/../") {
		return ""
	}
	return text
}

// goesTo returns where a browser that has signed in goes.
func (f *flow) goesTo() string {
	for _, address := range []string{f.welcome(), f.Return} {
		if address != "" {
			return address
		}
	}
	return "/account"
}

// Token returns a token of the API for the session of the browser that a request comes
// from, and whether its person has signed in lately. It returns fault.Unauthenticated if there
// is no session. The token is for the server itself: nobody else is given it.
func (s *Service) Token(r *http.Request) (token string, fresh bool, _ error) {
	n, ok := s.site.Session(r)
	if !ok {
		return "", false, fault.New(fault.Unauthenticated, "Unauthenticated: sign in first")
	}
	t, err := s.sts.Issue(r.Context(), n.ID, sts.TokenParams{Audience: []string{s.cfg.BaseURL}})
	return t.Text, s.site.IsFresh(r, n), err
}

// IsOwnOrigin reports whether a request comes from one of our own pages, or from no page.
func (s *Service) IsOwnOrigin(r *http.Request) bool { return s.site.IsOwnOrigin(r) }
