package simulation_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A world is a service with two organizations, each with an owner.
type world struct {
	*iam.Service
	simulations  *simulation.Service
	t            *testing.T
	store        *storetest.Store
	checker      *authz.Checker
	acme, other  resource.Group
	owner, rival context.Context
}

// each runs f with a new world on every engine.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) { f(t, newWorld(t, s)) })
}

func newWorld(t *testing.T, s *storetest.Store) *world {
	t.Helper()
	must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
	checker, err := authz.Load(t.Context(), s.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	service := iam.New(s.DB, checker, page.NewTokens([]byte("key"), time.Now), iam.Config{})
	w := &world{
		Service: service, simulations: simulation.New(s.DB, checker, service, simulation.Config{}),
		t: t, store: s, checker: checker,
	}
	w.acme, w.owner = w.organization("acme")
	w.other, w.rival = w.organization("other")
	return w
}

// organization creates an organization and returns it with a context of its owner.
func (w *world) organization(name string) (resource.Group, context.Context) {
	w.t.Helper()
	g, i, err := w.Bootstrap(w.t.Context(), name, resource.OrgUnspecified, person(name+" owner", name))
	must(w.t, err)
	return g, w.as(i.UID)
}

func person(name, subject string) resource.Identity {
	return resource.Identity{Name: name, Relationship: resource.Relationship{
		ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.example", Subject: subject},
	}}
}

// provider is an identity provider of an organization.
var provider = resource.IdentityProvider{
	Name: "corp", DefaultRole: resource.ManagedRoleUID("viewer"), OIDC: &resource.OIDC{
		Issuer: "https://login.example", ClientID: "holdfast", ClientSecret: resource.Secret{Plain: "s3cret-value"},
	},
}

func (w *world) as(uid resource.UID) context.Context {
	return authz.WithCaller(w.t.Context(), authz.Caller{Identity: uid, Issued: time.Now()})
}

// worker creates an identity in acme that holds these capabilities on a group.
func (w *world) worker(on resource.UID, capabilities ...string) (resource.UID, context.Context) {
	w.t.Helper()
	name := string("worker " + w.acme.UID.NewChild()[41:])
	i, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
	must(w.t, err)
	r, err := w.CreateRole(
		w.owner, w.acme.UID, resource.Role{Name: name, Capabilities: resource.CapabilitySet(capabilities...)},
	)
	must(w.t, err)
	_, err = w.CreateBinding(w.owner, on, resource.RoleBinding{Identity: i.UID, Role: r.UID})
	must(w.t, err)
	return i.UID, w.as(i.UID)
}

func (w *world) group(parent resource.UID, name string) resource.Group {
	w.t.Helper()
	g, err := w.CreateGroup(w.owner, string(parent), resource.Group{Name: name})
	must(w.t, err)
	return g
}

// in returns the time after a duration, in whole seconds like the times of bindings.
func in(d time.Duration) time.Time { return time.Now().UTC().Add(d).Truncate(time.Second) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, what string, err error, code fault.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: error = %v, want code %d", what, err, code)
	}
}
