package login

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func (s *Service) accountRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /account", s.withSession(s.showAccount))
	mux.HandleFunc("GET /account/welcome", s.withSession(s.showWelcome))
	mux.HandleFunc("POST /account/password", s.withAccount(s.changePassword))
	mux.HandleFunc("POST /account/totp/start", s.withAccount(s.totpStart))
	mux.HandleFunc("POST /account/totp", s.withAccount(s.totpFinish))
	mux.HandleFunc("POST /account/totp/remove", s.withAccount(s.totpRemove))
	mux.HandleFunc("POST /account/recovery", s.withAccount(s.recoveryRenew))
	mux.HandleFunc("POST /account/passkeys/start", s.handleScript(s.registerStart))
	mux.HandleFunc("POST /account/passkeys", s.handleScript(s.register))
	mux.HandleFunc("POST /account/passkeys/remove", s.withAccount(s.passkeyRemove))
	mux.HandleFunc("POST /account/factor", s.withAccount(s.factorChange))
	mux.HandleFunc("POST /account/sessions/end", s.withSession(s.sessionEnd))
	mux.HandleFunc("POST /signout", s.withSession(s.signOut))
}

func (s *Service) sameCSRF(n resource.Session, token string) bool {
	return subtle.ConstantTimeCompare([]byte(s.csrf(n.ID)), []byte(token)) == 1
}

// withSession calls next with the session of the browser, if the request is a
// form of that session. Without a session it redirects to the sign-in. An error
// of next is shown on the account page, unless it has a title of its own.
func (s *Service) withSession(next func(http.ResponseWriter, *http.Request, resource.Session) error) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		n, ok := s.browser(r)
		if !ok {
			return s.redirect(w, r, "/signin")
		}
		if r.Method == http.MethodPost && !s.sameCSRF(n, s.field(w, r, "csrf")) {
			return s.problem(w, r, http.StatusForbidden, "This form is not of your session", "Load the page again.")
		}
		r = r.WithContext(actingAs(r.Context(), n))
		err := next(w, r, n)
		if _, ok := errors.AsType[*titledError](err); ok || err == nil {
			return err
		}
		f := s.report(r, err)
		p := &accountPage{}
		p.setError(f)
		return s.accountPage(w, r, f.Code.HTTPStatus(), n, p)
	})
}

// withAccount is withSession for people with an account here.
func (s *Service) withAccount(
	next func(http.ResponseWriter, *http.Request, resource.Session, resource.Account) error,
) http.HandlerFunc {
	return s.withSession(func(w http.ResponseWriter, r *http.Request, n resource.Session) error {
		a, err := s.accounts.AccountOf(r.Context(), n.Identity)
		if err != nil {
			return titled("This is for accounts that are kept here", err)
		}
		return next(w, r, n, a)
	})
}

// showAccount shows a person's identity, credentials and sessions.
func (s *Service) showAccount(w http.ResponseWriter, r *http.Request, n resource.Session) error {
	p := &accountPage{}
	if r.URL.Query().Get("added") == "passkey" {
		p.Notice, p.Added = "The passkey is added.", true
	}
	return s.accountPage(w, r, http.StatusOK, n, p)
}

// accountNotice shows the account page with the result of one of its forms.
func (s *Service) accountNotice(w http.ResponseWriter, r *http.Request, n resource.Session, notice string) error {
	return s.accountPage(w, r, http.StatusOK, n, &accountPage{Notice: notice})
}

func (s *Service) accountPage(
	w http.ResponseWriter, r *http.Request, status int, n resource.Session, p *accountPage,
) error {
	if err := s.fillAccount(r.Context(), n, p); err != nil {
		return titled("Your account cannot be shown", err)
	}
	return s.show(w, r, status, "account", nil, p)
}

func (s *Service) fillAccount(ctx context.Context, n resource.Session, p *accountPage) error {
	p.CSRF = s.csrf(n.ID)
	i, err := s.store.Identity(ctx, n.Identity)
	if err != nil {
		return err
	}
	p.Identity, p.Name, p.Email = string(i.UID), i.Title(), cmp.Or(i.Email, i.EmailUnverified)
	if uid := n.Voucher.Provider(); uid != "" {
		idp, err := s.store.Provider(ctx, uid)
		if err != nil {
			return err
		}
		p.Provider = idp.Name
		if p.Organization, err = s.organizationName(ctx, uid); err != nil {
			return err
		}
	}
	var total int
	if p.Roles, total, err = s.heldRoles(ctx, n.Identity); err != nil {
		return err
	}
	p.MoreRoles = total - len(p.Roles)
	a, org, err := s.localAccount(ctx, n.Identity)
	if err != nil {
		return err
	}
	if a != nil {
		p.Organization, p.Local, p.TOTP, p.CanPasskey = org, true, len(a.TOTP) > 0, s.webauthn != nil
		p.Factor, p.RecoveryCodes, p.PasswordAlone = hasFactor(*a), a.RecoveryCodes, a.PasswordAlone
		for _, k := range a.Passkeys {
			id := base64.RawURLEncoding.EncodeToString(k.ID)
			p.Passkeys = append(p.Passkeys, shownPasskey{id, k.Name, k.CreateTime, k.UsedTime})
		}
	}
	all, err := s.store.Sessions(ctx, n.Identity)
	for _, o := range all {
		p.Sessions = append(p.Sessions, shownSession{
			o.ID, Program(o.Agent), o.Address, o.CreateTime, o.UsedTime, o.ExpireTime, o.ID == n.ID,
		})
	}
	return err
}

