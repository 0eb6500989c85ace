package login

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// wrongPassword is shown whether or not there is such an account.
const wrongPassword = "The e-mail address or the password is wrong."

// password accepts an e-mail address and a password.
func (s *Service) password(w http.ResponseWriter, r *http.Request, f *flow) error {
	email := resource.NormalEmail(input.Field(w, r, "email"))
	refuse := func(status int, problem string) error {
		return s.signInPage(w, r, status, f, &signInPage{Frame: site.Wrong("password", problem), Email: email})
	}
	known, err := s.knownFor(r, email)
	if err != nil {
		return err
	}
	attempt, wait := s.site.AcquireAttempt(r, "password "+email, idsOf(known))
	if wait > 0 {
		s.refusedPassword(r, f, email, resource.RefusedLimit)
		site.RetryAfter(w, wait)
		return refuse(http.StatusTooManyRequests, site.TooMany(wait))
	}
	in := credentials{
		Organization: f.Organization, Email: email, Password: input.Field(w, r, "password"),
		Known: known, OnlyKnown: attempt.Known != nil,
	}
	if in.OnlyKnown {
		in.Known = slices.DeleteFunc(known, func(k knownAccount) bool { return !slices.Contains(attempt.Known, k.ID) })
	}
	fits, sure, err := s.accountsWithPassword(r.Context(), in)
	s.site.Count("password", err)
	switch {
	case errors.Is(err, fault.Unauthenticated):
		s.refusedPassword(r, f, email, resource.RefusedPassword)
		return refuse(http.StatusUnauthorized, wrongPassword)
	case errors.Is(err, fault.ResourceExhausted):
		attempt.Release()
		site.RetryAfter(w, fault.From(err).RetryIn)
		return refuse(http.StatusServiceUnavailable, site.PlainText(fault.From(err)))
	case err != nil:
		return err
	}
	if sure {
		attempt.Release()
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
		org, err := s.admin.OrganizationName(r.Context(), a.UID)
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
	uid := resource.UID(input.Field(w, r, "account"))
	i := slices.IndexFunc(f.Proofs, func(h passwordProof) bool { return h.Account == uid })
	if i < 0 {
		return site.Redirect(w, r, "/signin?flow="+f.ID)
	}
	return s.continueAfterPassword(w, r, f, f.Proofs[i])
}

func (s *Service) factorPage(a resource.Account) *factorPage {
	return &factorPage{
		Email: a.Email, TOTP: len(a.TOTP) > 0, Passkey: len(a.Passkeys) > 0 && s.factors.Passkeys(),
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

// maxAccountsTried is the number of accounts that a password is compared with;
// always as many, so that timing reveals nothing.
const maxAccountsTried = 3

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
	ok, err := s.hashes.VerifyAll(ctx, hashes, in.Password)
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
		s.site.Refuse(r, site.RefusalAt(a, f.Method, resource.RefusedAdmit))
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
