package selfservice

import (
	"encoding/base64"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/factor"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

const passkeyCookie = "hf_passkey"

// registerStart checks the password and begins the registration of a passkey. It checks
// the password because the owner of the new passkey can sign in with it.
func (s *Service) registerStart(w http.ResponseWriter, r *http.Request, in site.ScriptRequest) (any, error) {
	a, n, err := s.scriptAccount(r, in)
	if err != nil {
		return nil, err
	}
	err = s.verifyCurrentPassword(r, a, "passkey", in.Current)
	if f := fault.From(err); err != nil && len(f.Fields) > 0 {
		return nil, site.ScriptFailure(f.Code.HTTPStatus(), "This is not your password.", nil)
	}
	if err != nil {
		return nil, err
	}
	org, err := s.admin.OrganizationName(r.Context(), a.UID)
	var options factor.Options
	var state []byte
	if err == nil {
		options, state, err = s.factors.BeginRegistration(a, org)
	}
	if err != nil {
		return nil, site.ScriptFailure(http.StatusInternalServerError, "A passkey cannot be asked for now.", err)
	}
	http.SetCookie(w, s.site.SealedCookie(passkeyCookie, "passkey "+n.ID, state, setupLife))
	return options, nil
}

// register finishes the registration of a passkey.
func (s *Service) register(w http.ResponseWriter, r *http.Request, in site.ScriptRequest) (any, error) {
	a, n, err := s.scriptAccount(r, in)
	if err != nil {
		return nil, err
	}
	// Without the cookie, state is empty and UseRegistration returns an error.
	state, _ := s.site.OpenCookie(r, passkeyCookie, "passkey "+n.ID)
	ceremony, err := s.factors.UseRegistration(r.Context(), state)
	if err != nil {
		return nil, err
	}
	r = r.WithContext(s.authz.WithSession(site.ActingAs(r.Context(), n), n))
	if len(a.Passkeys) == 0 { // the choice only matters for accounts with a passkey
		if err := s.setPasswordAlone(r, a, in.Required == requireEither); err != nil {
			return nil, err
		}
	}
	if err := s.factors.AddPasskey(r.Context(), a, ceremony, in.Credential, in.Name); err != nil {
		return nil, err
	}
	s.admin.LogChange(r.Context(), "a passkey was added", a)
	http.SetCookie(w, s.site.Cookie(passkeyCookie, "", 0))
	return map[string]string{"location": "/account?added=passkey"}, nil
}

// scriptAccount returns the session of the browser that sent a script request, and the
// local account of its person.
func (s *Service) scriptAccount(
	r *http.Request, in site.ScriptRequest,
) (a resource.Account, n resource.Session, err error) {
	n, ok := s.site.Session(r)
	if !ok || !s.site.SameCSRF(n, in.CSRF) {
		return a, n, site.ScriptFailure(http.StatusForbidden, "You are no longer signed in. Load the page again.", nil)
	}
	if a, err = s.accounts.AccountOf(r.Context(), n.Identity); err != nil || !s.factors.Passkeys() {
		return a, n, site.ScriptFailure(http.StatusBadRequest, "Passkeys are for local accounts.", nil)
	}
	return a, n, nil
}

// passkeyRemove checks the password and removes a passkey. It refuses to remove the only
// credential of an account.
func (s *Service) passkeyRemove(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	id, err := base64.RawURLEncoding.DecodeString(input.Field(w, r, "id"))
	if err != nil {
		return fault.Field("id", "is not a passkey")
	}
	if a.Password == "" && len(a.Passkeys) == 1 {
		return fault.Unmet("LAST_WAY_IN", "this passkey is your only way to sign in; set a password first")
	}
	if err := s.verifyCurrentPassword(r, a, "removal", input.Field(w, r, "current")); err != nil {
		return err
	}
	if err := s.accounts.DropPasskey(r.Context(), a.UID, id); err != nil {
		return err
	}
	s.admin.LogChange(r.Context(), "a passkey was removed", a)
	return s.accountNotice(w, r, n, "The passkey is removed.")
}

// factorChange sets whether a passkey is required after the password.
func (s *Service) factorChange(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "factor", input.Field(w, r, "current")); err != nil {
		return err
	}
	alone := input.Field(w, r, "required") == requireEither
	if err := s.setPasswordAlone(r, a, alone); err != nil {
		return err
	}
	notice := "A passkey is asked for after your password from now on."
	if alone {
		notice = "Your password or a passkey is enough from now on."
	}
	return s.accountNotice(w, r, n, notice)
}

// requireEither is the form value with which a password alone is enough. With any other
// value, a passkey is required after the password.
const requireEither = "either"

// setPasswordAlone sets whether the password of an account is enough without a passkey.
func (s *Service) setPasswordAlone(r *http.Request, a resource.Account, alone bool) error {
	_, err := s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.PasswordAlone = alone
		return nil
	}, resource.SecondFactorChanged)
	if err == nil {
		s.admin.LogChange(r.Context(), "the second factor was changed", a)
	}
	return err
}
