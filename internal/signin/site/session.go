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

// SetSession stores the secret of a session in the browser for the time life. An empty
// secret deletes it.
func (s *Site) SetSession(w http.ResponseWriter, secret string, life time.Duration) {
	http.SetCookie(w, s.Cookie(sessionCookie, secret, life))
}

// Session returns the session of the browser that sent a request. It returns false if
// there is none.
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

// SameCSRF reports whether token is the CSRF token of a session.
func (s *Site) SameCSRF(n resource.Session, token string) bool {
	return subtle.ConstantTimeCompare([]byte(s.CSRF(n.ID)), []byte(token)) == 1
}

// FreshTime is the time after a sign-in in which a person may do sensitive operations.
const FreshTime = 10 * time.Minute

// freshCookie proves when the person of a session has last entered a credential. The start of the session does not
// prove it, because a provider may have used an existing session there without asking for a credential.
const freshCookie = "hf_fresh"

// MarkFresh records that the person of a session has just entered a credential, here or
// at a provider that was asked to require one.
func (s *Site) MarkFresh(w http.ResponseWriter, session string) {
	seconds := strconv.FormatInt(s.cfg.Now().Unix(), 36)
	http.SetCookie(w, s.Cookie(freshCookie, seconds+"."+s.freshMark(session, seconds), FreshTime))
}

// freshMark returns the signature of the fresh cookie of a session.
func (s *Site) freshMark(session, seconds string) string {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("fresh"))
	m.Write([]byte(session + " " + seconds))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// IsFresh reports whether the person of a session has entered a credential within
// FreshTime.
func (s *Site) IsFresh(r *http.Request, n resource.Session) bool {
	c, err := r.Cookie(s.CookieName(freshCookie))
	if err != nil {
		return false
	}
	text, mark, _ := strings.Cut(c.Value, ".")
	seconds, err := strconv.ParseInt(text, 36, 64)
	age := s.cfg.Now().Sub(time.Unix(seconds, 0))
	return err == nil && hmac.Equal([]byte(mark), []byte(s.freshMark(n.ID, text))) && age < FreshTime && age > -FreshTime
}

// IsOwnOrigin reports whether a request was sent by one of our pages, or by no page.
// Browsers that do not send Sec-Fetch-Site send Origin with all requests except reads.
func (s *Site) IsOwnOrigin(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	if origin := r.Header.Values("Origin"); len(origin) > 0 {
		return len(origin) == 1 && origin[0] == s.origin.Scheme+"://"+s.origin.Host
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}
