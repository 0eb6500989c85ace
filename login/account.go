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
	mux.HandleFunc("GET /account", s.showAccount)
	mux.HandleFunc("POST /account/password", s.changePassword)
	mux.HandleFunc("POST /account/totp/start", s.totpStart)
	mux.HandleFunc("POST /account/totp", s.totpFinish)
	mux.HandleFunc("POST /account/totp/remove", s.totpRemove)
	mux.HandleFunc("POST /account/recovery", s.recoveryRenew)
	mux.HandleFunc("POST /account/passkeys/start", s.registerStart)
	mux.HandleFunc("POST /account/passkeys", s.register)
	mux.HandleFunc("POST /account/passkeys/remove", s.passkeyRemove)
	mux.HandleFunc("POST /account/sessions/end", s.sessionEnd)
	mux.HandleFunc("POST /signout", s.signOut)
}

func (s *Service) sameCSRF(n resource.Session, token string) bool {
	return subtle.ConstantTimeCompare([]byte(s.csrf(n.ID)), []byte(token)) == 1
}

// requireSession returns the session of a browser whose form this is. Where there is
// none it leads to the sign-in.
func (s *Service) requireSession(w http.ResponseWriter, r *http.Request) (n resource.Session, ok bool) {
	if n, ok = s.browser(r); !ok {
		s.redirect(w, r, "/signin")
		return n, false
	}
	if r.Method == http.MethodPost && !s.sameCSRF(n, s.field(w, r, "csrf")) {
		s.problem(w, r, http.StatusForbidden, "This form is not of your session", "Load the page again.")
		return n, false
	}
	return n, true
}

// requireAccount is signedIn for somebody with an account that is kept here.
func (s *Service) requireAccount(w http.ResponseWriter, r *http.Request) (n resource.Session, a resource.Account, ok bool) {
	if n, ok = s.requireSession(w, r); !ok {
		return n, a, false
	}
	a, err := s.store.AccountOf(r.Context(), n.Identity)
	if err != nil {
		s.fail(w, r, "This is for accounts that are kept here", err)
		return n, a, false
	}
	return n, a, true
}

// showAccount shows who somebody is here, and from where they are signed in.
func (s *Service) showAccount(w http.ResponseWriter, r *http.Request) {
	if n, ok := s.requireSession(w, r); ok {
		s.accountPage(w, r, http.StatusOK, n, &accountPage{})
	}
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
	a, err := s.store.AccountOf(ctx, n.Identity)
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
			p.Passkeys = append(p.Passkeys, shownPasskey{base64.RawURLEncoding.EncodeToString(k.ID), k.Name, k.CreateTime, k.UsedTime})
		}
	}
	all, err := s.store.Sessions(ctx, n.Identity)
	for _, o := range all {
		p.Sessions = append(p.Sessions, shownSession{o.ID, Program(o.Agent), o.Address, o.CreateTime, o.UsedTime, o.ExpireTime, o.ID == n.ID})
	}
	return err
}

// showAccountError shows the account page with what went wrong in a form of it.
func (s *Service) showAccountError(w http.ResponseWriter, r *http.Request, n resource.Session, err error) {
	f := s.report(r, err)
	p := &accountPage{}
	p.Problem = plainText(f)
	if len(f.Fields) > 0 {
		p.Problem, p.Wrong = "", fieldProblems(f)
	}
	s.accountPage(w, r, statusOf(f), n, p)
}

// verifyCurrentPassword checks the password of somebody who is about to change how they sign in:
// a browser that was left open is not enough. Its error is about that field of
// the page.
func (s *Service) verifyCurrentPassword(r *http.Request, a resource.Account, field, current string) error {
	attempt, wait := s.acquireAttempt(r, "inside "+string(a.UID), nil) // strangers who guess on the sign-in page do not count here
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

// changePassword sets another password. All other sessions end.
func (s *Service) changePassword(w http.ResponseWriter, r *http.Request) {
	n, a, ok := s.requireAccount(w, r)
	if !ok {
		return
	}
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
		_, err = s.store.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error { a.Password = hash; return nil })
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

// totpRemove turns one-time passwords off.
func (s *Service) totpRemove(w http.ResponseWriter, r *http.Request) {
	n, a, ok := s.requireAccount(w, r)
	if !ok {
		return
	}
	err := s.verifyCurrentPassword(r, a, "totp", s.field(w, r, "current"))
	if err == nil {
		_, err = s.store.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error { a.TOTP, a.TOTPStep = nil, 0; return nil })
	}
	if err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	s.accountPage(w, r, http.StatusOK, n, &accountPage{Notice: "One-time passwords are off."})
}

// passkeyRemove takes a passkey away from who proves to be there, but not the
// only way in.
func (s *Service) passkeyRemove(w http.ResponseWriter, r *http.Request) {
	n, a, ok := s.requireAccount(w, r)
	if !ok {
		return
	}
	id, err := base64.RawURLEncoding.DecodeString(s.field(w, r, "id"))
	if err != nil {
		err = fault.Field("id", "is not a passkey")
	} else if a.Password == "" && len(a.Passkeys) == 1 {
		err = fault.Unmet("LAST_WAY_IN", "this passkey is your only way to sign in; set a password first")
	} else if err = s.verifyCurrentPassword(r, a, "removal", s.field(w, r, "current")); err == nil {
		err = s.store.DropPasskey(r.Context(), a.UID, id)
	}
	if err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	s.accountPage(w, r, http.StatusOK, n, &accountPage{Notice: "The passkey is removed."})
}

// sessionEnd ends one of somebody's own sessions.
func (s *Service) sessionEnd(w http.ResponseWriter, r *http.Request) {
	n, ok := s.requireSession(w, r)
	if !ok {
		return
	}
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
func (s *Service) signOut(w http.ResponseWriter, r *http.Request) {
	n, ok := s.requireSession(w, r)
	if !ok {
		return
	}
	if _, err := s.store.EndSession(r.Context(), n.ID); err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", 0))
	s.show(w, r, http.StatusOK, "done", nil, &donePage{Purpose: "signed-out", Text: "You are signed out."})
}
