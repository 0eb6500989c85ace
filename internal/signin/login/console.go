package login

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
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

// freshTime is how long a sign-in is good for what is sensitive.
const freshTime = 10 * time.Minute

// Token returns a token of the API for the session of the browser that a request comes
// from, and whether its person has signed in lately. It returns fault.Unauthenticated if there
// is no session. The token is for the server itself: nobody else is given it.
func (s *Service) Token(r *http.Request) (token string, fresh bool, _ error) {
	n, ok := s.browser(r)
	if !ok {
		return "", false, fault.New(fault.Unauthenticated, "Unauthenticated: sign in first")
	}
	t, err := s.sts.Issue(r.Context(), n.ID, sts.TokenParams{Audience: []string{s.cfg.BaseURL}})
	return t.Text, s.isFresh(r, n), err
}

// freshCookie proves when somebody has shown a factor in a session. A session that has begun is
// no proof: a provider may have answered with a session of its own, and asked for nothing.
const freshCookie = "hf_fresh"

// markFresh notes that the person of a session has just shown a factor, here or to a provider
// that was told to ask for one.
func (s *Service) markFresh(w http.ResponseWriter, session string) {
	at := strconv.FormatInt(s.now().Unix(), 36)
	http.SetCookie(w, s.cookie(freshCookie, at+"."+s.freshMark(session, at), freshTime))
}

func (s *Service) freshMark(session, at string) string {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("fresh"))
	m.Write([]byte(session + " " + at))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// isFresh reports whether the person of a session has shown a factor lately.
func (s *Service) isFresh(r *http.Request, n resource.Session) bool {
	c, err := r.Cookie(s.cookieName(freshCookie))
	if err != nil {
		return false
	}
	at, mark, _ := strings.Cut(c.Value, ".")
	seconds, err := strconv.ParseInt(at, 36, 64)
	age := s.now().Sub(time.Unix(seconds, 0))
	return err == nil && hmac.Equal([]byte(mark), []byte(s.freshMark(n.ID, at))) && age < freshTime && age > -freshTime
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
