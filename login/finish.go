package login

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/sts"
)

const (
	sessionCookie = "hf_session"
	codeLife      = time.Minute
	headlessLife  = 5 * time.Minute
)

// arrive lets a person in who has proved who they are: it registers them,
// redeems their invite, gives the browser a session of its own, and goes on to
// what the sign-in is for. raw is the ID token they came with, or "". It tells
// whether they were let in.
func (s *Service) arrive(w http.ResponseWriter, r *http.Request, f *flow, who resource.Arrival, raw string) bool {
	ctx, err := s.asPerson(r.Context(), who)
	r = r.WithContext(ctx)
	var land resource.Landing
	if err == nil {
		land, err = s.land(ctx, f, who)
	}
	if err != nil {
		s.refuse(w, r, f, err)
		return false
	}
	n, secret, err := s.startBrowser(r, who, land)
	if err != nil {
		s.refuse(w, r, f, err)
		return true
	}
	http.SetCookie(w, s.cookie(sessionCookie, secret, s.cfg.SessionLife))
	f.Session, f.Invite, f.Account, f.WebAuthn = n.ID, "", "", nil
	f.Leg, f.Nonce, f.Verifier = "", "", ""
	switch f.Purpose {
	case forCommand:
		s.handOver(w, r, f, n, raw)
	case forHeadless, forDevice:
		s.keep(w, r, f)
		s.redirect(w, r, "/signin?flow="+f.ID) // to be asked first: somebody else may have sent them here
	default:
		s.drop(w, f)
		s.redirect(w, r, "/account")
	}
	return true
}

// asPerson puts changes down to who has just signed in.
func (s *Service) asPerson(ctx context.Context, who resource.Arrival) (context.Context, error) {
	uid, err := s.uidOf(ctx, who)
	a := resource.ActorFrom(ctx)
	a.Subject, a.Act = uid, &resource.Upstream{Issuer: who.Issuer, Subject: who.Subject}
	return resource.WithActor(ctx, a), err
}

// uidOf returns who an arrival is, or will be.
func (s *Service) uidOf(ctx context.Context, who resource.Arrival) (resource.UID, error) {
	if who.Identity != "" {
		return who.Identity, nil
	}
	return s.store.PersonUID(ctx, who.Realm, who.Subject)
}

// homeOf returns the group that answers for a sign-in.
func homeOf(who resource.Arrival) resource.UID {
	if who.Voucher != "" {
		return who.Voucher.Provider().Parent()
	}
	return who.Organization
}

// land has the store let somebody in, with the invite of their flow.
func (s *Service) land(ctx context.Context, f *flow, who resource.Arrival) (resource.Landing, error) {
	if f.Invite != "" {
		presented, err := readInvite(f.Invite)
		if err != nil {
			return resource.Landing{}, err
		}
		who.Invite = &presented
	}
	if f.Known {
		who.Register = false
	}
	l, err := s.people.Arrive(ctx, who)
	if err == nil && len(l.Kept) > 0 {
		s.log.WarnContext(ctx, "the last owner was left in place, though the provider no longer has them in the group", "bindings", l.Kept)
	}
	return l, err
}

// startBrowser gives the browser a session. One that it had before ends: nobody
// goes on under a session that another could have given them.
func (s *Service) startBrowser(r *http.Request, who resource.Arrival, l resource.Landing) (n resource.Session, secret string, _ error) {
	if old, ok := s.browser(r); ok {
		if _, err := s.store.EndSession(r.Context(), old.ID); err != nil {
			return n, "", err
		}
	}
	now := s.now()
	n = resource.Session{
		ID: newID(), Identity: l.Identity.UID, Act: &resource.Upstream{Issuer: who.Issuer, Subject: who.Subject}, Email: l.Identity.Email,
		Voucher: who.Voucher, Home: homeOf(who),
		Agent: agent(r), Address: remote(r), CreateTime: now, UsedTime: now, ExpireTime: now.Add(s.cfg.SessionLife), Browser: true,
	}
	secret = newID() + newID()
	return n, secret, s.store.StartBrowserSession(r.Context(), n, digest(secret))
}

// browser returns the session of a request's browser.
func (s *Service) browser(r *http.Request) (resource.Session, bool) {
	c, err := r.Cookie(s.cookieName(sessionCookie))
	if err != nil || len(c.Value) != 52 {
		return resource.Session{}, false
	}
	n, err := s.store.BrowserSession(r.Context(), digest(c.Value), s.cfg.SessionIdle)
	if err != nil && !errors.Is(err, fault.NotFound) {
		s.note(r, err)
	}
	return n, err == nil
}

