package site

import (
	"encoding/base64"
	"net/http"
	"time"
)

// Cookie returns a cookie that scripts cannot read, that other sites do not
// send along with forms, and that over https no other host can set. An empty
// value deletes the cookie.
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

func (s *Site) CookieName(name string) string {
	if s.origin.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

// SealedCookie returns a cookie that only openCookie with the same purpose can
// read.
func (s *Site) SealedCookie(name, purpose string, plain []byte, life time.Duration) *http.Cookie {
	return s.Cookie(name, base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(purpose, plain)), life)
}

// OpenCookie returns the content of a sealed cookie, or false if there is none.
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
