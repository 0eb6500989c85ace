package authz

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestGrantsBeginAndEndOnTime checks that a grant is active from its start until its end by the clock of the database,
// on replicas whose clocks differ by hours, even if nothing records its end.
func TestGrantsBeginAndEndOnTime(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, url string) {
		s := storetest.Open(t, url)
		group, _ := organization(t, s, "acme")
		replicas := []*Checker{load(t, s)}
		if s.Replicated() {
			for _, skew := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
				other := storetest.Open(t, url)
				other.Now = func() time.Time { return time.Now().Add(skew) }
				replicas = append(replicas, load(t, other))
			}
		}
		for _, c := range replicas {
			c.run(t)
		}
		b := resource.RoleBinding{UID: group.NewChild(), Identity: resource.NewRoot(), Role: viewerRole,
			CreateTime: time.Now()}
		b.StartTime = clockOf(t, s).Add(2500 * time.Millisecond).Truncate(time.Second)
		b.ExpireTime = b.StartTime.Add(6 * time.Second)
		_, err := s.InsertBinding(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		// A replica overestimates the time of the database by at most the duration of a heartbeat.
		const slack = 2 * time.Second
		counted := make([]bool, len(replicas))
		began := time.Now()
		for done := false; !done; time.Sleep(5 * time.Millisecond) {
			for i, c := range replicas {
				before := clockOf(t, s)
				err := c.allows(t, b.Identity, group)
				allowed := err == nil
				after := clockOf(t, s)
				counted[i] = counted[i] || allowed
				if step := time.Since(began) - time.Now().Round(0).Sub(began.Round(0)); step.Abs() > time.Millisecond {
					t.Skipf("the clock of this machine, which is the database's, was set by %v", -step)
				}
				switch {
				case allowed && after.Before(b.StartTime):
					t.Fatalf("replica %d allows it before it starts", i)
				case allowed && !before.Before(b.ExpireTime):
					t.Fatalf("replica %d allows it after its end", i)
				case errors.Is(err, fault.Unavailable): // the heartbeat is late on a slow machine
				case !allowed && before.After(b.StartTime.Add(slack)) && after.Before(b.ExpireTime.Add(-slack)):
					t.Fatalf("replica %d refuses it while it counts", i)
				}
				done = before.After(b.ExpireTime)
			}
		}
		for i, ok := range counted {
			if !ok {
				t.Errorf("replica %d never allowed it", i)
			}
		}
	})
}

// clockOf asks the database for the time.
func clockOf(t *testing.T, s *storetest.Store) time.Time {
	t.Helper()
	var ms int64
	if err := s.Row(t.Context(), `SELECT `+s.Engine.Clock, nil, &ms); err != nil {
		t.Fatal(err)
	}
	return store.FromMS(ms)
}

// TestEndOf checks that the end of a token is the end of the last grant that it can use, if all of them end.
func TestEndOf(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		group, owner := organization(t, s, "acme")
		other, _ := organization(t, s, "other")
		c := load(t, s)
		ann := resource.NewRoot()
		at := func(d time.Duration) time.Time { return time.Now().UTC().Truncate(time.Second).Add(d) }
		give := func(in, role resource.UID, start, end time.Time) {
			b := resource.RoleBinding{UID: in.NewChild(), Identity: ann, Role: role, StartTime: start, ExpireTime: end,
				CreateTime: time.Now()}
			if _, err := s.InsertBinding(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		first, second := at(time.Minute), at(time.Hour)
		pull, pulls := resource.CapabilitySet("repo.blobs.get"), resource.ManagedRoleUID("registry.pull")
		writes := resource.CapabilitySet("advisories.create")
		check := func(what string, n resource.Narrowing, want time.Time) {
			t.Helper()
			if got := c.EndOf(ann, n); !got.Equal(want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		check("without a grant", resource.Narrowing{}, time.Time{})
		give(group, viewerRole, time.Time{}, at(-time.Minute))
		check("with one that is over", resource.Narrowing{}, time.Time{})
		give(group, viewerRole, time.Time{}, first)
		give(other, pulls, at(time.Second), second)
		check("with two", resource.Narrowing{}, second)
		check("for the first organization", resource.Narrowing{Scopes: []resource.UID{group}}, first)
		check("for what both give", resource.Narrowing{Caps: &pull}, second)
		check("for what none gives", resource.Narrowing{Caps: &writes}, time.Time{})
		give(other, resource.OwnerRole, time.Time{}, time.Time{})
		check("with one that lasts", resource.Narrowing{}, time.Time{})
		check("with one that lasts elsewhere", resource.Narrowing{Scopes: []resource.UID{group}}, first)
		if got := c.EndOf(owner, resource.Narrowing{}); !got.IsZero() {
			t.Errorf("an owner: %v", got)
		}
	})
}
