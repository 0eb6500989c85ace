package site

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
)

const sessionCookie = "hf_session"

// SetSession has the browser keep the secret of its session for life, or forget
// it if the secret is "".
func (s *Site) SetSession(w http.ResponseWriter, secret string, life time.Duration) {
	http.SetCookie(w, s.Cookie(sessionCookie, secret, life))
}

// Session returns the session of the browser that a request comes from.
func (s *Site) Session(r *http.Request) (resource.Session, bool) {
	c, err := r.Cookie(s.CookieName(sessionCookie))
	if err != nil || len(c.Value) != 52 {
		return resource.Session{}, false
	}
	n, err := s.store.BrowserSession(r.Context(), signindb.Digest(c.Value), s.cfg.SessionIdle)
	if err != nil && !errors.Is(err, fault.NotFound) {
		s.LogError(r, err)
	}
	return n, err == nil
}

// CSRF returns the token that the forms of a session must contain.
func (s *Site) CSRF(session string) string {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("forms"))
	m.Write([]byte(session))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// SameCSRF reports whether token is the one that the forms of a session contain.
func (s *Site) SameCSRF(n resource.Session, token string) bool {
	return subtle.ConstantTimeCompare([]byte(s.CSRF(n.ID)), []byte(token)) == 1
}

// FreshTime is how long a sign-in is good for what is sensitive.
const FreshTime = 10 * time.Minute

// freshCookie proves when somebody has shown a factor in a session. A session that has begun is
// no proof: a provider may have answered with a session of its own, and asked for nothing.
const freshCookie = "hf_fresh"

// MarkFresh notes that the person of a session has just shown a factor, here or to a provider
// that was told to ask for one.
func (s *Site) MarkFresh(w http.ResponseWriter, session string) {
	at := strconv.FormatInt(s.cfg.Now().Unix(), 36)
	http.SetCookie(w, s.Cookie(freshCookie, at+"."+s.freshMark(session, at), FreshTime))
}

func (s *Site) freshMark(session, at string) string {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("fresh"))
	m.Write([]byte(session + " " + at))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// IsFresh reports whether the person of a session has shown a factor lately.
func (s *Site) IsFresh(r *http.Request, n resource.Session) bool {
	c, err := r.Cookie(s.CookieName(freshCookie))
	if err != nil {
		return false
	}
	at, mark, _ := strings.Cut(c.Value, ".")
	seconds, err := strconv.ParseInt(at, 36, 64)
	age := s.cfg.Now().Sub(time.Unix(seconds, 0))
	return err == nil && hmac.Equal([]byte(mark), []byte(s.freshMark(n.ID, at))) && age < FreshTime && age > -FreshTime
}

// IsOwnOrigin reports whether a request comes from one of our own pages, or from no page.
// Browsers that send no Sec-Fetch-Site send Origin with everything but reads.
func (s *Site) IsOwnOrigin(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	if origin := r.Header.Values("Origin"); len(origin) > 0 {
		return len(origin) == 1 && origin[0] == s.origin.Scheme+"://"+s.origin.Host
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}
