package login

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// showSignIn shows how one can sign in, or, to somebody who still is, what they
// would hand over.
func (s *Service) showSignIn(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("flow") == "" {
		s.start(w, r, &flow{Purpose: forBrowser})
		return
	}
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	if n, ok := s.browser(r); ok && f.Identity == "" {
		if f.Purpose == forBrowser && f.Invite == "" {
			s.drop(w, f)
			s.redirect(w, r, "/account")
			return
		}
		s.showConfirm(w, r, f, n)
		return
	}
	s.signInPage(w, r, http.StatusOK, f, &signInPage{})
}

// signInPage fills in and shows the page of ways to sign in.
func (s *Service) signInPage(w http.ResponseWriter, r *http.Request, status int, f *flow, p *signInPage) {
	ctx := r.Context()
	p.Purpose, p.Passkeys, p.Local = f.Purpose, s.webauthn != nil, true
	invite, err := s.invited(r, f)
	if err != nil {
		s.refuse(w, r, f, err)
		return
	}
	p.Invite = invite
	if f.Organization != "" {
		org, err := s.store.Group(ctx, f.Organization)
		if err != nil {
			s.fail(w, r, "This sign-in cannot begin", err)
			return
		}
		p.Organization = org.Name
		providers, err := s.store.ProvidersFor(ctx, f.joining())
		if err != nil {
			s.fail(w, r, "This sign-in cannot begin", err)
			return
		}
		for _, idp := range providers {
			p.Providers = append(p.Providers, Choice{string(idp.UID), idp.Name, org.Name})
		}
		rules, err := s.store.SignInRules(ctx, f.Organization)
		if err != nil {
			s.fail(w, r, "This sign-in cannot begin", err)
			return
		}
		p.Local = !rules.LocalOff || len(p.Providers) == 0
		p.CanJoin = invite != nil && p.Local
	}
	s.show(w, r, status, "signin", f, p)
}

// invited returns what the invite of a flow is to, and chooses its organization.
func (s *Service) invited(r *http.Request, f *flow) (*Invite, error) {
	if f.Invite == "" {
		return nil, nil
	}
	presented, err := readInvite(f.Invite)
	if err != nil {
		return nil, err
	}
	i, err := s.store.InviteFor(r.Context(), presented)
	if err != nil {
		return nil, err
	}
	group, err := s.store.Group(r.Context(), i.UID.Parent())
	if err != nil {
		return nil, err
	}
	org, err := s.store.Group(r.Context(), i.UID.Root())
	if f.Organization == "" {
		f.Organization = org.UID
	}
	return &Invite{org.Name, group.Name, i.RoleInfo.Name, i.Email}, err
}

// chooseOrganization takes the name of an organization, or an e-mail address
// whose domain is one's name.
func (s *Service) chooseOrganization(w http.ResponseWriter, r *http.Request) {
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	text := strings.ToLower(strings.TrimSpace(s.field(w, r, "organization")))
	name := text
	if _, domain, ok := strings.Cut(text, "@"); ok {
		name = domain
	}
	org, err := s.store.Organization(r.Context(), name)
	if errors.Is(err, fault.NotFound) {
		p := &signInPage{}
		p.Wrong = map[string]string{"organization": "There is no organization of this name here."}
		s.signInPage(w, r, http.StatusNotFound, f, p)
		return
	}
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	f.Organization = org.UID
	s.keep(w, f)
	p := &signInPage{}
	if strings.Contains(text, "@") {
		p.Email = text
	}
	s.signInPage(w, r, http.StatusOK, f, p)
}

// wrongPassword is what everybody is told, whether or not there is such an
// account.
const wrongPassword = "The e-mail address or the password is wrong."