// csrf is what a form of somebody signed in must bring back.
func (s *Service) csrf(session string) string {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("forms"))
	m.Write([]byte(session))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// refuse ends a sign-in that somebody waits for: the program is told if it waits
// on this computer, and the person if not.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, f *flow, err error) {
	told := s.told(r, err)
	s.drop(w, f)
	if f.Redirect == "" {
		s.problem(w, r, statusOf(told), "You were not signed in", plainText(told))
		return
	}
	s.toCommand(w, r, f, url.Values{"error": {told.Message}, "status_code": {strconv.Itoa(statusOf(told))}})
}

// toCommand sends the browser back to the program that waits on this computer.
// Its address already has parameters of these names: they are replaced, because
// a program reads the first.
func (s *Service) toCommand(w http.ResponseWriter, r *http.Request, f *flow, answer url.Values) {
	u, ok := loopback(f.Redirect)
	if !ok {
		s.problem(w, r, http.StatusBadRequest, "This sign-in cannot go on", "It leads to another host.")
		return
	}
	q := u.Query()
	for _, name := range []string{"token", "refresh_token", "error", "status_code", "code", "state"} {
		q.Del(name)
	}
	if f.State != "" {
		answer.Set("state", f.State)
	}
	for name, values := range answer {
		q[name] = values
	}
	u.RawQuery = q.Encode()
	secureHeaders(w, "")
	http.Redirect(w, r, u.String(), http.StatusSeeOther)
}

// showConfirm asks somebody who is signed in whether to hand over.
func (s *Service) showConfirm(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session) {
	i, err := s.store.Identity(r.Context(), n.Identity)
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	p := &confirmPage{Purpose: f.Purpose, Name: i.Name, Email: i.Email, Client: f.Client, Since: n.CreateTime}
	p.CSRF = s.csrf(n.ID)
	if p.Email == "" {
		p.Email = i.EmailUnverified
	}
	if p.Invite, err = s.invited(r, f); err != nil {
		s.refuse(w, r, f, err)
		return
	}
	if err := s.describe(r.Context(), f, n, p); err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	s.show(w, r, http.StatusOK, "confirm", f, p)
}

// confirm takes the answer of somebody who was asked.
func (s *Service) confirm(w http.ResponseWriter, r *http.Request) {
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	n, ok := s.browser(r)
	if !ok || f.Identity != "" {
		s.redirect(w, r, "/signin?flow="+f.ID)
		return
	}
	if s.field(w, r, "answer") != "allow" {
		s.deny(w, r, f)
		return
	}
	if !s.sameCSRF(n, s.field(w, r, "csrf")) { // another window has signed in as somebody else since
		s.redirect(w, r, "/signin?flow="+f.ID)
		return
	}
	if f.Invite != "" {
		who, err := s.arrivalAgain(r.Context(), n)
		ctx := r.Context()
		if err == nil {
			ctx, err = s.asPerson(ctx, who)
		}
		if err == nil {
			_, err = s.land(ctx, f, who)
		}
		if err != nil {
			s.refuse(w, r, f, err)
			return
		}
		f.Invite = ""
	}
	if f.Purpose == forBrowser {
		s.drop(w, f)
		s.redirect(w, r, "/account")
		return
	}
	s.handOver(w, r, f, n, "")
}

// arrivalAgain is somebody who arrived earlier.
func (s *Service) arrivalAgain(ctx context.Context, n resource.Session) (resource.Arrival, error) {
	if n.Act == nil || !n.Identity.IsRoot() {
		return resource.Arrival{}, fault.New(fault.PermissionDenied, "Permission denied: this is not a person who signed in")
	}
	if n.Voucher == "" {
		a, err := s.accounts.AccountOf(ctx, n.Identity)
		if err == nil {
			return s.localArrival(ctx, a)
		}
		if !errors.Is(err, fault.NotFound) {
			return resource.Arrival{}, err
		}
	}
	i, err := s.store.Identity(ctx, n.Identity)
	if err != nil {
		return resource.Arrival{}, err
	}
	who := resource.Arrival{
		Issuer: n.Act.Issuer, Subject: n.Act.Subject, Realm: i.Realm, Identity: i.UID, Voucher: n.Voucher,
		Email: i.Email, EmailVerified: i.Email != "",
	}
	if n.Voucher != "" {
		idp, err := s.store.Provider(ctx, n.Voucher.Provider())
		if err != nil {
			return resource.Arrival{}, err
		}
		who.Trusted = idp.Trusted
	}
	return who, nil
}

