package login

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// showSignIn shows the ways to sign in or, if the person is signed in already,
// asks for consent.
func (s *Service) showSignIn(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Get("flow") == "" {
		return s.startAt(w, r, r.URL.Query().Get("organization"))
	}
	f := s.requestFlow(w, r)
	if f == nil {
		return nil
	}
	if n, ok := s.browser(r); ok && f.Identity == "" && !f.Again {
		if f.Purpose == forBrowser && f.Invite == "" {
			s.deleteFlow(w, f)
			return s.redirect(w, r, f.goesTo())
		}
		return s.showConfirm(w, r, f, n)
	}
	return s.signInPage(w, r, http.StatusOK, f, &signInPage{})
}

// signInPage fills in and shows the page with the ways to sign in.
func (s *Service) signInPage(w http.ResponseWriter, r *http.Request, status int, f *flow, p *signInPage) error {
	p.Purpose, p.Passkeys, p.Local, p.Again = f.Purpose, s.webauthn != nil, true, f.Again
	if f.Again && p.Email == "" {
		p.Email = s.signedInAs(r)
	}
	invite, err := s.inviteOf(r, f)
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	p.Invite = invite
	if f.Organization != "" {
		if err := s.fillOrganization(r.Context(), f, p); err != nil {
			return titled(cannotBegin, err)
		}
		p.CanJoin = invite != nil && p.Local
	}
	if invite != nil {
		p.Email = cmp.Or(p.Email, invite.Email)
	}
	if !p.Local { // the form is not there to show it beside
		p.Problem = cmp.Or(p.Problem, p.Wrong["password"])
	}
	if err := s.offerLastProvider(r, f, p); err != nil {
		return titled(cannotBegin, err)
	}
	return s.show(w, r, status, "signin", f, p)
}

// signedInAs returns the e-mail address of who is signed in, or "" if it is not known.
func (s *Service) signedInAs(r *http.Request) string {
	n, ok := s.browser(r)
	if !ok || n.Voucher != "" {
		return n.Email
	}
	a, err := s.accounts.AccountOf(r.Context(), n.Identity)
	if err != nil {
		return "" // they type it
	}
	return a.Email
}