// localAccount returns the account that a person has here and the name of its
// organization, or nil if there is none.
func (s *Service) localAccount(ctx context.Context, person resource.UID) (*resource.Account, string, error) {
	a, err := s.accounts.AccountOf(ctx, person)
	if errors.Is(err, fault.NotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	org, err := s.organizationName(ctx, a.UID)
	return &a, org, err
}

// organizationName returns the name of the organization that uid is in.
func (s *Service) organizationName(ctx context.Context, uid resource.UID) (string, error) {
	org, err := s.store.Group(ctx, uid.Root())
	return org.Label(), err
}

// verifyCurrentPassword checks the password of somebody who is about to change
// how they sign in, because a browser that was left open is not enough. Its
// error names that field of the page.
func (s *Service) verifyCurrentPassword(r *http.Request, a resource.Account, field, current string) error {
	attempt, wait := s.acquireAttempt(r, "inside "+string(a.UID), nil) // guesses on the sign-in page do not count here
	if wait > 0 {
		s.refused(r, refusalAt(a, resource.ByPassword, resource.RefusedLimit))
		return fault.New(fault.ResourceExhausted, "Resource exhausted: %s", tooMany(wait))
	}
	ok, err := s.hashes.verify(r.Context(), a.Password, current)
	if err == nil && !ok && a.Password != "" {
		s.refused(r, refusalAt(a, resource.ByPassword, resource.RefusedPassword))
		return fault.Field(field, "is not your password")
	}
	if err == nil {
		attempt.release()
	}
	return err
}

// changePassword sets another password and ends all other sessions.
func (s *Service) changePassword(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "current", s.field(w, r, "current")); err != nil {
		return err
	}
	hash, err := s.HashPassword(r.Context(), s.field(w, r, "password"), a.Email)
	if err != nil {
		return err
	}
	_, err = s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.Password = hash
		return nil
	}, resource.PasswordChanged)
	if err == nil {
		s.logChange(r, "a password was changed", a)
		_, err = s.store.EndSessions(r.Context(), n.Identity, n.ID)
	}
	if err != nil {
		return err
	}
	return s.accountNotice(w, r, n, "Your password is changed. Other sessions have ended.")
}

// totpRemove disables one-time passwords.
func (s *Service) totpRemove(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "totp", s.field(w, r, "current")); err != nil {
		return err
	}
	_, err := s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.TOTP, a.TOTPStep = nil, 0
		return nil
	}, resource.AppRemoved)
	if err != nil {
		return err
	}
	s.logChange(r, "an authenticator app was removed", a)
	return s.accountNotice(w, r, n, "One-time passwords are off.")
}

// passkeyRemove removes a passkey after the password was checked, unless it is
// the only way to sign in.
func (s *Service) passkeyRemove(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	id, err := base64.RawURLEncoding.DecodeString(s.field(w, r, "id"))
	if err != nil {
		return fault.Field("id", "is not a passkey")
	}
	if a.Password == "" && len(a.Passkeys) == 1 {
		return fault.Unmet("LAST_WAY_IN", "this passkey is your only way to sign in; set a password first")
	}
	if err := s.verifyCurrentPassword(r, a, "removal", s.field(w, r, "current")); err != nil {
		return err
	}
	if err := s.accounts.DropPasskey(r.Context(), a.UID, id); err != nil {
		return err
	}
	s.logChange(r, "a passkey was removed", a)
	return s.accountNotice(w, r, n, "The passkey is removed.")
}

// factorChange decides whether a passkey is asked for after the password.
func (s *Service) factorChange(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "factor", s.field(w, r, "current")); err != nil {
		return err
	}
	alone := s.field(w, r, "required") == requireEither
	if err := s.setPasswordAlone(r, a, alone); err != nil {
		return err
	}
	notice := "A passkey is asked for after your password from now on."
	if alone {
		notice = "Your password or a passkey is enough from now on."
	}
	return s.accountNotice(w, r, n, notice)
}

// requireEither is the choice that a password is enough, though there are
// passkeys. With any other, a passkey is asked for after the password.
const requireEither = "either"

func (s *Service) setPasswordAlone(r *http.Request, a resource.Account, alone bool) error {
	_, err := s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.PasswordAlone = alone
		return nil
	}, resource.SecondFactorChanged)
	if err == nil {
		s.logChange(r, "what is asked for after the password was changed", a)
	}
	return err
}

// sessionEnd ends one of the person's own sessions.
func (s *Service) sessionEnd(w http.ResponseWriter, r *http.Request, n resource.Session) error {
	id := s.field(w, r, "id")
	other, err := s.store.Session(r.Context(), id)
	if err == nil && other.Identity == n.Identity {
		_, err = s.store.EndSession(r.Context(), id)
	}
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	return s.redirect(w, r, "/account")
}

// signOut ends the session of the browser.
func (s *Service) signOut(w http.ResponseWriter, r *http.Request, n resource.Session) error {
	if _, err := s.store.EndSession(r.Context(), n.ID); err != nil {
		return err
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", 0))
	return s.show(w, r, http.StatusOK, "done", nil, &donePage{Purpose: "signed-out", Text: "You are signed out."})
}
