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

// wrongPassword is the message for a wrong password. It is the same if there is no such
// account.
const wrongPassword = "The e-mail address or the password is wrong."

// password checks an e-mail address and a password.
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

// continueAfterPassword continues the sign-in to the account whose password was right. It
// returns fault.PermissionDenied if the password was changed since.
func (s *Service) continueAfterPassword(w http.ResponseWriter, r *http.Request, f *flow, h passwordProof) error {
	a, err := s.accounts.Account(r.Context(), h.Account)
	if err == nil && proofFor(a) != h {
		err = fault.New(fault.PermissionDenied, "Permission denied: the password was changed during the sign-in")
	}
	if err != nil {
		return err
	}
	f.Proofs, f.Method = nil, resource.ByPassword
	return s.askSecondFactor(w, r, f, a)
}

// askSecondFactor asks for the second factor of an account whose password was right. If no
// second factor is required, it signs in.
func (s *Service) askSecondFactor(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	p := s.factorPage(a)
	if !p.TOTP && (!p.Passkey || a.PasswordAlone) {
		return s.finishLocalSignIn(w, r, f, a)
	}
	f.setPasswordProof(a)
	s.saveFlow(w, r, f)
	return s.show(w, r, http.StatusOK, "factor", f, p)
}

// showAccountChoice asks the person to choose one of several accounts with the same
// password.
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

// credentials are the input of a sign-in with a password.
type credentials struct {
	Organization    resource.UID // organization that the person has named, or ""
	Email, Password string
	Known           []knownAccount // accounts with that address to which the browser has signed in
	OnlyKnown       bool           // whether only the known accounts may be tried
}

// maxAccountsTried is the number of hashes with which a password is compared. It is always
// the same number, so that the time does not reveal how many accounts there are.
const maxAccountsTried = 3

// accountsWithPassword returns the accounts with this e-mail address and password. It
// tries at most maxAccountsTried accounts: first the account in the named organization
// and the known accounts of the browser, which are preferred, and then the oldest
// accounts. If a preferred account matches, it is the only result.
//
// sure reports whether the password was right for all accounts on which the result
// depends. Only then may the caller release the attempt. Otherwise the owner of one
// account could guess the passwords of other accounts with the same address without
// limit.
//
// accountsWithPassword returns fault.Unauthenticated if no account matches. It always
// compares the password with the same number of hashes, so that it always takes the same
// time.
func (s *Service) accountsWithPassword(
	ctx context.Context, in credentials,
) (fits []resource.Account, sure bool, _ error) {
	tried, preferred, err := s.accountsToTry(ctx, in)
	if err != nil {
		return nil, false, err
	}
	s.rememberTried(in, tried, preferred)
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
		if allowed && i < preferred {
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

// accountsToTry returns the accounts with which a password is compared, at most
// maxAccountsTried. preferred is the number of accounts at the start of the list that are
// in the named organization or known to the browser.
func (s *Service) accountsToTry(
	ctx context.Context, in credentials,
) (tried []resource.Account, preferred int, _ error) {
	found, err := s.accounts.AccountsToTry(ctx, in.Organization, in.Email, maxAccountsTried)
	if err != nil {
		return nil, 0, err
	}
	add := func(a resource.Account) {
		isA := func(b resource.Account) bool { return b.UID == a.UID }
		if len(tried) < maxAccountsTried && !slices.ContainsFunc(tried, isA) {
			tried = append(tried, a)
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
	preferred = len(tried)
	for _, a := range found {
		if !in.OnlyKnown {
			add(a)
		}
	}
	return tried, preferred, nil
}

// knownFor returns the known accounts of the browser that have the given e-mail address.
func (s *Service) knownFor(r *http.Request, email string) (known []knownAccount, _ error) {
	for _, k := range s.knownAccounts(r) {
		var err error
		if k.account, err = s.accounts.Account(r.Context(), k.Account); err != nil && !errors.Is(err, fault.NotFound) {
			return nil, err
		}
		if err == nil && k.account.Email == email {
			known = append(known, k)
		}
	}
	return known, nil
}

// finishLocalSignIn is finishSignIn for a local account.
func (s *Service) finishLocalSignIn(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	allowed, err := s.people.LocalAllowed(r.Context(), a)
	if err == nil && !allowed {
		s.site.Refuse(r, site.RefusalAt(a, f.Method, resource.RefusedAdmit))
		err = fault.New(fault.PermissionDenied,
			"Permission denied: the organization of this account does not allow local accounts; use its identity provider")
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
	f.Proofs, f.Account, f.account = nil, a.UID, &a
	s.rememberBrowser(w, r, a.UID)
	_, err = s.finishSignIn(w, r, f, arrival, "")
	return err
}
