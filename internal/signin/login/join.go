package login

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

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

// join creates an account for a person with an invite, and signs them in. If the invite
// does not admit the person, it deletes the account.
func (s *Service) join(w http.ResponseWriter, r *http.Request, f *flow) error {
	invite, err := s.requireInvite(r, f)
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	a := resource.Account{
		Email: resource.NormalEmail(cmp.Or(invite.Email, input.Field(w, r, "email"))),
		Name:  strings.TrimSpace(input.Field(w, r, "name")), UseTime: s.now(),
	}
	a, err = s.admin.AddWithPassword(r.Context(), invite.root, a, input.Field(w, r, "password"))
	var arrival resource.SignIn
	if err == nil {
		arrival, err = s.arrivalOfAccount(r.Context(), a)
	}
	if err == nil {
		s.rememberBrowser(w, r, a.UID)
		f.Account, f.Method = a.UID, resource.ByInvite
		admitted, err := s.finishSignIn(w, r, f, arrival, "")
		if !admitted {
			if err := s.people.DeleteAccount(r.Context(), a.UID); err != nil {
				s.log.WarnContext(r.Context(), "delete an account whose invite was refused", "account", a.UID, "err", err)
			}
		}
		return err
	}
	reported := s.site.Report(r, err)
	p := &joinPage{Email: a.Email, Name: a.Name}
	p.SetError(reported)
	if reported.Code == fault.AlreadyExists {
		p.Problem = "The organization already has an account with this e-mail address. " +
			"Sign in with it to accept the invite."
	}
	return s.joinPage(w, r, reported.Code.HTTPStatus(), f, p)
}

// beginJoin handles the link of an invite. It moves the code from the address into the
// cookie, so that the code does not stay in the history of the browser.
func (s *Service) beginJoin(w http.ResponseWriter, r *http.Request) error {
	f := &flow{Purpose: forBrowser, Invite: r.URL.Query().Get("code")}
	if _, err := s.inviteOf(r, f); err != nil {
		return site.Titled("This invite cannot be used", err)
	}
	return s.start(w, r, f)
}
