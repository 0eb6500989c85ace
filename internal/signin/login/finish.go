package login

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

const (
	sessionCookie = "hf_session"
	codeLife      = time.Minute
	headlessLife  = 5 * time.Minute
)

// finishSignIn signs in a person who has proved who they are: it registers
// them, redeems their invite, starts a session of the browser, and continues
// with the purpose of the sign-in. raw is the ID token they came with, or "".
// It reports whether they were admitted.
func (s *Service) finishSignIn(
	w http.ResponseWriter, r *http.Request, f *flow, arrival resource.SignIn, raw string,
) (admitted bool, _ error) {
	ctx, landing, err := s.admit(r.Context(), f, arrival)
	r = r.WithContext(ctx)
	if err != nil {
		s.refused(r, denials.Refusal{
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
	http.SetCookie(w, s.cookie(sessionCookie, secret, s.cfg.SessionLife))
	if arrival.Voucher == "" || f.Again {
		s.markFresh(w, n.ID)
	}
	s.rememberProvider(w, arrival.Voucher.Provider())
	if f.Invite != "" {
		s.logActivity(ctx, "joined with an invite", resource.Activity{
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
		return true, s.redirect(w, r, "/signin?flow="+f.ID) // for consent first: they may have been lured here
	}
	s.deleteFlow(w, f)
	return true, s.redirect(w, r, f.goesTo())
}

// withPerson attributes changes to the person who has just signed in.
func (s *Service) withPerson(ctx context.Context, arrival resource.SignIn) (context.Context, error) {
	uid, err := s.personUID(ctx, arrival)
	a := resource.ActorFrom(ctx)
	a.Subject, a.Act = uid, &resource.Upstream{Issuer: arrival.Issuer, Subject: arrival.Subject}
	return resource.WithActor(ctx, a), err
}

// personUID returns the UID that the person of an arrival has, or will have.
func (s *Service) personUID(ctx context.Context, arrival resource.SignIn) (resource.UID, error) {
	if arrival.Identity != "" {
		return arrival.Identity, nil
	}
	return s.store.PersonUID(ctx, arrival.Realm, arrival.Subject)
}

// homeGroup returns the group that is responsible for a sign-in.
func homeGroup(arrival resource.SignIn) resource.UID {
	if arrival.Voucher != "" {
		return arrival.Voucher.Provider().Parent()
	}
	return arrival.Organization
}

// admit has the store admit a person, with the invite of their flow. Changes
// made with the context that it returns are attributed to them.
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
			"the last owner was left in place, though the provider no longer has them in the group",
			"bindings", l.Kept)
	}
	return ctx, l, err
}

// startBrowser starts a session of the browser. The one that it had before
// ends, so that nobody continues in a session that another person could have
// given them.
func (s *Service) startBrowser(
	r *http.Request, f *flow, arrival resource.SignIn, landing resource.SignInResult,
) (n resource.Session, secret string, _ error) {
	if old, ok := s.browser(r); ok {
		if _, err := s.store.EndSession(r.Context(), old.ID); err != nil {
			return n, "", err
		}
	}
	now := s.now()
	n = resource.Session{
		ID: newID(), Identity: landing.Identity.UID, Email: landing.Identity.Email,
		Act:     &resource.Upstream{Issuer: arrival.Issuer, Subject: arrival.Subject},
		Voucher: arrival.Voucher, Home: homeGroup(arrival), Agent: agent(r), Address: remote(r), Browser: true,
		CreateTime: now, UsedTime: now, ExpireTime: now.Add(s.cfg.SessionLife),
	}
	secret = newID() + newID()
	how := resource.Activity{
		Identity: n.Identity, Account: f.Account, Method: f.Method, Factor: f.Factor, Provider: n.Voucher.Provider(),
		Agent: n.Agent, Address: n.Address, Session: n.ID,
	}
	also, err := s.mailNewDevice(r, f, arrival, n, landing)
	if err != nil {
		return n, "", err
	}
	if err := s.store.StartBrowserSession(r.Context(), n, digest(secret), how, also...); err != nil {
		return n, "", err
	}
	s.logActivity(r.Context(), "signed in", how)
	return n, secret, nil
}

// browser returns the session of the browser that a request comes from.
func (s *Service) browser(r *http.Request) (resource.Session, bool) {
	c, err := r.Cookie(s.cookieName(sessionCookie))
	if err != nil || len(c.Value) != 52 {
		return resource.Session{}, false
	}
	n, err := s.store.BrowserSession(r.Context(), digest(c.Value), s.cfg.SessionIdle)
	if err != nil && !errors.Is(err, fault.NotFound) {
		s.logError(r, err)
	}
	return n, err == nil
}

// csrf returns the token that the forms of a session must contain.
func (s *Service) csrf(session string) string {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("forms"))
	m.Write([]byte(session))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// refuse ends a sign-in with an error. It reports the error to the program
// that waits on this computer or, if there is none, to the person.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, f *flow, err error) error {
	reported := s.report(r, err)
	s.deleteFlow(w, f)
	if f.Redirect == "" {
		return s.problem(w, r, reported.Code.HTTPStatus(), "You were not signed in", plainText(reported))
	}
	status := strconv.Itoa(reported.Code.HTTPStatus())
	return s.redirectToCommand(w, r, f, url.Values{"error": {reported.Message}, "status_code": {status}})
}

// redirectToCommand redirects the browser to the program that waits on this
// computer. If its address has parameters of these names they are replaced,
// because programs read the first.
func (s *Service) redirectToCommand(w http.ResponseWriter, r *http.Request, f *flow, answer url.Values) error {
	u, ok := loopback(f.Redirect)
	if !ok {
		return s.problem(w, r, http.StatusBadRequest, "This sign-in cannot go on", "It leads to another host.")
	}
	q := u.Query()
	for _, name := range []string{"token", "refresh_token", "error", "status_code", "code", "state"} {
		q.Del(name)
	}
	if f.State != "" {
		answer.Set("state", f.State)
	}
	maps.Copy(q, answer)
	u.RawQuery = q.Encode()
	return s.redirect(w, r, u.String())
}

// showConfirm asks a person who is signed in for consent.
func (s *Service) showConfirm(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session) error {
	i, err := s.store.Identity(r.Context(), n.Identity)
	if err != nil {
		return err
	}
	p := &confirmPage{
		Purpose: f.Purpose, Client: f.Client, Since: n.CreateTime,
		Name: i.Title(), Email: cmp.Or(i.Email, i.EmailUnverified),
	}
	p.CSRF = s.csrf(n.ID)
	if p.Invite, err = s.inviteOf(r, f); err != nil {
		return s.refuse(w, r, f, err)
	}
	if err := s.fillConsent(r.Context(), f, n, p); err != nil {
		return err
	}
	return s.show(w, r, http.StatusOK, "confirm", f, p)
}

// confirm accepts the answer to showConfirm.
func (s *Service) confirm(w http.ResponseWriter, r *http.Request, f *flow) error {
	n, ok := s.browser(r)
	if !ok || f.Identity != "" {
		return s.redirect(w, r, "/signin?flow="+f.ID)
	}
	if s.field(w, r, "answer") != "allow" {
		return s.deny(w, r, f)
	}
	if !s.sameCSRF(n, s.field(w, r, "csrf")) { // another window has signed in as somebody else since
		return s.redirect(w, r, "/signin?flow="+f.ID)
	}
	if f.Invite != "" {
		arrival, err := s.arrivalOfSession(r.Context(), n)
		var landing resource.SignInResult
		if err == nil {
			_, landing, err = s.admit(r.Context(), f, arrival)
		}
		if err != nil {
			return s.refuse(w, r, f, err)
		}
		s.logActivity(actingAs(r.Context(), n), "joined with an invite", resource.Activity{Identity: n.Identity})
		f.Invite, f.Joined = "", landing.Joined
	}
	if f.Purpose == forBrowser {
		s.deleteFlow(w, f)
		return s.redirect(w, r, f.goesTo())
	}
	return s.deliver(w, r, f, n, "")
}

// arrivalOfSession returns the arrival of a person who has a session.
func (s *Service) arrivalOfSession(ctx context.Context, n resource.Session) (resource.SignIn, error) {
	if n.Act == nil || !n.Identity.IsRoot() {
		return resource.SignIn{}, fault.New(fault.PermissionDenied,
			"Permission denied: this is not a person who signed in")
	}
	if n.Voucher == "" {
		a, err := s.accounts.AccountOf(ctx, n.Identity)
		if err == nil {
			return s.arrivalOfAccount(ctx, a)
		}
		if !errors.Is(err, fault.NotFound) {
			return resource.SignIn{}, err
		}
	}
	i, err := s.store.Identity(ctx, n.Identity)
	if err != nil {
		return resource.SignIn{}, err
	}
	arrival := resource.SignIn{
		Issuer: n.Act.Issuer, Subject: n.Act.Subject, Realm: i.Realm, Identity: i.UID, Voucher: n.Voucher,
		Email: i.Email, EmailVerified: i.Email != "",
	}
	if n.Voucher != "" {
		idp, err := s.store.Provider(ctx, n.Voucher.Provider())
		if err != nil {
			return resource.SignIn{}, err
		}
		arrival.Trusted = idp.Trusted
	}
	return arrival, nil
}

// switchUser ends the session of the browser, so that another person can sign
// in.
func (s *Service) switchUser(w http.ResponseWriter, r *http.Request, f *flow) error {
	if n, ok := s.browser(r); ok {
		if _, err := s.store.EndSession(r.Context(), n.ID); err != nil {
			return err
		}
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", 0))
	f.Session = ""
	s.saveFlow(w, r, f)
	return s.redirect(w, r, "/signin?flow="+f.ID)
}

// deny reports to the waiting program that the person refused.
func (s *Service) deny(w http.ResponseWriter, r *http.Request, f *flow) error {
	denied := fault.New(fault.PermissionDenied, "Permission denied: the sign-in was refused in the browser")
	if n, ok := s.browser(r); ok {
		if err := s.recordConsent(r, resource.ProgramDenied, f, n); err != nil {
			return err
		}
	}
	switch f.Purpose {
	case forCommand:
		return s.refuse(w, r, f, denied)
	case forHeadless:
		if err := s.storeHeadless(r.Context(), f, headless{Denied: true}); err != nil {
			return err
		}
	case forDevice:
		if err := s.accounts.DecideDevice(r.Context(), f.UserCode, resource.DeviceDenied, nil); err != nil {
			return titled("This device no longer waits", err)
		}
	}
	s.deleteFlow(w, f)
	return s.show(w, r, http.StatusOK, "done", nil, &donePage{
		Purpose: f.Purpose, Text: "Nothing was handed over. You can close this window.", Denied: true,
	})
}

// done ends a flow and shows that its program is signed in.
func (s *Service) done(w http.ResponseWriter, r *http.Request, f *flow, text string) error {
	s.deleteFlow(w, f)
	return s.show(w, r, http.StatusOK, "done", nil, &donePage{Purpose: f.Purpose, Text: text, Welcome: f.welcome()})
}

// tokenParams returns the parameters of the token that a flow asks for.
func (s *Service) tokenParams(f *flow) sts.TokenParams {
	if len(f.Audience) == 0 {
		return sts.TokenParams{Audience: []string{s.cfg.BaseURL}, Scopes: f.Scopes}
	}
	return sts.TokenParams{Audience: f.Audience, Scopes: f.Scopes}
}

// checkTokenParams checks the parameters before anybody signs in for them.
func (s *Service) checkTokenParams(f *flow) error { return s.sts.Check(s.tokenParams(f)) }

// deliver delivers tokens to the program that waits, once per flow.
func (s *Service) deliver(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session, raw string) error {
	first, err := s.accounts.UseOnce(r.Context(), digest("flow "+f.ID), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = fault.New(fault.PermissionDenied, "Permission denied: this sign-in was finished before")
	}
	if err != nil {
		return err
	}
	if err := s.recordConsent(r, resource.ProgramAllowed, f, n); err != nil {
		return err
	}
	switch f.Purpose {
	case forCommand:
		err = s.deliverToCommand(w, r, f, n, raw)
	case forHeadless:
		err = s.deliverToHeadless(w, r, f, n)
	case forDevice:
		err = s.deliverToDevice(w, r, f, n)
	}
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	return nil
}

// issuedTokens are the tokens for a program, and the client they are for.
type issuedTokens struct {
	Token     sts.Token
	Refresh   string
	Session   string
	Redirect  string
	Challenge string
	Client    string
}

// issue starts a session for a program and issues its tokens. If the flow asks
// for another identity, the ID token raw must match that identity.
func (s *Service) issue(
	ctx context.Context, f *flow, n resource.Session, program, address, raw string,
) (out issuedTokens, err error) {
	if f.Identity != "" && f.Identity != string(n.Identity) {
		if raw == "" {
			return out, fault.New(fault.PermissionDenied,
				"Permission denied: only who signs in with a provider can assume another identity")
		}
		asked := sts.Request{TokenParams: s.tokenParams(f), Bearer: raw, Identity: f.Identity}
		out.Token, err = s.sts.Exchange(ctx, asked)
		return out, err
	}
	id, refresh, err := s.sts.StartSession(ctx, resource.Session{
		Identity: n.Identity, Act: n.Act, Email: n.Email, Voucher: n.Voucher, Home: n.Home,
		Agent: program, Address: address,
	}, s.tokenParams(f))
	if err != nil {
		return out, err
	}
	if out.Token, err = s.sts.Issue(ctx, id, s.tokenParams(f)); err != nil {
		return out, err
	}
	out.Session = id
	if f.Refresh {
		out.Refresh = refresh.Text
	}
	return out, nil
}

func (s *Service) deliverToCommand(
	w http.ResponseWriter, r *http.Request, f *flow, n resource.Session, raw string,
) error {
	out, err := s.issue(r.Context(), f, n, cmp.Or(f.Client, unnamedProgram), remote(r), raw)
	if err != nil {
		return err
	}
	answer := url.Values{}
	if f.Challenge == "" {
		answer.Set("token", out.Token.Text)
		if out.Refresh != "" {
			answer.Set("refresh_token", out.Refresh)
		}
	} else {
		code := newID() + newID()
		out.Redirect, out.Challenge, out.Client = f.Redirect, f.Challenge, f.Client
		if err := s.storeSealed(r.Context(), "code "+code, out, codeLife); err != nil {
			return err
		}
		answer.Set("code", code)
	}
	s.deleteFlow(w, f)
	return s.redirectToCommand(w, r, f, answer)
}

// unnamedProgram is the name of a program that sends no client_id.
const unnamedProgram = "a command"

// storeSealed stores a value for whoever presents a code.
func (s *Service) storeSealed(ctx context.Context, code string, v any, life time.Duration) error {
	sealed, err := s.seal(v)
	if err != nil {
		return err
	}
	return s.accounts.PutHandoff(ctx, digest(code), sealed, s.cfg.Now().Add(life))
}

func (s *Service) seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return s.cfg.Key.Seal("hand-off", b), nil
}

func (s *Service) unseal(sealed []byte, v any) error {
	b, err := s.cfg.Key.Open("hand-off", sealed)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// StartSession signs the person of an account in with the browser of a request.
// It checks nothing: it is for setting up a server.
func (s *Service) StartSession(w http.ResponseWriter, r *http.Request, a resource.Account) error {
	r = r.WithContext(resource.WithActor(r.Context(), resource.Actor{RequestID: newID(), Remote: remote(r)}))
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
	s.markFresh(w, n.ID)
	s.rememberDevice(w, r, a.Identity)
	http.SetCookie(w, s.cookie(sessionCookie, secret, s.cfg.SessionLife))
	s.rememberBrowser(w, r, a.UID)
	return s.accounts.NoteUse(ctx, a.UID, s.now())
}