// password takes an e-mail address and a password.
func (s *Service) password(w http.ResponseWriter, r *http.Request) {
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	email := resource.NormalEmail(s.field(w, r, "email"))
	refuse := func(status int, problem string) {
		p := &signInPage{Email: email}
		p.Problem = problem
		s.signInPage(w, r, status, f, p)
	}
	giveBack, wait := s.try(email, remote(r))
	if wait > 0 {
		retryAfter(w, wait)
		refuse(http.StatusTooManyRequests, tooMany(wait))
		return
	}
	a, err := s.checkedPassword(r.Context(), email, s.field(w, r, "password"))
	switch {
	case errors.Is(err, fault.Unauthenticated):
		refuse(http.StatusUnauthorized, wrongPassword)
		return
	case errors.Is(err, fault.ResourceExhausted):
		giveBack()
		retryAfter(w, fault.From(err).RetryIn)
		refuse(http.StatusServiceUnavailable, plainText(fault.From(err)))
		return
	case err != nil:
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	giveBack()
	if len(a.TOTP) > 0 || len(a.Passkeys) > 0 && s.webauthn != nil {
		f.Account = a.UID
		s.keep(w, f)
		s.show(w, r, http.StatusOK, "factor", f, s.factorPage(a))
		return
	}
	s.arriveLocal(w, r, f, a)
}

func tooMany(wait time.Duration) string {
	return "Too many tries. Wait " + strings.TrimSuffix(ago(wait+time.Minute), " ago") + " and try again, or ask an administrator for a one-time link."
}

func (s *Service) factorPage(a resource.Account) *factorPage {
	return &factorPage{Email: a.Email, TOTP: len(a.TOTP) > 0, Passkey: len(a.Passkeys) > 0 && s.webauthn != nil, Recovery: a.RecoveryCodes > 0}
}

// checkedPassword returns the account that an e-mail address and a password are
// of. It returns fault.Unauthenticated, after as long, for any other.
func (s *Service) checkedPassword(ctx context.Context, email, password string) (resource.Account, error) {
	a, err := s.store.AccountNamed(ctx, email)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return a, err
	}
	ok, err := s.hashes.right(ctx, a.Password, password)
	if err != nil {
		return a, err
	}
	allowed := false
	if a.UID != "" {
		if allowed, err = s.store.LocalAllowed(ctx, a); err != nil {
			return a, err
		}
	}
	if !ok || !allowed {
		return a, fault.New(fault.Unauthenticated, "Unauthenticated: %s", wrongPassword)
	}
	return a, nil
}

// arriveLocal lets somebody in whose account is kept here.
func (s *Service) arriveLocal(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) {
	allowed, err := s.store.LocalAllowed(r.Context(), a)
	if err != nil || !allowed {
		s.refuse(w, r, f, orElse(err, fault.New(fault.PermissionDenied, "Permission denied: the organization of this account has switched passwords off; use its provider")))
		return
	}
	who, err := s.localArrival(r.Context(), a)
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	if _, err := s.store.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error { a.UseTime = s.now(); return nil }); err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	s.arrive(w, r, f, who, "")
}

