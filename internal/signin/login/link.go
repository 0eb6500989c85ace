package login

import (
	"errors"
	"net/http"
	"regexp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const linkCookie = "hf_link"

var linkCode = regexp.MustCompile(`^[A-Z2-7]{52}$`) // two ids

// showLink handles a one-time link. It moves the code from the address into a
// cookie, so that the code does not stay in the browser's history.
func (s *Service) showLink(w http.ResponseWriter, r *http.Request) error {
	if code := r.URL.Query().Get("code"); code != "" {
		if !linkCode.MatchString(code) {
			code = "wrong"
		}
		http.SetCookie(w, s.cookie(linkCookie, code, flowLife))
		return s.redirect(w, r, "/link")
	}
	a, err := s.linked(r)
	if err != nil {
		return err
	}
	return s.linkPage(w, r, http.StatusOK, a, nil)
}

// linkError returns an error of a one-time link.
func linkError(err error) error { return titled("This link cannot be followed", err) }

// linked returns the account whose link the browser has followed.
func (s *Service) linked(r *http.Request) (a resource.Account, _ error) {
	c, err := r.Cookie(s.cookieName(linkCookie))
	if err == nil {
		a, err = s.accounts.AccountLinked(r.Context(), digest("link "+c.Value))
	}
	if errors.Is(err, http.ErrNoCookie) || errors.Is(err, fault.NotFound) {
		return a, titled("This link is not good", fault.New(fault.NotFound, "Not found: it was used, has expired, "+
			"or another has taken its place. Ask an administrator for a new one"))
	}
	if err == nil {
		err = s.checkLinkMaker(r.Context(), a)
	}
	if err != nil {
		return a, linkError(err)
	}
	return a, nil
}

func (s *Service) linkPage(w http.ResponseWriter, r *http.Request, status int, a resource.Account, err error) error {
	p := &linkPage{Email: a.Email, Reset: a.Password != "" || !a.UseTime.IsZero()}
	if err != nil {
		p.setError(s.report(r, err))
	}
	if p.Organization, err = s.organizationName(r.Context(), a.UID); err != nil {
		return linkError(err)
	}
	return s.show(w, r, status, "link", nil, p)
}

// followLink sets the password of the account whose link the browser has
// followed, and signs in, with the second factor if the account still has one.
func (s *Service) followLink(w http.ResponseWriter, r *http.Request) error {
	a, err := s.linked(r)
	if err != nil {
		return err
	}
	password := s.field(w, r, "password")
	if err := checkPassword(password, a.Email); err != nil {
		return s.linkPage(w, r, http.StatusBadRequest, a, err)
	}
	hash, err := s.hashes.hash(r.Context(), password)
	if err != nil {
		return s.linkPage(w, r, http.StatusServiceUnavailable, a, err)
	}
	a, err = s.people.FollowLink(r.Context(), a.Link.Digest, func(a *resource.Account) error {
		a.Password = hash
		return s.checkLinkMaker(r.Context(), *a)
	})
	if err == nil {
		s.logChange(r, "a one-time link was used", a)
		http.SetCookie(w, s.cookie(linkCookie, "", 0))
		a, err = s.accounts.Account(r.Context(), a.UID)
	}
	if err != nil {
		return linkError(err)
	}
	f := &flow{ID: newID(), Expires: s.cfg.Now().Add(flowLife).Unix(), Purpose: forBrowser, Method: resource.ByLink}
	return s.askSecondFactor(w, r, f, a)
}