// other lets somebody sign in as somebody else.
func (s *Service) other(w http.ResponseWriter, r *http.Request) {
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	if n, ok := s.browser(r); ok {
		if _, err := s.store.EndSession(r.Context(), n.ID); err != nil {
			s.fail(w, r, "This sign-in cannot go on", err)
			return
		}
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", 0))
	f.Session = ""
	s.keep(w, r, f)
	s.redirect(w, r, "/signin?flow="+f.ID)
}

// deny tells whoever waits that they wait in vain.
func (s *Service) deny(w http.ResponseWriter, r *http.Request, f *flow) {
	denied := fault.New(fault.PermissionDenied, "Permission denied: the sign-in was refused in the browser")
	switch f.Purpose {
	case forCommand:
		s.refuse(w, r, f, denied)
		return
	case forHeadless:
		detail, err := json.Marshal(headless{Denied: true})
		if err == nil {
			err = s.accounts.Leave(r.Context(), digest("headless "+f.Headless), detail, s.cfg.Now().Add(headlessLife))
		}
		if err != nil {
			s.fail(w, r, "This sign-in cannot go on", err)
			return
		}
	case forDevice:
		if err := s.accounts.DecideDevice(r.Context(), f.UserCode, resource.DeviceDenied, nil); err != nil {
			s.fail(w, r, "This device no longer waits", err)
			return
		}
	}
	s.drop(w, f)
	s.show(w, r, http.StatusOK, "done", nil, &donePage{Purpose: f.Purpose, Text: "Nothing was handed over. You can close this window.", Denied: true})
}

// wish is what the token of a flow is to be like.
func (s *Service) wish(f *flow) sts.Wish {
	w := sts.Wish{Audience: f.Audience, Scopes: f.Scopes}
	if len(w.Audience) == 0 {
		w.Audience = []string{s.cfg.BaseURL}
	}
	return w
}

// checkWish says what cannot be had, before anybody signs in for it.
func (s *Service) checkWish(f *flow) error { return s.sts.Check(s.wish(f)) }

// handOver gives the program that waits what the person has signed in for, once.
func (s *Service) handOver(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session, raw string) {
	first, err := s.accounts.Spend(r.Context(), digest("flow "+f.ID), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = fault.New(fault.PermissionDenied, "Permission denied: this sign-in was finished before")
	}
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	switch f.Purpose {
	case forCommand:
		err = s.handToCommand(w, r, f, n, raw)
	case forHeadless:
		err = s.handToHeadless(w, r, f, n)
	case forDevice:
		err = s.handToDevice(w, r, f, n)
	}
	if err != nil {
		s.refuse(w, r, f, err)
	}
}

// issued is what a program gets.
type issued struct {
	Token     sts.Token
	Refresh   string
	Session   string
	Redirect  string
	Challenge string
	Client    string
}

// issue makes a session for a program, and its tokens. Where another identity is
// asked for, what the provider has just said must stand for it.
func (s *Service) issue(ctx context.Context, f *flow, n resource.Session, program, address, raw string) (out issued, err error) {
	if f.Identity != "" && f.Identity != string(n.Identity) {
		if raw == "" {
			return out, fault.New(fault.PermissionDenied, "Permission denied: only who signs in with a provider can assume another identity")
		}
		out.Token, err = s.sts.Exchange(ctx, sts.Request{Wish: s.wish(f), Bearer: raw, Identity: f.Identity})
		return out, err
	}
	id, refresh, err := s.sts.StartSession(ctx, resource.Session{
		Identity: n.Identity, Act: n.Act, Email: n.Email, Voucher: n.Voucher, Home: n.Home, Agent: program, Address: address,
	}, s.wish(f))
	if err != nil {
		return out, err
	}
	if out.Token, err = s.sts.Issue(ctx, id, s.wish(f)); err != nil {
		return out, err
	}
	out.Session = id
	if f.Refresh {
		out.Refresh = refresh.Text
	}
	return out, nil
}

func (s *Service) handToCommand(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session, raw string) error {
	out, err := s.issue(r.Context(), f, n, programName(f.Client), remote(r), raw)
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
		if err := s.leave(r.Context(), "code "+code, out, codeLife); err != nil {
			return err
		}
		answer.Set("code", code)
	}
	s.drop(w, f)
	s.toCommand(w, r, f, answer)
	return nil
}

func programName(client string) string {
	if client == "" {
		return "a command"
	}
	return client
}

// leave keeps something sealed for whoever comes with a code.
func (s *Service) leave(ctx context.Context, code string, v any, life time.Duration) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.accounts.Leave(ctx, digest(code), s.cfg.Key.Seal("hand-off", b), s.cfg.Now().Add(life))
}

func (s *Service) unseal(sealed []byte, v any) error {
	b, err := s.cfg.Key.Open("hand-off", sealed)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
