package login

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

func (s *Service) accountRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /account", s.withSession(s.showAccount))
	mux.HandleFunc("POST /account/password", s.withAccount(s.changePassword))
	mux.HandleFunc("POST /account/totp/start", s.withAccount(s.totpStart))
	mux.HandleFunc("POST /account/totp", s.withAccount(s.totpFinish))
	mux.HandleFunc("POST /account/totp/remove", s.withAccount(s.totpRemove))
	mux.HandleFunc("POST /account/recovery", s.withAccount(s.recoveryRenew))
	mux.HandleFunc("POST /account/passkeys/start", s.registerStart)
	mux.HandleFunc("POST /account/passkeys", s.register)
	mux.HandleFunc("POST /account/passkeys/remove", s.withAccount(s.passkeyRemove))
	mux.HandleFunc("POST /account/sessions/end", s.withSession(s.sessionEnd))
	mux.HandleFunc("POST /signout", s.withSession(s.signOut))
}

func (s *Service) sameCSRF(n resource.Session, token string) bool {
	return subtle.ConstantTimeCompare([]byte(s.csrf(n.ID)), []byte(token)) == 1
}

// withSession calls next with the session of the browser, if the request is a
// form of that session. Without a session it redirects to the sign-in.
func (s *Service) withSession(next func(http.ResponseWriter, *http.Request, resource.Session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, ok := s.browser(r)
		if !ok {
			s.redirect(w, r, "/signin")
			return
		}
		if r.Method == http.MethodPost && !s.sameCSRF(n, s.field(w, r, "csrf")) {
			s.problem(w, r, http.StatusForbidden, "This form is not of your session", "Load the page again.")
			return
		}
		next(w, r, n)
	}
}

// withAccount is withSession for people with an account here.
func (s *Service) withAccount(
	next func(http.ResponseWriter, *http.Request, resource.Session, resource.Account),
) http.HandlerFunc {
	return s.withSession(func(w http.ResponseWriter, r *http.Request, n resource.Session) {
		a, err := s.accounts.AccountOf(r.Context(), n.Identity)
		if err != nil {
			s.fail(w, r, "This is for accounts that are kept here", err)
			return
		}
		next(w, r, n, a)
	})
}

// showAccount shows a person's identity, credentials and sessions.
func (s *Service) showAccount(w http.ResponseWriter, r *http.Request, n resource.Session) {
	s.accountPage(w, r, http.StatusOK, n, &accountPage{})
}

func (s *Service) accountPage(w http.ResponseWriter, r *http.Request, status int, n resource.Session, p *accountPage) {
	if err := s.fillAccount(r.Context(), n, p); err != nil {
		s.fail(w, r, "Your account cannot be shown", err)
		return
	}
	s.show(w, r, status, "account", nil, p)
}

