package login

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// ConsolePath is the path of the console. A sign-in can return to addresses below it.
const ConsolePath = "/console/"

const maxReturn = 2000 // greatest length in bytes

// returnTo returns text if it is an address below ConsolePath to which a sign-in can return.
// Otherwise it returns "", because the address could belong to an attacker.
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

// goesTo returns the address to which the browser is redirected after a sign-in.
func (f *flow) goesTo() string {
	for _, address := range []string{f.welcome(), f.Return} {
		if address != "" {
			return address
		}
	}
	return "/account"
}

// Token returns a token of the API for the session of the browser that sent a request. fresh
// reports whether its person has signed in recently. Token returns fault.Unauthenticated if
// there is no session. The server uses the token itself and must not give it to anybody.
func (s *Service) Token(r *http.Request) (token string, fresh bool, _ error) {
	n, ok := s.site.Session(r)
	if !ok {
		return "", false, fault.New(fault.Unauthenticated, "Unauthenticated: sign in first")
	}
	t, err := s.sts.Issue(r.Context(), n.ID, sts.TokenParams{Audience: []string{s.cfg.BaseURL}})
	return t.Text, s.site.IsFresh(r, n), err
}

// IsOwnOrigin reports whether a request was sent by one of our pages, or by no page.
func (s *Service) IsOwnOrigin(r *http.Request) bool { return s.site.IsOwnOrigin(r) }
