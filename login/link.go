package login

import (
	"errors"
	"net/http"
	"regexp"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

const linkCookie = "hf_link"

var linkCode = regexp.MustCompile(`^[A-Z2-7]{52}$`) // two ids

// showLink handles a one-time link. It moves the code from the address into a
// cookie, so that the code does not stay in the browser's history.
func (s *Service) showLink(w http.ResponseWriter, r *http.Request) {
	if code := r.URL.Query().Get("code"); code != "" {
		if !linkCode.MatchString(code) {
			code = "wrong"
		}
		http.SetCookie(w, s.cookie(linkCookie, code, flowLife))
		s.redirect(w, r, "/link")
		return
	}
	a, ok := s.linked(w, r)
	if ok {
		s.linkPage(w, r, http.StatusOK, a, nil)
	}
}

// linked returns the account whose link the browser has followed.
func (s *Service) linked(w http.ResponseWriter, r *http.Request) (a resource.Account, ok bool) {
	c, err := r.Cookie(s.cookieName(linkCookie))
	if err == nil {
		a, err = s.accounts.AccountLinked(r.Context(), digest("link "+c.Value))
	} else {
		err = fault.Missing("account", "link")
	}
	if errors.Is(err, fault.NotFound) {
		s.problem(w, r, http.StatusNotFound, "This link is not good",
			"It was used, has expired, or another has taken its place. Ask an administrator for a new one.")
		return a, false
	}
	if err == nil {
		err = s.checkLinkMaker(r.Context(), a)
	}
	if err != nil {
		s.fail(w, r, "This link cannot be followed", err)
		return a, false
	}
	return a, true
}

func (s *Service) linkPage(w http.ResponseWriter, r *http.Request, status int, a resource.Account, err error) {
	p := &linkPage{Email: a.Email, Reset: a.Password != "" || !a.UseTime.IsZero()}
	if err != nil {
		p.setError(s.report(r, err))
	}
	org, err := s.store.Group(r.Context(), a.UID.Root())
	if err != nil {
		s.fail(w, r, "This link cannot be followed", err)
		return
	}
	p.Organization = org.Name
	s.show(w, r, status, "link", nil, p)
}

// followLink sets the password of the account whose link the browser has
// followed, and signs in, with the second factor if the account still has one.
func (s *Service) followLink(w http.ResponseWriter, r *http.Request) {
	a, ok := s.linked(w, r)
	if !ok {
		return
	}
	password := s.field(w, r, "password")
	if err := checkPassword(password, a.Email); err != nil {
		s.linkPage(w, r, http.StatusBadRequest, a, err)
		return
	}
	hash, err := s.hashes.hash(r.Context(), password)
	if err != nil {
		s.linkPage(w, r, http.StatusServiceUnavailable, a, err)
		return
	}
	c, err := r.Cookie(s.cookieName(linkCookie))
	if err == nil {
		a, err = s.people.FollowLink(r.Context(), digest("link "+c.Value), func(a *resource.Account) error {
			a.Password = hash
			return s.checkLinkMaker(r.Context(), *a)
		})
	}
	if err != nil {
		s.fail(w, r, "This link cannot be followed", err)
		return
	}
	http.SetCookie(w, s.cookie(linkCookie, "", 0))
	if a, err = s.accounts.Account(r.Context(), a.UID); err != nil {
		s.fail(w, r, "This link cannot be followed", err)
		return
	}
	f := &flow{ID: newID(), Expires: s.cfg.Now().Add(flowLife).Unix(), Purpose: forBrowser}
	s.askSecondFactor(w, r, f, a)
}
