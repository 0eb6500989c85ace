package login

import (
	"crypto/rand"
	"errors"
	"net/http"
	"regexp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/password"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

const linkCookie = "hf_link"

var linkCode = regexp.MustCompile(`^[A-Z2-7]{52}$`) // a code is two ids of 26 characters

// showLink handles a one-time link. It moves the code from the address into a cookie, so that
// the code does not stay in the history of the browser.
func (s *Service) showLink(w http.ResponseWriter, r *http.Request) error {
	if code := r.URL.Query().Get("code"); code != "" {
		if !linkCode.MatchString(code) {
			code = "wrong"
		}
		http.SetCookie(w, s.site.Cookie(linkCookie, code, flowLife))
		return site.Redirect(w, r, "/link")
	}
	a, err := s.linked(r)
	if err != nil {
		return err
	}
	return s.linkPage(w, r, http.StatusOK, a, nil)
}

// linkError returns err with the title for one-time links.
func linkError(err error) error { return site.Titled("This link cannot be followed", err) }

// linked returns the account whose one-time link the browser has opened.
func (s *Service) linked(r *http.Request) (a resource.Account, _ error) {
	c, err := r.Cookie(s.site.CookieName(linkCookie))
	if err == nil {
		a, err = s.accounts.AccountLinked(r.Context(), signindb.Digest("link "+c.Value))
	}
	if errors.Is(err, http.ErrNoCookie) || errors.Is(err, fault.NotFound) {
		return a, site.Titled("This link is not valid", fault.New(fault.NotFound, "Not found: it was used, has expired, "+
			"or was replaced by a newer one. Ask an administrator for a new link"))
	}
	if err == nil {
		err = s.admin.CheckLinkMaker(r.Context(), a)
	}
	if err != nil {
		return a, linkError(err)
	}
	return a, nil
}

func (s *Service) linkPage(w http.ResponseWriter, r *http.Request, status int, a resource.Account, err error) error {
	p := &linkPage{Email: a.Email, Reset: a.Password != "" || !a.UseTime.IsZero()}
	if err != nil {
		p.SetError(s.site.Report(r, err))
	}
	if p.Organization, err = s.admin.OrganizationName(r.Context(), a.UID); err != nil {
		return linkError(err)
	}
	return s.show(w, r, status, "link", nil, p)
}

// followLink sets the password of the account whose one-time link the browser has opened, and
// signs in. It asks for the second factor if the account still has one.
func (s *Service) followLink(w http.ResponseWriter, r *http.Request) error {
	a, err := s.linked(r)
	if err != nil {
		return err
	}
	chosen := input.Field(w, r, "password")
	if err := password.Check(chosen, a.Email); err != nil {
		return s.linkPage(w, r, http.StatusBadRequest, a, err)
	}
	hash, err := s.hashes.Hash(r.Context(), chosen)
	if err != nil {
		return s.linkPage(w, r, http.StatusServiceUnavailable, a, err)
	}
	ctx, err := s.admin.WithLinkMaker(r.Context(), a)
	if err != nil {
		return linkError(err)
	}
	a, err = s.people.FollowLink(ctx, a.Link.Digest, func(a *resource.Account) error {
		a.Password = hash
		return s.admin.CheckLinkMaker(r.Context(), *a)
	})
	err = accounts.Outgrown(err)
	if err == nil {
		s.admin.LogChange(r.Context(), "a one-time link was used", a)
		http.SetCookie(w, s.site.Cookie(linkCookie, "", 0))
		a, err = s.accounts.Account(r.Context(), a.UID)
	}
	if err != nil {
		return linkError(err)
	}
	f := &flow{ID: rand.Text(), Expires: s.cfg.Now().Add(flowLife).Unix(), Purpose: forBrowser, Method: resource.ByLink}
	return s.askSecondFactor(w, r, f, a)
}
