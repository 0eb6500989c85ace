package login

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// fillConsent fills in the consent page. The page shows which program requests the sign-in, its address, the time of
// the request, and the permissions and life of its token, so that a person whom an attacker has sent there can notice
// the attack. fillConsent returns fault.NotFound if the device no longer waits.
func (s *Service) fillConsent(ctx context.Context, f *flow, n resource.Session, p *confirmPage) (err error) {
	if _, p.Organization, err = s.admin.AccountOf(ctx, n.Identity); err != nil {
		return err
	}
	p.Asked = time.Unix(f.Expires, 0).Add(-flowLife)
	audience, scopes, renews := f.Audience, f.Scopes, f.Refresh
	switch f.Purpose {
	case forHeadless:
		p.Code, p.Address = checkCode(f.Headless), "An address that was opened here: nobody can tell who made it"
	case forDevice:
		d, err := s.accounts.DeviceOf(ctx, f.UserCode)
		if err != nil {
			return err
		}
		p.Code, p.Client, p.Agent = shownUserCode(d.UserCode), d.Client, input.Program(d.Agent)
		p.Address, p.Asked = d.Address, d.CreateTime
		audience, scopes, renews = d.Audience, d.Scopes, true
	case forCommand:
		p.Address = "This computer"
		if u, err := url.Parse(f.Redirect); err == nil && u.Port() != "" {
			p.Address += ", port " + u.Port()
		}
	default:
		return nil // this sign-in delivers no token
	}
	if p.May, err = s.describeAccess(ctx, n, audience, scopes); err != nil {
		return err
	}
	p.For = "An hour"
	if renews {
		p.For = "Until its session ends, " + strconv.Itoa(int(s.cfg.SessionLife.Hours()/24)) + " days at most"
	}
	return nil
}

// describeAccess describes the permissions of a token.
func (s *Service) describeAccess(ctx context.Context, n resource.Session, audience, scopes []string) (string, error) {
	text := "Everything that you may do"
	var names []string
	for _, scope := range scopes {
		name, err := s.scopeName(ctx, n, resource.UID(scope))
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		text = "What you may do in " + strings.Join(names, ", ")
	}
	if slices.ContainsFunc(audience, func(a string) bool { return a != s.cfg.BaseURL }) {
		text += ", at " + strings.Join(audience, ", ")
	}
	return text, nil
}

// scopeName returns the name of a group if the person has a role in it or in a parent group.
// Otherwise it returns the UID of the group, which the request contains.
func (s *Service) scopeName(ctx context.Context, n resource.Session, group resource.UID) (string, error) {
	for _, held := range s.authz.GrantsOf(n.Identity) {
		if !held.Group.Covers(group) {
			continue
		}
		g, err := s.store.Group(ctx, group)
		if errors.Is(err, fault.NotFound) {
			break
		}
		return g.Label(), err
	}
	return string(group), nil
}

// showConfirm shows the consent page to a person who is signed in.
func (s *Service) showConfirm(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session) error {
	i, err := s.store.Identity(r.Context(), n.Identity)
	if err != nil {
		return err
	}
	p := &confirmPage{
		Purpose: f.Purpose, Client: f.Client, Since: n.CreateTime,
		Name: i.Title(), Email: cmp.Or(i.Email, i.EmailUnverified),
	}
	p.CSRF = s.site.CSRF(n.ID)
	if p.Invite, err = s.inviteOf(r, f); err != nil {
		return s.refuse(w, r, f, err)
	}
	if err := s.fillConsent(r.Context(), f, n, p); err != nil {
		return err
	}
	return s.show(w, r, http.StatusOK, "confirm", f, p)
}

// confirm handles the form of the consent page.
func (s *Service) confirm(w http.ResponseWriter, r *http.Request, f *flow) error {
	n, ok := s.site.Session(r)
	if !ok || f.Identity != "" {
		return site.Redirect(w, r, "/signin?flow="+f.ID)
	}
	if input.Field(w, r, "answer") != "allow" {
		return s.deny(w, r, f)
	}
	// Another person may have signed in in another window since.
	if !s.site.SameCSRF(n, input.Field(w, r, "csrf")) || s.mustSignInAgain(r, f, n) {
		return site.Redirect(w, r, "/signin?flow="+f.ID)
	}
	r = r.WithContext(s.authz.WithSession(r.Context(), n))
	if f.Invite != "" {
		arrival, err := s.arrivalOfSession(r.Context(), n)
		var landing resource.SignInResult
		if err == nil {
			_, landing, err = s.admit(r.Context(), f, arrival)
		}
		if err != nil {
			return s.refuse(w, r, f, err)
		}
		s.admin.LogActivity(site.ActingAs(r.Context(), n), "joined with an invite", resource.Activity{Identity: n.Identity})
		f.Invite, f.Joined = "", landing.Joined
	}
	if f.Purpose == forBrowser {
		s.deleteFlow(w, f)
		return site.Redirect(w, r, f.goesTo())
	}
	return s.deliver(w, r, f, n, "")
}

// switchUser ends the session of the browser, so that another person can sign in.
func (s *Service) switchUser(w http.ResponseWriter, r *http.Request, f *flow) error {
	if n, ok := s.site.Session(r); ok {
		if _, err := s.store.EndSession(r.Context(), n.ID); err != nil {
			return err
		}
	}
	s.site.SetSession(w, "", 0)
	f.Session = ""
	s.saveFlow(w, r, f)
	return site.Redirect(w, r, "/signin?flow="+f.ID)
}

// deny reports to the waiting program that the person has refused.
func (s *Service) deny(w http.ResponseWriter, r *http.Request, f *flow) error {
	denied := fault.New(fault.PermissionDenied, "Permission denied: the sign-in was refused in the browser")
	if n, ok := s.site.Session(r); ok {
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
			return site.Titled("This device no longer waits", err)
		}
	}
	s.deleteFlow(w, f)
	return s.show(w, r, http.StatusOK, "done", nil, &site.DonePage{
		Purpose: f.Purpose, Text: "Nothing was handed over. You can close this window.", Denied: true,
	})
}

// recordConsent records whether a person has allowed a program to act as them. event is
// ProgramAllowed or ProgramDenied. It records nothing for a sign-in of the browser itself,
// because that needs no consent.
func (s *Service) recordConsent(r *http.Request, event resource.EventType, f *flow, n resource.Session) error {
	if f.Purpose == forBrowser {
		return nil
	}
	v := resource.Activity{
		Identity: n.Identity, Provider: n.Voucher.Provider(), Purpose: f.Purpose, Program: f.Client,
		Agent: input.Agent(r), Address: input.Remote(r), Session: n.ID,
	}
	ctx := site.ActingAs(r.Context(), n)
	if err := s.people.Record(ctx, event, n.Identity, n.Home, v); err != nil {
		return err
	}
	text := "a program was allowed to act as a person"
	if event == resource.ProgramDenied {
		text = "a program was denied to act as a person"
	}
	s.admin.LogActivity(ctx, text, v)
	return nil
}