// fillOrganization fills in the ways to sign in to the organization of a flow.
func (s *Service) fillOrganization(ctx context.Context, f *flow, p *signInPage) (err error) {
	if p.Organization, err = s.organizationName(ctx, f.Organization); err != nil {
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

// inviteOf describes the invite of a flow, and selects its organization.
func (s *Service) inviteOf(r *http.Request, f *flow) (*Invite, error) {
	if f.Invite == "" {
		return nil, nil
	}
	presented, err := readInvite(f.Invite)
	if err != nil {
		return nil, err
	}
	i, err := s.people.InviteFor(r.Context(), presented)
	if err != nil {
		return nil, err
	}
	group, err := s.store.Group(r.Context(), i.UID.Parent())
	if err != nil {
		return nil, err
	}
	org, err := s.store.Group(r.Context(), i.UID.Root())
	f.Organization = cmp.Or(f.Organization, org.UID)
	return &Invite{org.Label(), group.Label(), i.RoleInfo.Name, i.Email, i.RoleInfo.Description, org.UID}, err
}

// chooseOrganization accepts the name of an organization, or an e-mail address
// whose domain is that name.
func (s *Service) chooseOrganization(w http.ResponseWriter, r *http.Request, f *flow) error {
	return s.signInTo(w, r, f, s.field(w, r, "organization"))
}

// startAt starts a sign-in of the browser, to an organization if one is named.
func (s *Service) startAt(w http.ResponseWriter, r *http.Request, organization string) error {
	q := r.URL.Query()
	f := &flow{Purpose: forBrowser, Return: returnTo(q.Get("return")), Again: q.Get("again") != ""}
	if organization == "" {
		return s.start(w, r, f)
	}
	if _, ok := s.browser(r); ok && !f.Again {
		return s.redirect(w, r, f.goesTo())
	}
	f.ID, f.Expires = newID(), s.cfg.Now().Add(flowLife).Unix()
	s.saveFlow(w, r, f)
	return s.signInTo(w, r, f, organization)
}

const maxOrganization = 254 // as long as an e-mail address

// signInTo shows the ways to sign in to an organization, which is named as
// chooseOrganization accepts it. Whoever names one learns whether there is one
// and what its providers are called: they have to, before they sign in.
func (s *Service) signInTo(w http.ResponseWriter, r *http.Request, f *flow, named string) error {
	text := strings.ToLower(strings.TrimSpace(named))
	name := resource.Identifier(text)
	if _, domain, ok := strings.Cut(text, "@"); ok {
		name = domain
	}
	org, err := s.store.Organization(r.Context(), name)
	if errors.Is(err, fault.NotFound) {
		p := &signInPage{Frame: wrong("organization", "There is no organization of this name here.")}
		if r.Method == http.MethodPost { // typed, and not said by a link of somebody else
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

// wrongPassword is shown whether or not there is such an account.
const wrongPassword = "The e-mail address or the password is wrong."

// password accepts an e-mail address and a password.
func (s *Service) password(w http.ResponseWriter, r *http.Request, f *flow) error {
	email := resource.NormalEmail(s.field(w, r, "email"))
	refuse := func(status int, problem string) error {
		return s.signInPage(w, r, status, f, &signInPage{Frame: wrong("password", problem), Email: email})
	}
	known, err := s.knownFor(r, email)
	if err != nil {
		return err
	}
	attempt, wait := s.acquireAttempt(r, "password "+email, known)
	if wait > 0 {
		s.refusedPassword(r, f, email, resource.RefusedLimit)
		retryAfter(w, wait)
		return refuse(http.StatusTooManyRequests, tooMany(wait))
	}
	in := credentials{
		Organization: f.Organization, Email: email, Password: s.field(w, r, "password"),
		Known: known, OnlyKnown: attempt.known != nil,
	}
	if in.OnlyKnown {
		in.Known = attempt.known
	}
	fits, sure, err := s.accountsWithPassword(r.Context(), in)
	s.count("password", err)
	switch {
	case errors.Is(err, fault.Unauthenticated):
		s.refusedPassword(r, f, email, resource.RefusedPassword)
		return refuse(http.StatusUnauthorized, wrongPassword)
	case errors.Is(err, fault.ResourceExhausted):
		attempt.release()
		retryAfter(w, fault.From(err).RetryIn)
		return refuse(http.StatusServiceUnavailable, plainText(fault.From(err)))
	case err != nil:
		return err
	}
	if sure {
		attempt.release()
	}
	if len(fits) > 1 {
		return s.showAccountChoice(w, r, f, fits)
	}
	return s.continueAfterPassword(w, r, f, proofFor(fits[0]))
}

// continueAfterPassword continues with the account whose password was right.
func (s *Service) continueAfterPassword(w http.ResponseWriter, r *http.Request, f *flow, h passwordProof) error {
	a, err := s.accounts.Account(r.Context(), h.Account)
	if err == nil && proofFor(a) != h {
		err = fault.New(fault.PermissionDenied, "Permission denied: the password has changed in the meantime")
	}
	if err != nil {
		return err
	}
	f.Proofs, f.Method = nil, resource.ByPassword
	return s.askSecondFactor(w, r, f, a)
}

// askSecondFactor asks for the second factor of an account whose password was
// right, or signs in if it has none.
func (s *Service) askSecondFactor(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	p := s.factorPage(a)
	if !p.TOTP && (!p.Passkey || a.PasswordAlone) {
		return s.finishLocalSignIn(w, r, f, a)
	}
	f.setPasswordProof(a)
	s.saveFlow(w, r, f)
	return s.show(w, r, http.StatusOK, "factor", f, p)
}

// showAccountChoice asks which of several accounts with the same password is
// meant.
func (s *Service) showAccountChoice(w http.ResponseWriter, r *http.Request, f *flow, fits []resource.Account) error {
	p := &choosePage{Email: fits[0].Email}
	f.Account, f.Proofs = "", nil
	for _, a := range fits {
		org, err := s.organizationName(r.Context(), a.UID)
		if err != nil {
			return err
		}
		f.Proofs = append(f.Proofs, proofFor(a))
		p.Accounts = append(p.Accounts, Choice{UID: string(a.UID), Name: org})
	}
	slices.SortFunc(p.Accounts, func(a, b Choice) int { return strings.Compare(a.Name, b.Name) })
	s.saveFlow(w, r, f)
	return s.show(w, r, http.StatusOK, "choose", f, p)
}

// chooseAccount accepts the answer to showAccountChoice.
func (s *Service) chooseAccount(w http.ResponseWriter, r *http.Request, f *flow) error {
	uid := resource.UID(s.field(w, r, "account"))
	i := slices.IndexFunc(f.Proofs, func(h passwordProof) bool { return h.Account == uid })
	if i < 0 {
		return s.redirect(w, r, "/signin?flow="+f.ID)
	}
	return s.continueAfterPassword(w, r, f, f.Proofs[i])
}

// tooMany tells somebody who has to wait how else to sign in. The text is the
// same whether or not there is such an account.
func tooMany(wait time.Duration) string {
	text := "a moment"
	if wait > 5*time.Second {
		text = strings.TrimSuffix(ago(wait+time.Minute), " ago")
	}
	return "Too many tries. Wait " + text + " and try again, use a passkey or a browser that you have signed in " +
		"with before, or ask an administrator for a one-time link."
}

func (s *Service) factorPage(a resource.Account) *factorPage {
	return &factorPage{
		Email: a.Email, TOTP: len(a.TOTP) > 0, Passkey: len(a.Passkeys) > 0 && s.webauthn != nil,
		Recovery: a.RecoveryCodes > 0,
	}
}

// credentials are what somebody without a passkey signs in with.
type credentials struct {
	Organization    resource.UID // that the person has named, or ""
	Email, Password string
	Known           []knownAccount // accounts of that address that the browser has signed in to
	OnlyKnown       bool           // no other account may be tried
}

// accountsWithPassword returns the accounts that have this e-mail address and
// password, of the few that it tries: first the one of the organization that
// was named and those that the browser has signed in to, then the oldest. If
// one of the first matches, it is the only result. sure reports whether the
// password was wrong for no account that the result depends on: otherwise
// somebody with an account of that address could guess at others without
// limit.
//
// It returns fault.Unauthenticated if none matches. It always compares the
// password with the same number of hashes, so that it always takes as long.
func (s *Service) accountsWithPassword(
	ctx context.Context, in credentials,
) (fits []resource.Account, sure bool, _ error) {
	tried, first, err := s.accountsToTry(ctx, in)
	if err != nil {
		return nil, false, err
	}
	s.rememberTried(in, tried, first)
	hashes := make([]string, maxAccountsTried)
	for i, a := range tried {
		hashes[i] = a.Password
	}
	ok, err := s.hashes.verifyAll(ctx, hashes, in.Password)
	if err != nil {
		return nil, false, err
	}
	for i, a := range tried {
		if !ok[i] {
			continue
		}
		allowed, err := s.people.LocalAllowed(ctx, a)
		if err != nil {
			return nil, false, err
		}
		if allowed && i < first {
			return []resource.Account{a}, i == 0, nil
		}
		if allowed {
			fits = append(fits, a)
		}
	}
	if len(fits) == 0 {
		return nil, false, fault.New(fault.Unauthenticated, "Unauthenticated: %s", wrongPassword)
	}
	return fits, len(fits) == len(tried), nil
}

// accountsToTry returns the accounts that a password is compared with, at most
// maxAccountsTried. The first of them belong to the named organization, or the
// browser has signed in to them.
func (s *Service) accountsToTry(ctx context.Context, in credentials) (all []resource.Account, first int, _ error) {
	found, err := s.accounts.AccountsToTry(ctx, in.Organization, in.Email, maxAccountsTried)
	if err != nil {
		return nil, 0, err
	}
	add := func(a resource.Account) {
		same := func(b resource.Account) bool { return b.UID == a.UID }
		if len(all) < maxAccountsTried && !slices.ContainsFunc(all, same) {
			all = append(all, a)
		}
	}
	if !in.OnlyKnown && len(found) > 0 && found[0].UID.Root() == in.Organization {
		add(found[0])
	}
	for _, k := range in.Known {
		if k.account.Password != "" {
			add(k.account)
		}
	}
	first = len(all)
	for _, a := range found {
		if !in.OnlyKnown {
			add(a)
		}
	}
	return all, first, nil
}

// knownFor returns the accounts of an e-mail address that the browser of a
// request has signed in to.
func (s *Service) knownFor(r *http.Request, email string) (all []knownAccount, _ error) {
	for _, k := range s.knownAccounts(r) {
		var err error
		if k.account, err = s.accounts.Account(r.Context(), k.Account); err != nil && !errors.Is(err, fault.NotFound) {
			return nil, err
		}
		if err == nil && k.account.Email == email {
			all = append(all, k)
		}
	}
	return all, nil
}

// finishLocalSignIn is finishSignIn for a person with an account here.
func (s *Service) finishLocalSignIn(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	allowed, err := s.people.LocalAllowed(r.Context(), a)
	if err == nil && !allowed {
		s.refused(r, refusalAt(a, f.Method, resource.RefusedAdmit))
		err = fault.New(fault.PermissionDenied,
			"Permission denied: the organization of this account has switched passwords off; use its provider")
	}
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	arrival, err := s.arrivalOfAccount(r.Context(), a)
	if err != nil {
		return err
	}
	if err := s.accounts.NoteUse(r.Context(), a.UID, s.now()); err != nil {
		return err
	}
	f.Proofs, f.Account = nil, a.UID
	s.rememberBrowser(w, r, a.UID)
	_, err = s.finishSignIn(w, r, f, arrival, "")
	return err
}

// arrivalOfAccount returns the arrival of the person of an account.
func (s *Service) arrivalOfAccount(ctx context.Context, a resource.Account) (resource.SignIn, error) {
	i, err := s.store.Identity(ctx, a.Identity)
	c := i.Relationship
	return resource.SignIn{
		Issuer: c.Issuer(), Subject: c.Subject(), Realm: i.Realm,
		Name: a.Name, Email: a.Email, Organization: a.UID.Root(),
	}, err
}

// showJoin shows the form for a new account to a person with an invite.
func (s *Service) showJoin(w http.ResponseWriter, r *http.Request, f *flow) error {
	return s.joinPage(w, r, http.StatusOK, f, &joinPage{})
}

func (s *Service) joinPage(w http.ResponseWriter, r *http.Request, status int, f *flow, p *joinPage) error {
	invite, err := s.requireInvite(r, f)
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	p.Invite = invite
	if p.Fixed = invite.Email != ""; p.Fixed {
		p.Email = invite.Email
	}
	return s.show(w, r, status, "join", f, p)
}

// requireInvite is inviteOf for a flow that must have an invite.
func (s *Service) requireInvite(r *http.Request, f *flow) (*Invite, error) {
	invite, err := s.inviteOf(r, f)
	if err == nil && invite == nil {
		err = fault.New(fault.PermissionDenied, "Permission denied: an account is made with an invite")
	}
	return invite, err
}

// join creates an account for a person with an invite, and signs them in.
func (s *Service) join(w http.ResponseWriter, r *http.Request, f *flow) error {
	invite, err := s.requireInvite(r, f)
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	a := resource.Account{
		Email: resource.NormalEmail(cmp.Or(invite.Email, s.field(w, r, "email"))),
		Name:  strings.TrimSpace(s.field(w, r, "name")), UseTime: s.now(),
	}
	a, err = s.createAccount(r.Context(), invite.root, a, s.field(w, r, "password"))
	var arrival resource.SignIn
	if err == nil {
		arrival, err = s.arrivalOfAccount(r.Context(), a)
	}
	if err == nil {
		s.rememberBrowser(w, r, a.UID)
		f.Account, f.Method = a.UID, resource.ByInvite
		admitted, err := s.finishSignIn(w, r, f, arrival, "")
		if !admitted { // the invite did not admit the person
			if err := s.people.DeleteAccount(r.Context(), a.UID); err != nil {
				s.log.WarnContext(r.Context(), "an account without an invite is left", "account", a.UID, "err", err)
			}
		}
		return err
	}
	reported := s.report(r, err)
	p := &joinPage{Email: a.Email, Name: a.Name}
	p.setError(reported)
	if reported.Code == fault.AlreadyExists {
		p.Problem = "There is an account of this e-mail address in the organization already. " +
			"Sign in with it to accept the invite."
	}
	return s.joinPage(w, r, reported.Code.HTTPStatus(), f, p)
}

// createAccount adds an account with a password, if the organization allows
// accounts.
func (s *Service) createAccount(
	ctx context.Context, org resource.UID, a resource.Account, password string,
) (resource.Account, error) {
	rules, err := s.accounts.SignInRules(ctx, org)
	if err != nil {
		return a, err
	}
	if rules.LocalOff {
		return a, fault.New(fault.PermissionDenied,
			"Permission denied: the organization has switched accounts off; use its provider")
	}
	if err := joinViolations(a.Validate(), checkPassword(password, a.Email, a.Name)); err != nil {
		return a, err
	}
	if a.Password, err = s.hashes.hash(ctx, password); err != nil {
		return a, err
	}
	a, i, _ := s.newAccount(ctx, org, a)
	return a, s.people.InsertAccount(ctx, a, i)
}

// joinViolations combines the violations of several checks in one error.
func joinViolations(errs ...error) error {
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

// newAccount completes an account of an organization and returns it with a new
// identity for it, and with a link to set the password if it has none.
func (s *Service) newAccount(
	ctx context.Context, org resource.UID, a resource.Account,
) (_ resource.Account, _ resource.Identity, link OneTimeLink) {
	now := s.now()
	a.UID, a.CreateTime, a.UpdateTime = org.NewChild(), now, now
	c := a.Local(s.cfg.Issuer)
	a.Identity = resource.UserUID(c.Issuer, c.Subject)
	if a.Password == "" {
		link = s.newLink(ctx, &a, false)
	}
	return a, resource.Identity{
		UID: a.Identity, Name: resource.PersonName(a.Name, a.Email), DisplayName: resource.PersonDisplayName(a.Name),
		EmailUnverified: a.Email,
		Relationship:    resource.Relationship{ClaimMatch: &c}, Realm: c.Issuer,
		CreateTime: now, UpdateTime: now, LastSeenTime: now,
	}, link
}
