package site

import (
	"encoding/base64"
	"net/http"
	"time"
)

// Cookie returns a cookie that scripts cannot read and that browsers do not send with
// forms of other sites. Over https, no other host can set it. An empty value deletes
// the cookie.
func (s *Site) Cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name: s.CookieName(name), Value: value, Path: "/",
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.origin.Scheme == "https",
	}
	if c.MaxAge = int(life.Seconds()); value == "" {
		c.MaxAge = -1
	}
	return c
}

// CookieName returns the name of a cookie, over https with the prefix __Host-, which
// makes browsers refuse the cookie from any other host.
func (s *Site) CookieName(name string) string {
	if s.origin.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

// SealedCookie returns an encrypted cookie. Only OpenCookie with the same purpose can
// read it.
func (s *Site) SealedCookie(name, purpose string, plain []byte, life time.Duration) *http.Cookie {
	return s.Cookie(name, base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(purpose, plain)), life)
}

// OpenCookie returns the content of a sealed cookie. It returns false if the request
// has no such cookie, or if the cookie was not sealed for purpose.
func (s *Site) OpenCookie(r *http.Request, name, purpose string) ([]byte, bool) {
	c, err := r.Cookie(s.CookieName(name))
	if err != nil {
		return nil, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return nil, false
	}
	plain, err := s.cfg.Key.Open(purpose, sealed)
	return plain, err == nil
}
