package selfservice

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/factor"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// Routes adds the account pages to mux.
func (s *Service) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /account", s.withSession(s.showAccount))
	mux.HandleFunc("GET /account/welcome", s.withSession(s.showWelcome))
	mux.HandleFunc("POST /account/password", s.withAccount(s.changePassword))
	mux.HandleFunc("POST /account/totp/start", s.withAccount(s.totpStart))
	mux.HandleFunc("POST /account/totp", s.withAccount(s.totpFinish))
	mux.HandleFunc("POST /account/totp/remove", s.withAccount(s.totpRemove))
	mux.HandleFunc("POST /account/recovery", s.withAccount(s.recoveryRenew))
	mux.HandleFunc("POST /account/passkeys/start", s.site.HandleScript(s.registerStart))
	mux.HandleFunc("POST /account/passkeys", s.site.HandleScript(s.register))
	mux.HandleFunc("POST /account/passkeys/remove", s.withAccount(s.passkeyRemove))
	mux.HandleFunc("POST /account/factor", s.withAccount(s.factorChange))
	mux.HandleFunc("POST /account/sessions/end", s.withSession(s.sessionEnd))
	mux.HandleFunc("POST /signout", s.withSession(s.signOut))
}

// withSession returns a handler that calls next with the session of the browser. It
// redirects to the sign-in page if there is no session, and refuses a form that does
// not belong to the session. It shows an error of next on the account page, or on an
// error page if the error has a title.
func (s *Service) withSession(next func(http.ResponseWriter, *http.Request, resource.Session) error) http.HandlerFunc {
	return s.site.Handle(func(w http.ResponseWriter, r *http.Request) error {
		n, ok := s.site.Session(r)
		if !ok {
			return site.Redirect(w, r, "/signin")
		}
		if r.Method == http.MethodPost && !s.site.SameCSRF(n, input.Field(w, r, "csrf")) {
			return s.site.Problem(w, r, http.StatusForbidden, "This form does not belong to your session",
				"Load the page again.")
		}
		r = r.WithContext(s.authz.WithSession(site.ActingAs(r.Context(), n), n))
		err := next(w, r, n)
		if _, ok := errors.AsType[*site.TitledError](err); ok || err == nil {
			return err
		}
		f := s.site.Report(r, err)
		p := &accountPage{}
		p.SetError(f)
		return s.accountPage(w, r, f.Code.HTTPStatus(), n, p)
	})
}

// withAccount is withSession for people with a local account.
func (s *Service) withAccount(
	next func(http.ResponseWriter, *http.Request, resource.Session, resource.Account) error,
) http.HandlerFunc {
	return s.withSession(func(w http.ResponseWriter, r *http.Request, n resource.Session) error {
		a, err := s.accounts.AccountOf(r.Context(), n.Identity)
		if err != nil {
			return site.Titled("This page is for local accounts", err)
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
		return site.Titled("Your account cannot be shown", err)
	}
	return s.site.Show(w, r, status, "account", p)
}

// fillAccount fills in the account page for the person of a session.
func (s *Service) fillAccount(ctx context.Context, n resource.Session, p *accountPage) error {
	p.CSRF = s.site.CSRF(n.ID)
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
		if p.Organization, err = s.admin.OrganizationName(ctx, uid); err != nil {
			return err
		}
	}
	var total int
	if p.Roles, total, err = s.heldRoles(ctx, n.Identity); err != nil {
		return err
	}
	p.MoreRoles = total - len(p.Roles)
	a, org, err := s.admin.AccountOf(ctx, n.Identity)
	if err != nil {
		return err
	}
	if a != nil {
		p.Organization, p.Local, p.TOTP, p.CanPasskey = org, true, len(a.TOTP) > 0, s.factors.Passkeys()
		p.Factor, p.RecoveryCodes, p.PasswordAlone = factor.Has(*a), a.RecoveryCodes, a.PasswordAlone
		for _, k := range a.Passkeys {
			id := base64.RawURLEncoding.EncodeToString(k.ID)
			p.Passkeys = append(p.Passkeys, shownPasskey{id, k.Name, k.CreateTime, k.UsedTime})
		}
	}
	sessions, err := s.store.Sessions(ctx, n.Identity)
	for _, o := range sessions {
		p.Sessions = append(p.Sessions, shownSession{
			o.ID, input.Program(o.Agent), o.Address, o.CreateTime, o.UsedTime, o.ExpireTime, o.ID == n.ID,
		})
	}
	return err
}

// sessionEnd ends a session of the person.
func (s *Service) sessionEnd(w http.ResponseWriter, r *http.Request, n resource.Session) error {
	id := input.Field(w, r, "id")
	ended, err := s.store.Session(r.Context(), id)
	if err == nil && ended.Identity == n.Identity {
		_, err = s.store.EndSession(r.Context(), id)
	}
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	return site.Redirect(w, r, "/account")
}

// signOut ends the session of the browser.
func (s *Service) signOut(w http.ResponseWriter, r *http.Request, n resource.Session) error {
	if _, err := s.store.EndSession(r.Context(), n.ID); err != nil {
		return err
	}
	s.site.SetSession(w, "", 0)
	return s.site.Show(w, r, http.StatusOK, "done", &site.DonePage{Purpose: "signed-out", Text: "You are signed out."})
}
