package login

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/sts"
)

// ConsolePath is where the console is. A sign-in returns to addresses below it.
const ConsolePath = "/console/"

const maxReturn = 2000

// returnTo returns the address of a view of the console to go to after a sign-in, or "" if
// text is another address, which could be one of somebody else.
func returnTo(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxReturn || u.Scheme != "" || u.Host != "" || u.User != nil || !readable(text) {
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
// from. It returns fault.Unauthenticated if there is no session. The token is for the
// server itself: nobody else is given it.
func (s *Service) Token(r *http.Request) (string, error) {
	n, ok := s.browser(r)
	if !ok {
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: sign in first")
	}
	t, err := s.sts.Issue(r.Context(), n.ID, sts.TokenParams{Audience: []string{s.cfg.BaseURL}})
	return t.Text, err
}

// IsOwnOrigin reports whether a request comes from one of our own pages, or from no page.
// Browsers that send no Sec-Fetch-Site send Origin with everything but reads.
func (s *Service) IsOwnOrigin(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	if origin := r.Header.Values("Origin"); len(origin) > 0 {
		return len(origin) == 1 && origin[0] == s.origin.Scheme+"://"+s.origin.Host
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}