func (s *Service) fillAccount(ctx context.Context, n resource.Session, p *accountPage) error {
	p.CSRF = s.csrf(n.ID)
	i, err := s.store.Identity(ctx, n.Identity)
	if err != nil {
		return err
	}
	p.Identity, p.Name, p.Email = string(i.UID), i.Name, i.Email
	if p.Email == "" {
		p.Email = i.EmailUnverified
	}
	if uid := n.Voucher.Provider(); uid != "" {
		idp, err := s.store.Provider(ctx, uid)
		if err != nil {
			return err
		}
		org, err := s.store.Group(ctx, uid.Root())
		if err != nil {
			return err
		}
		p.Provider, p.Organization = idp.Name, org.Name
	}
	a, err := s.accounts.AccountOf(ctx, n.Identity)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	if err == nil {
		org, err := s.store.Group(ctx, a.UID.Root())
		if err != nil {
			return err
		}
		p.Organization, p.Local, p.TOTP, p.CanPasskey = org.Name, true, len(a.TOTP) > 0, s.webauthn != nil
		p.Factor, p.RecoveryCodes = hasFactor(a), a.RecoveryCodes
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

// showAccountError shows the account page with an error of one of its forms.
func (s *Service) showAccountError(w http.ResponseWriter, r *http.Request, n resource.Session, err error) {
	f := s.report(r, err)
	p := &accountPage{}
	p.setError(f)
	s.accountPage(w, r, f.Code.HTTPStatus(), n, p)
}

// verifyCurrentPassword checks the password of somebody who is about to change
// how they sign in, because a browser that was left open is not enough. Its
// error names that field of the page.
func (s *Service) verifyCurrentPassword(r *http.Request, a resource.Account, field, current string) error {
	attempt, wait := s.acquireAttempt(r, "inside "+string(a.UID), nil) // guesses on the sign-in page do not count here
	if wait > 0 {
		return fault.New(fault.ResourceExhausted, "Resource exhausted: %s", tooMany(wait))
	}
	ok, err := s.hashes.verify(r.Context(), a.Password, current)
	if err == nil && !ok && a.Password != "" {
		return fault.Field(field, "is not your password")
	}
	if err == nil {
		attempt.release()
	}
	return err
}

// changePassword sets another password and ends all other sessions.
func (s *Service) changePassword(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) {
	err := s.verifyCurrentPassword(r, a, "current", s.field(w, r, "current"))
	password := s.field(w, r, "password")
	if err == nil {
		err = checkPassword(password, a.Email)
	}
	var hash string
	if err == nil {
		hash, err = s.hashes.hash(r.Context(), password)
	}
	if err == nil {
		_, err = s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
			a.Password = hash
			return nil
		})
	}
	if err == nil {
		_, err = s.store.EndSessions(r.Context(), n.Identity, n.ID)
	}
	if err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	s.accountPage(w, r, http.StatusOK, n, &accountPage{Notice: "Your password is changed. Other sessions have ended."})
}

// totpRemove disables one-time passwords.
func (s *Service) totpRemove(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) {
	err := s.verifyCurrentPassword(r, a, "totp", s.field(w, r, "current"))
	if err == nil {
		_, err = s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
			a.TOTP, a.TOTPStep = nil, 0
			return nil
		})
	}
	if err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	s.accountPage(w, r, http.StatusOK, n, &accountPage{Notice: "One-time passwords are off."})
}

// passkeyRemove removes a passkey after the password was checked, unless it is
// the only way to sign in.
func (s *Service) passkeyRemove(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) {
	id, err := base64.RawURLEncoding.DecodeString(s.field(w, r, "id"))
	if err != nil {
		err = fault.Field("id", "is not a passkey")
	} else if a.Password == "" && len(a.Passkeys) == 1 {
		err = fault.Unmet("LAST_WAY_IN", "this passkey is your only way to sign in; set a password first")
	} else if err = s.verifyCurrentPassword(r, a, "removal", s.field(w, r, "current")); err == nil {
		err = s.accounts.DropPasskey(r.Context(), a.UID, id)
	}
	if err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	s.accountPage(w, r, http.StatusOK, n, &accountPage{Notice: "The passkey is removed."})
}

// sessionEnd ends one of the person's own sessions.
func (s *Service) sessionEnd(w http.ResponseWriter, r *http.Request, n resource.Session) {
	id := s.field(w, r, "id")
	other, err := s.store.Session(r.Context(), id)
	if err == nil && other.Identity != n.Identity {
		err = fault.Missing("session", id)
	}
	if err == nil {
		_, err = s.store.EndSession(r.Context(), id)
	}
	if err != nil && !errors.Is(err, fault.NotFound) {
		s.showAccountError(w, r, n, err)
		return
	}
	s.redirect(w, r, "/account")
}

// signOut ends the session of the browser.
func (s *Service) signOut(w http.ResponseWriter, r *http.Request, n resource.Session) {
	if _, err := s.store.EndSession(r.Context(), n.ID); err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", 0))
	s.show(w, r, http.StatusOK, "done", nil, &donePage{Purpose: "signed-out", Text: "You are signed out."})
}
