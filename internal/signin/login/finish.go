package login

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// finishSignIn signs in a person who is authenticated. It registers the person, redeems
// the invite, starts a session of the browser, and continues with the purpose of the
// sign-in. raw is the ID token of the provider, or "". admitted reports whether the
// person was admitted.
func (s *Service) finishSignIn(
	w http.ResponseWriter, r *http.Request, f *flow, arrival resource.SignIn, raw string,
) (admitted bool, _ error) {
	ctx, landing, err := s.admit(r.Context(), f, arrival)
	r = r.WithContext(ctx)
	if err != nil {
		s.site.Refuse(r, denials.Refusal{
			Group: homeGroup(arrival), Activity: resource.Activity{
				Method: f.Method, Provider: arrival.Voucher.Provider(), Reason: resource.RefusedAdmit,
			},
		})
		return false, s.refuse(w, r, f, err)
	}
	n, secret, err := s.startBrowser(r, f, arrival, landing)
	if err != nil {
		return true, s.refuse(w, r, f, err)
	}
	s.rememberDevice(w, r, n.Identity)
	s.site.SetSession(w, secret, s.cfg.SessionLife)
	if arrival.Voucher == "" || f.needsCredential() {
		s.site.MarkFresh(w, n.ID)
	}
	s.rememberProvider(w, arrival.Voucher.Provider())
	if f.Invite != "" {
		s.admin.LogActivity(ctx, "joined with an invite", resource.Activity{
			Identity: n.Identity, Method: resource.ByInvite, Address: n.Address,
		})
	}
	f.Session, f.Joined, f.Invite, f.Account, f.WebAuthn = n.ID, landing.Joined, "", "", nil
	f.UpstreamState, f.Nonce, f.Verifier = "", "", ""
	switch f.Purpose {
	case forCommand:
		return true, s.deliver(w, r, f, n, raw)
	case forHeadless, forDevice:
		s.saveFlow(w, r, f)
		// The sign-in page asks for consent first, because an attacker may have sent the person here.
		return true, site.Redirect(w, r, "/signin?flow="+f.ID)
	}
	s.deleteFlow(w, f)
	return true, site.Redirect(w, r, f.goesTo())
}

// admit admits a person, with the invite of the flow if there is one. Changes with the
// returned context are attributed to the person.
func (s *Service) admit(
	ctx context.Context, f *flow, arrival resource.SignIn,
) (_ context.Context, l resource.SignInResult, err error) {
	if ctx, err = s.withPerson(ctx, arrival); err != nil {
		return ctx, l, err
	}
	if f.Invite != "" {
		presented, err := readInvite(f.Invite)
		if err != nil {
			return ctx, l, err
		}
		arrival.Invite = &presented
	}
	arrival.Register = arrival.Register && !f.RegisteredOnly
	l, err = s.people.SignIn(ctx, arrival)
	if err == nil && len(l.Kept) > 0 {
		s.log.WarnContext(ctx,
			"kept the last owner, although the provider no longer lists them in the group",
			"bindings", l.Kept)
	}
	return ctx, l, err
}

// startBrowser starts a new session of the browser, and ends its previous session, because an attacker may have planted
// the previous session in the browser.
func (s *Service) startBrowser(
	r *http.Request, f *flow, arrival resource.SignIn, landing resource.SignInResult,
) (n resource.Session, secret string, _ error) {
	if old, ok := s.site.Session(r); ok {
		if _, err := s.store.EndSession(r.Context(), old.ID); err != nil {
			return n, "", err
		}
	}
	started := s.now()
	n = resource.Session{
		ID: rand.Text(), Identity: landing.Identity.UID, Email: landing.Identity.Email,
		Act:     &resource.Upstream{Issuer: arrival.Issuer, Subject: arrival.Subject},
		Voucher: arrival.Voucher, Home: homeGroup(arrival), Agent: input.Agent(r), Address: input.Remote(r), Browser: true,
		CreateTime: started, UsedTime: started, ExpireTime: started.Add(s.cfg.SessionLife),
	}
	secret = rand.Text() + rand.Text()
	how := resource.Activity{
		Identity: n.Identity, Account: f.Account, Method: f.Method, Factor: f.Factor, Provider: n.Voucher.Provider(),
		Agent: n.Agent, Address: n.Address, Session: n.ID,
	}
	also, err := s.mailNewDevice(r, f, arrival, n, landing)
	if err != nil {
		return n, "", err
	}
	if f.account != nil {
		also = append(also, s.accounts.RequireCredentials(r.Context(), *f.account))
	}
	if err := s.store.StartBrowserSession(r.Context(), n, signindb.Digest(secret), how, also...); err != nil {
		return n, "", err
	}
	s.admin.LogActivity(r.Context(), "signed in", how)
	return n, secret, nil
}

// StartSession signs in the person of an account in the browser of a request. It checks no
// credential, because it is for setting up a server.
func (s *Service) StartSession(w http.ResponseWriter, r *http.Request, a resource.Account) error {
	r = r.WithContext(resource.WithActor(r.Context(), resource.Actor{RequestID: rand.Text(), Remote: input.Remote(r)}))
	arrival, err := s.arrivalOfAccount(r.Context(), a)
	if err != nil {
		return err
	}
	f := &flow{Method: resource.BySetUp, Account: a.UID}
	ctx, landing, err := s.admit(r.Context(), f, arrival)
	if err != nil {
		return err
	}
	n, secret, err := s.startBrowser(r.WithContext(ctx), f, arrival, landing)
	if err != nil {
		return err
	}
	s.site.MarkFresh(w, n.ID)
	s.rememberDevice(w, r, a.Identity)
	s.site.SetSession(w, secret, s.cfg.SessionLife)
	s.rememberBrowser(w, r, a.UID)
	return s.accounts.NoteUse(ctx, a.UID, s.now())
}
