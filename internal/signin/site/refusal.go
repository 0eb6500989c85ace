package site

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

const (
	// Anybody can cause error pages. Only these numbers of error pages are logged per time window. Further error pages
	// show no request id.
	pagesPerNetwork = 100
	pagesInAll      = 10_000
)

// ActingAs returns a context in which changes are attributed to the person of a session.
func ActingAs(ctx context.Context, n resource.Session) context.Context {
	a := resource.ActorFrom(ctx)
	a.Subject, a.Act = n.Identity, n.Act
	return resource.WithActor(ctx, a)
}

// MayLog reports whether another log line about a request may be written. It limits
// the lines that a stranger can cause.
func (s *Site) MayLog(r *http.Request) bool {
	return s.limits.acquire("pages "+input.Network(r), pagesPerNetwork) == 0 && s.limits.acquire("pages", pagesInAll) == 0
}

// Refuse records a refused sign-in for the audit log of its group, if the group is
// known. It always takes the same time, so that the time does not reveal whether there
// is a group.
func (s *Site) Refuse(r *http.Request, v denials.Refusal) {
	if s.cfg.Refusals == nil {
		return
	}
	v.Type, v.RequestID = resource.SignInRefused, resource.ActorFrom(r.Context()).RequestID
	if v.Hidden == "" {
		v.Address, v.Agent = input.Remote(r), input.Agent(r)
	}
	s.cfg.Refusals.Add(v)
}

// RefusalAt returns the refusal of a sign-in to an account. If a is the zero account,
// the refusal has no group.
func RefusalAt(a resource.Account, method, reason string) denials.Refusal {
	v := denials.Refusal{Subject: a.UID, Activity: resource.Activity{Account: a.UID, Method: method, Reason: reason}}
	if a.UID != "" {
		v.Group = a.UID.Parent()
	}
	return v
}

// Count counts a check of a credential. kind is the kind of the credential.
func (s *Site) Count(kind string, err error) {
	outcome := metric.OK
	switch {
	case errors.Is(err, fault.Unauthenticated), errors.Is(err, fault.PermissionDenied):
		outcome = metric.Denied
	case err != nil:
		outcome = metric.Failed
	}
	s.cfg.Metrics.SignIns.Add(1, kind, outcome)
}