// orElse is the first error that is one.
func orElse(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// localArrival is the person of an account.
func (s *Service) localArrival(ctx context.Context, a resource.Account) (resource.Arrival, error) {
	i, err := s.store.Identity(ctx, a.Identity)
	c := i.Relationship
	return resource.Arrival{Issuer: c.Issuer(), Subject: c.Subject(), Realm: i.Realm, Name: a.Name, Email: a.Email, Organization: a.UID.Root()}, err
}

// showJoin shows the form of a new account, to somebody with an invite.
func (s *Service) showJoin(w http.ResponseWriter, r *http.Request) {
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	s.joinPage(w, r, http.StatusOK, f, &joinPage{})
}

func (s *Service) joinPage(w http.ResponseWriter, r *http.Request, status int, f *flow, p *joinPage) {
	invite, err := s.invited(r, f)
	if err == nil && invite == nil {
		err = fault.New(fault.PermissionDenied, "Permission denied: an account is made with an invite")
	}
	if err != nil {
		s.refuse(w, r, f, err)
		return
	}
	p.Invite = invite
	if p.Fixed = invite.Email != ""; p.Fixed {
		p.Email = invite.Email
	}
	s.show(w, r, status, "join", f, p)
}

// join makes an account for somebody with an invite, and lets them in.
func (s *Service) join(w http.ResponseWriter, r *http.Request) {
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	invite, err := s.invited(r, f)
	if err != nil || invite == nil {
		s.refuse(w, r, f, orElse(err, fault.New(fault.PermissionDenied, "Permission denied: an account is made with an invite")))
		return
	}
	a := resource.Account{Email: resource.NormalEmail(s.field(w, r, "email")), Name: strings.TrimSpace(s.field(w, r, "name")), UseTime: s.now()}
	if invite.Email != "" {
		a.Email = resource.NormalEmail(invite.Email)
	}
	a, err = s.makeAccount(r.Context(), f.inviteRoot(), a, s.field(w, r, "password"))
	var who resource.Arrival
	if err == nil {
		who, err = s.localArrival(r.Context(), a)
	}
	if err == nil {
		if !s.arrive(w, r, f, who, "") {
			// Nobody shall have an account here whom the invite did not let in.
			if err := s.store.DeleteAccount(r.Context(), a.UID); err != nil {
				s.log.WarnContext(r.Context(), "an account without an invite is left", "account", a.UID, "err", err)
			}
		}
		return
	}
	told := s.told(r, err)
	p := &joinPage{Email: a.Email, Name: a.Name}
	p.Problem = plainText(told)
	if len(told.Fields) > 0 {
		p.Problem, p.Wrong = "", fieldTexts(told)
	}
	if told.Code == fault.AlreadyExists {
		p.Problem = "There is an account of this e-mail address already. Sign in with it to accept the invite."
	}
	s.joinPage(w, r, statusOf(told), f, p)
}

// inviteRoot is the organization of the invite of a flow.
func (f *flow) inviteRoot() resource.UID {
	p, err := readInvite(f.Invite)
	if err != nil {
		return ""
	}
	return p.UID.Root()
}

func fieldTexts(f *fault.Error) map[string]string {
	all := map[string]string{}
	for _, v := range f.Fields {
		all[v.Subject] = "It " + v.Description + "."
	}
	return all
}

// makeAccount adds an account with a password, if the organization has accounts.
func (s *Service) makeAccount(ctx context.Context, org resource.UID, a resource.Account, password string) (resource.Account, error) {
	rules, err := s.store.SignInRules(ctx, org)
	if err != nil {
		return a, err
	}
	if rules.LocalOff {
		return a, fault.New(fault.PermissionDenied, "Permission denied: the organization has switched accounts off; use its provider")
	}
	if err := together(a.Validate(), checkPassword(password, a.Email)); err != nil {
		return a, err
	}
	if a.Password, err = s.hashes.hash(ctx, password); err != nil {
		return a, err
	}
	a, i := s.newAccount(org, a)
	return a, s.store.InsertAccount(ctx, a, i)
}

// together is what is wrong according to several checks.
func together(errs ...error) error {
	var bad []fault.Violation
	for _, err := range errs {
		if err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// newAccount completes an account of an organization, and makes the identity it
// stands for.
func (s *Service) newAccount(org resource.UID, a resource.Account) (resource.Account, resource.Identity) {
	now := s.now()
	a.UID, a.CreateTime, a.UpdateTime = org.NewChild(), now, now
	c := a.Local(s.cfg.Issuer)
	a.Identity = resource.UserUID(c.Issuer, c.Subject)
	return a, resource.Identity{
		UID: a.Identity, Name: resource.PersonName(a.Name, a.Email), EmailUnverified: a.Email, CreateTime: now, UpdateTime: now, LastSeenTime: now,
		Relationship: resource.Relationship{ClaimMatch: &c}, Realm: c.Issuer,
	}
}
