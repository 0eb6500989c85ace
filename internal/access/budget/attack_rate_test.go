package budget_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// session creates a person with a session that was started with an account of a group. It returns the context of a
// request of the person.
func (p *process) session(t *testing.T, name string, home resource.UID) context.Context {
	t.Helper()
	i := resource.Identity{UID: resource.NewRoot(), Name: name, CreateTime: morning, UpdateTime: morning}
	if err := p.store.InsertIdentity(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	n := resource.Session{
		ID: name, Identity: i.UID, Home: home, CreateTime: morning, ExpireTime: time.Now().Add(time.Hour),
	}
	if err := p.store.StartSession(t.Context(), n, []byte(name), n.ExpireTime); err != nil {
		t.Fatal(err)
	}
	return authz.WithCaller(t.Context(), authz.Caller{Identity: i.UID, Session: name})
}

// TestAttackManyPeople: an owner creates accounts for many people, to have the share of a tenant for each of them. The
// work for all of them is limited together, and the work for people of another organization is not.
func TestAttackManyPeople(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		p := newProcess(t, url)
		checker, err := authz.Load(t.Context(), p.store.DB, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		org, other := p.group(t, "", nil), p.group(t, "", nil)
		for name, home := range map[string]resource.UID{"ann": org, "ben": org, "carol": other} {
			caller, _ := authz.CallerFrom(p.session(t, name, home))
			if got := checker.TenantOf(t.Context(), caller); got != p.store.Tenant(t.Context(), home) {
				t.Errorf("the tenant of %s is %s, not the organization of the account, %s", name, got, home)
			}
		}
	})
}

// TestAttackLocalAccountRequests: people with local accounts make as many requests as they like. Their requests count
// in the organization of their account, and nobody else's.
func TestAttackLocalAccountRequests(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		p := newProcess(t, url)
		org := p.group(t, "", map[resource.Metric]int64{resource.RequestsPerSecond: 2})
		other := p.group(t, "", map[resource.Metric]int64{resource.RequestsPerSecond: 50})
		admitted := func(ctx context.Context) (n int) {
			for range 40 {
				if p.Admit(ctx) == nil {
					n++
				}
			}
			return n
		}
		ann, ben, carol := p.session(t, "ann", org), p.session(t, "ben", org), p.session(t, "carol", other)
		if a, b := admitted(ann), admitted(ben); a != 2 || b != 0 {
			t.Errorf("%d and %d of 40 requests of two people are admitted, want 2 in total", a, b)
		}
		if n := admitted(carol); n != 40 {
			t.Errorf("%d of 40 requests of another organization are admitted", n)
		}
	})
}
