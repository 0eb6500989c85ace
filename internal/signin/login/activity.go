package login

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
)

const (
	triedTracked = 10_000 // e-mail addresses

	// Strangers can have error pages shown. So many of them are logged in a window,
	// and those that are not have no request id.
	pagesPerNetwork = 100
	pagesInAll      = 10_000
)

// actingAs attributes changes to the person of a session.
func actingAs(ctx context.Context, n resource.Session) context.Context {
	a := resource.ActorFrom(ctx)
	a.Subject, a.Act = n.Identity, n.Act
	return resource.WithActor(ctx, a)
}

// mayLog reports whether one more line about a request of a stranger may be
// logged.
func (s *Service) mayLog(r *http.Request) bool {
	return s.limits.acquire("pages "+network(r), pagesPerNetwork) == 0 && s.limits.acquire("pages", pagesInAll) == 0
}

// logActivity logs what the audit log has of a person.
func (s *Service) logActivity(ctx context.Context, what string, a resource.Activity) {
	actor := resource.ActorFrom(ctx)
	attrs := []slog.Attr{}
	for _, v := range []struct{ name, value string }{
		{"identity", string(a.Identity)}, {"account", string(a.Account)}, {"method", a.Method}, {"factor", a.Factor},
		{"provider", string(a.Provider)}, {"purpose", a.Purpose}, {"program", a.Program}, {"session", a.Session},
		{"by", string(actor.Subject)}, {"address", actor.Remote}, {"request", actor.RequestID},
	} {
		if v.value != "" {
			attrs = append(attrs, slog.String(v.name, v.value))
		}
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, what, attrs...)
}

// logChange logs a change of how the person of an account signs in.
func (s *Service) logChange(r *http.Request, what string, a resource.Account) {
	s.logActivity(r.Context(), what, resource.Activity{Account: a.UID, Identity: a.Identity})
}

// recordConsent records what a person has answered to a program that asked to
// act as them. A sign-in for the browser itself asks for nothing.
func (s *Service) recordConsent(r *http.Request, what resource.EventType, f *flow, n resource.Session) error {
	if f.Purpose == forBrowser {
		return nil
	}
	v := resource.Activity{
		Identity: n.Identity, Provider: n.Voucher.Provider(), Purpose: f.Purpose, Program: f.Client,
		Agent: agent(r), Address: remote(r), Session: n.ID,
	}
	ctx := actingAs(r.Context(), n)
	if err := s.people.Record(ctx, what, n.Identity, n.Home, v); err != nil {
		return err
	}
	text := "a program was allowed to act as a person"
	if what == resource.ProgramDenied {
		text = "a program was denied to act as a person"
	}
	s.logActivity(ctx, text, v)
	return nil
}

// refused counts a refused sign-in, for the audit log of its group if it has
// one. It takes as long whether or not it has.
func (s *Service) refused(r *http.Request, v denials.Refusal) {
	if s.cfg.Refusals == nil {
		return
	}
	v.Type, v.RequestID = resource.SignInRefused, resource.ActorFrom(r.Context()).RequestID
	if v.Hidden == "" {
		v.Address, v.Agent = remote(r), agent(r)
	}
	s.cfg.Refusals.Add(v)
}

// refusalAt returns the refusal of a sign-in to an account. Without an account
// it is not known whose it is.
func refusalAt(a resource.Account, method, reason string) denials.Refusal {
	v := denials.Refusal{Subject: a.UID, Activity: resource.Activity{Account: a.UID, Method: method, Reason: reason}}
	if a.UID != "" {
		v.Group = a.UID.Parent()
	}
	return v
}

// A target is an account that a password was tried with.
type target struct {
	account resource.UID
	meant   bool // no other account can be meant
}

func newTried() *lru.Cache[counterKey, []target] {
	tried, _ := lru.New[counterKey, []target](triedTracked) // fails only for a size of 0
	return tried
}

// rememberTried remembers which accounts a password is tried with, so that
// their organizations learn of it if it is wrong, and of those that follow.
func (s *Service) rememberTried(in credentials, tried []resource.Account, first int) {
	key := triedKey(in.Organization, in.Email)
	if len(tried) == 0 {
		s.tried.Remove(key)
		return
	}
	var all []target
	for i, a := range tried {
		all = append(all, target{a.UID, len(tried) == 1 || i < first})
	}
	s.tried.Add(key, all)
}

func triedKey(org resource.UID, email string) counterKey {
	return keyOf("tried " + string(org) + " " + email)
}

// refusedPassword counts a refused password. Each organization whose account
// it was tried with learns of it. If it is not certain that its account was
// meant, it does not learn from where: otherwise whoever makes accounts with the
// addresses of others would learn where these people are. If there is no such
// account, only the log of the server has it, and the organization that was
// named. What was typed as the address is nowhere: it may be a password.
func (s *Service) refusedPassword(r *http.Request, f *flow, email, reason string) {
	all, _ := s.tried.Get(triedKey(f.Organization, email))
	for _, t := range all {
		v := refusalAt(resource.Account{UID: t.account}, resource.ByPassword, reason)
		if !t.meant {
			v.Hidden = remote(r)
		}
		s.refused(r, v)
	}
	named := func(t target) bool { return t.account.Root() == f.Organization }
	if len(all) == 0 || f.Organization != "" && !slices.ContainsFunc(all, named) {
		v := refusalAt(resource.Account{}, resource.ByPassword, reason)
		if v.Group = f.Organization; reason == resource.RefusedPassword {
			v.Reason = resource.RefusedUnknown
		}
		s.refused(r, v)
	}
}
