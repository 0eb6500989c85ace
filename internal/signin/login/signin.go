package login

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// showSignIn shows the sign-in page. If the person is already signed in, it asks for
// consent instead.
func (s *Service) showSignIn(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Get("flow") == "" {
		return s.startAt(w, r, r.URL.Query().Get("organization"))
	}
	f := s.requestFlow(w, r)
	if f == nil {
		return nil
	}
	if n, ok := s.site.Session(r); ok && f.Identity == "" && !s.mustSignInAgain(r, f, n) {
		if f.Purpose == forBrowser && f.Invite == "" {
			s.deleteFlow(w, f)
			return site.Redirect(w, r, f.goesTo())
		}
		return s.showConfirm(w, r, f, n)
	}
	return s.signInPage(w, r, http.StatusOK, f, &signInPage{})
}

// signInPage fills in and shows the sign-in page.
func (s *Service) signInPage(w http.ResponseWriter, r *http.Request, status int, f *flow, p *signInPage) error {
	p.Purpose, p.Passkeys, p.Local = f.Purpose, s.factors.Passkeys(), true
	if n, ok := s.site.Session(r); ok && s.mustSignInAgain(r, f, n) {
		p.Again, p.Email = true, cmp.Or(p.Email, s.emailOf(r, n))
	}
	invite, err := s.inviteOf(r, f)
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	p.Invite = invite
	if f.Organization != "" {
		if err := s.fillOrganization(r.Context(), f, p); err != nil {
			return site.Titled(cannotBegin, err)
		}
		p.CanJoin = invite != nil && p.Local
	}
	if invite != nil {
		p.Email = cmp.Or(p.Email, invite.Email)
	}
	if !p.Local { // then the page has no password form at which to show the error
		p.Problem = cmp.Or(p.Problem, p.Wrong["password"])
	}
	if err := s.offerLastProvider(r, f, p); err != nil {
		return site.Titled(cannotBegin, err)
	}
	return s.show(w, r, status, "signin", f, p)
}

// emailOf returns the e-mail address of the person of a session, or "" if it is not known.
func (s *Service) emailOf(r *http.Request, n resource.Session) string {
	if n.Voucher != "" {
		return n.Email
	}
	a, err := s.accounts.AccountOf(r.Context(), n.Identity)
	if err != nil {
		return "" // the person types the address
	}
	return a.Email
}

// fillOrganization fills in the providers of the organization of a flow, and whether it
// allows local accounts.
func (s *Service) fillOrganization(ctx context.Context, f *flow, p *signInPage) (err error) {
	if p.Organization, err = s.admin.OrganizationName(ctx, f.Organization); err != nil {
		return err
	}
	providers, err := s.store.ProvidersFor(ctx, f.joinGroup())
	if err != nil {
		return err
	}
	for _, idp := range providers {
		p.Providers = append(p.Providers, Choice{string(idp.UID), idp.Name, p.Organization})
	}
	rules, err := s.accounts.SignInRules(ctx, f.Organization)
	p.Local = !rules.LocalOff || len(p.Providers) == 0
	return err
}

// chooseOrganization accepts the name of an organization, or an e-mail address whose
// domain is the name.
func (s *Service) chooseOrganization(w http.ResponseWriter, r *http.Request, f *flow) error {
	return s.signInTo(w, r, f, input.Field(w, r, "organization"))
}

// startAt starts a sign-in of the browser itself. organization may be "".
func (s *Service) startAt(w http.ResponseWriter, r *http.Request, organization string) error {
	q := r.URL.Query()
	f := &flow{Purpose: forBrowser, Return: returnTo(q.Get("return")), Again: q.Get("again") != ""}
	if organization == "" {
		return s.start(w, r, f)
	}
	if _, ok := s.site.Session(r); ok && !f.Again {
		return site.Redirect(w, r, f.goesTo())
	}
	f.ID, f.Expires = rand.Text(), s.cfg.Now().Add(flowLife).Unix()
	s.saveFlow(w, r, f)
	return s.signInTo(w, r, f, organization)
}

const maxOrganization = 254 // bytes; the longest e-mail address

// signInTo shows the sign-in page of an organization. named is a name as chooseOrganization
// accepts it. The page reveals to anybody whether the organization exists, and the names of
// its providers, because people must choose a provider before they sign in.
func (s *Service) signInTo(w http.ResponseWriter, r *http.Request, f *flow, named string) error {
	text := strings.ToLower(strings.TrimSpace(named))
	name := resource.Identifier(text)
	if _, domain, ok := strings.Cut(text, "@"); ok {
		name = domain
	}
	org, err := s.store.Organization(r.Context(), name)
	if errors.Is(err, fault.NotFound) {
		p := &signInPage{Frame: site.Wrong("organization", "There is no organization of this name here.")}
		if r.Method == http.MethodPost { // in a form, the person has typed the name; a link could contain any text
			p.Asked = named[:min(len(named), maxOrganization)]
		}
		return s.signInPage(w, r, http.StatusNotFound, f, p)
	}
	if err != nil {
		return err
	}
	f.Organization = org.UID
	s.saveFlow(w, r, f)
	p := &signInPage{}
	if strings.Contains(text, "@") {
		p.Email = text
	}
	return s.signInPage(w, r, http.StatusOK, f, p)
}
