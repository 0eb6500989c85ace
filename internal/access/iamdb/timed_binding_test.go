package iamdb_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A span is the period in which a binding is valid, relative to the current time.
type span struct{ start, end time.Duration }

var over, active, upcoming = span{-2 * time.Hour, -time.Hour}, span{-time.Hour, time.Hour}, span{time.Hour, 0}

// timed returns a binding that is valid during a span. Its times are whole seconds.
func timed(group, identity, role resource.UID, of span) resource.RoleBinding {
	b := iamtest.NewBinding(group, identity, role)
	now := time.Now().UTC().Truncate(time.Second)
	if of.start != 0 {
		b.StartTime = now.Add(of.start)
	}
	if of.end != 0 {
		b.ExpireTime = now.Add(of.end)
	}
	b.Reason = "incident 7"
	return b
}

func addTimed(t *testing.T, s *iamtest.Store, group, identity, role resource.UID, of span) resource.RoleBinding {
	t.Helper()
	b := timed(group, identity, role, of)
	_, err := s.InsertBinding(t.Context(), b)
	testkit.Must(t, err)
	return b
}

// heard makes a replica write its heartbeat, so that it knows the time of the database.
func heard(t *testing.T, s *iamtest.Store) {
	t.Helper()
	_, err := s.Renew(t.Context(), replica.Position{})
	testkit.Must(t, err)
}

// holdersOf returns the bindings by which identities hold a role on a group now.
func holdersOf(t *testing.T, s *iamtest.Store, group, role resource.UID) (uids []resource.UID) {
	t.Helper()
	_, now := s.Clock()
	q := iamdb.HolderQuery{Groups: []resource.UID{group}, Roles: []resource.UID{role}, Now: now.UnixMilli()}
	got, err := s.Holders(t.Context(), q, page.Request{Size: 100, Order: page.Order{Field: "uid"}})
	testkit.Must(t, err)
	for _, b := range got.Items {
		uids = append(uids, b.UID)
	}
	if int64(len(uids)) != got.Total {
		t.Errorf("%d holders, and a total of %d", len(uids), got.Total)
	}
	return uids
}

// expiries returns how many expiry events each binding has.
func expiries(t *testing.T, s *iamtest.Store) map[resource.UID]int {
	t.Helper()
	n := map[resource.UID]int{}
	for _, e := range dbtest.Events(t, s.DB) {
		if e.Type == resource.BindingExpired {
			n[e.Subject]++
		}
	}
	return n
}

// timePromises contains the tests for bindings that are valid for a limited time.
var timePromises = map[string]func(t *testing.T, s *iamtest.Store, org, role resource.UID){
	"it keeps its times and its reason": func(t *testing.T, s *iamtest.Store, org, role resource.UID) {
		for _, of := range []span{over, active, upcoming} {
			b := addTimed(t, s, org, resource.NewRoot(), role, of)
			got, err := s.Binding(t.Context(), b.UID)
			testkit.Must(t, err)
			if !got.StartTime.Equal(b.StartTime) || !got.ExpireTime.Equal(b.ExpireTime) || got.Reason != b.Reason {
				t.Errorf("%+v, want %+v", got.RoleBinding, b)
			}
		}
	},
	"it is held while it counts": func(t *testing.T, s *iamtest.Store, org, role resource.UID) {
		want := []resource.UID{addTimed(t, s, org, iamtest.Alice, role, active).UID, iamtest.AddBinding(t, s.IAMStore, org,
			iamtest.Bob, role).UID}
		addTimed(t, s, org, iamtest.Alice, role, over)
		addTimed(t, s, org, iamtest.Bob, role, upcoming)
		slices.Sort(want)
		if got := holdersOf(t, s, org, role); !slices.Equal(got, want) {
			t.Errorf("%v hold the role, want %v", got, want)
		}
		on, err := s.RolesOn(t.Context(), []resource.UID{org}, 10)
		testkit.Must(t, err)
		if len(on) != 3 { // two bindings and the binding of the owner
			t.Errorf("roles held on the organization: %v", on)
		}
		held, total, err := s.HeldRoles(t.Context(), iamtest.Alice)
		if testkit.Must(t, err); len(held) != 2 || total != 2 { // alice also has the role of the owner
			t.Errorf("alice is shown %d of %d roles", len(held), total)
		}
	},
	"that it is over is recorded once, and it stays": func(t *testing.T, s *iamtest.Store, org, role resource.UID) {
		gone, there := addTimed(t, s, org, iamtest.Bob, role, over), addTimed(t, s, org, iamtest.Bob, role, active)
		for i, want := range []int{1, 0} {
			n, err := s.EndBindings(t.Context(), 10)
			if testkit.Must(t, err); n != want {
				t.Errorf("time %d: %d ended, want %d", i, n, want)
			}
		}
		if got := expiries(t, s); len(got) != 1 || got[gone.UID] != 1 {
			t.Errorf("expired: %v", got)
		}
		grants, err := s.GrantsOf(t.Context(), iamtest.Bob)
		if testkit.Must(t, err); len(grants) != 1 || grants[0].ExpireMS != there.ExpireTime.UnixMilli() ||
			grants[0].StartMS != there.StartTime.UnixMilli() {
			t.Errorf("grants of bob: %+v", grants)
		}
		got, err := s.Binding(t.Context(), gone.UID)
		if testkit.Must(t, err); got.EndTime.IsZero() || got.State(time.Time{}) != resource.BindingOver {
			t.Errorf("the binding that is over: %+v", got.RoleBinding)
		}
		dbtest.WantExact(t, s.DB)
	},
	"no more are recorded at once than asked for": func(t *testing.T, s *iamtest.Store, org, role resource.UID) {
		for range 3 {
			addTimed(t, s, org, resource.NewRoot(), role, over)
		}
		for i, want := range []int{2, 1, 0} {
			n, err := s.EndBindings(t.Context(), 2)
			if testkit.Must(t, err); n != want {
				t.Errorf("time %d: %d ended, want %d", i, n, want)
			}
		}
	},
	"one that is over cannot be changed": func(t *testing.T, s *iamtest.Store, org, role resource.UID) {
		b := addTimed(t, s, org, iamtest.Bob, role, over)
		extend := func() error {
			_, err := s.UpdateBinding(t.Context(), b.UID, func(b *resource.RoleBinding) error {
				b.ExpireTime = time.Time{}
				return nil
			})
			return err
		}
		testkit.WantUnmet(t, extend(), "BINDING_OVER")
		_, err := s.EndBindings(t.Context(), 10)
		testkit.Must(t, err)
		testkit.WantUnmet(t, extend(), "BINDING_OVER")
		testkit.Must(t, s.DeleteBinding(t.Context(), b.UID))
	},
	"its times are changed": func(t *testing.T, s *iamtest.Store, org, role resource.UID) {
		b := addTimed(t, s, org, iamtest.Bob, role, active)
		later := b.ExpireTime.Add(time.Hour)
		got, err := s.UpdateBinding(t.Context(), b.UID, func(b *resource.RoleBinding) error {
			b.StartTime, b.ExpireTime, b.Reason = time.Time{}, later, "longer"
			return nil
		})
		if testkit.Must(t, err); !got.ExpireTime.Equal(later) || !got.StartTime.IsZero() || got.Reason != "longer" {
			t.Errorf("%+v", got.RoleBinding)
		}
		testkit.WantSame(t, s.Binding, b.UID, got)
	},
	"one that is over keeps nothing from being deleted": func(t *testing.T, s *iamtest.Store, org, _ resource.UID) {
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder")
		r, keeps := iamtest.AddRole(t, s.IAMStore, org, "r"), iamtest.AddRole(t, s.IAMStore, org, "keeps")
		addTimed(t, s, folder.UID, iamtest.Bob, r.UID, over)
		testkit.Must(t, s.DeleteRole(t.Context(), r.UID))
		addTimed(t, s, folder.UID, iamtest.Bob, keeps.UID, active)
		addTimed(t, s, folder.UID, iamtest.Alice, keeps.UID, over)
		for what, err := range map[string]error{
			"role": s.DeleteRole(t.Context(), keeps.UID), "group": s.DeleteGroup(t.Context(), folder.UID, ""),
		} {
			if !errors.Is(err, fault.FailedPrecondition) {
				t.Errorf("%s with a binding that counts: %v", what, err)
			}
		}
		empty := iamtest.AddGroup(t, s.IAMStore, org, "empty")
		addTimed(t, s, empty.UID, iamtest.Alice, keeps.UID, over)
		testkit.Must(t, s.DeleteGroup(t.Context(), empty.UID, ""))
		dbtest.WantExact(t, s.DB)
	},
	"it stands beside others of the same role": func(t *testing.T, s *iamtest.Store, org, role resource.UID) {
		iamtest.AddBinding(t, s.IAMStore, org, iamtest.Bob, role)
		b := addTimed(t, s, org, iamtest.Bob, role, active)
		addTimed(t, s, org, iamtest.Bob, role, over)
		again := b
		again.UID = org.NewChild()
		_, err := s.InsertBinding(t.Context(), again)
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role binding", Name: string(iamtest.Bob)})
	},
	"the last owner has no end": func(t *testing.T, s *iamtest.Store, org, _ resource.UID) {
		first := bindingOf(t, s, org, iamtest.Alice)
		shorten := func(uid resource.UID) error {
			_, err := s.UpdateBinding(t.Context(), uid, func(b *resource.RoleBinding) error {
				b.ExpireTime = time.Now().Add(time.Hour).Truncate(time.Second)
				return nil
			})
			return err
		}
		addTimed(t, s, org, iamtest.Bob, resource.OwnerRole, active)
		addTimed(t, s, org, resource.NewRoot(), resource.OwnerRole, upcoming)
		testkit.WantUnmet(t, shorten(first), "LAST_OWNER")
		testkit.WantUnmet(t, s.DeleteBinding(t.Context(), first), "LAST_OWNER")
		_, err := s.UpdateBinding(t.Context(), first, func(b *resource.RoleBinding) error {
			b.StartTime = time.Now().Add(time.Hour).Truncate(time.Second)
			return nil
		})
		testkit.WantUnmet(t, err, "LAST_OWNER")
		second := iamtest.AddBinding(t, s.IAMStore, org, iamtest.Bob, resource.OwnerRole)
		testkit.Must(t, shorten(first))
		testkit.WantUnmet(t, shorten(second.UID), "LAST_OWNER")
		testkit.Must(t, s.DeleteBinding(t.Context(), first)) // this owner's binding has an end now, so it may be deleted
	},
	"only an owner who counts is one": func(t *testing.T, s *iamtest.Store, org, _ resource.UID) {
		later, gone, now := resource.NewRoot(), resource.NewRoot(), resource.NewRoot()
		addTimed(t, s, org, later, resource.OwnerRole, upcoming)
		addTimed(t, s, org, gone, resource.OwnerRole, over)
		addTimed(t, s, org, now, resource.OwnerRole, active)
		all, err := s.OwnersOf(t.Context(), org)
		testkit.Must(t, err)
		if len(all) != 2 || !slices.Contains(all, iamtest.Alice) || !slices.Contains(all, now) {
			t.Errorf("owners: %v", all)
		}
		for uid, want := range map[resource.UID]bool{iamtest.Alice: true, now: true, later: false, gone: false} {
			if got, err := s.Owns(t.Context(), org, uid); err != nil || got != want {
				t.Errorf("%s owns: %t, %v", uid, got, err)
			}
		}
	},
	"an invite gives what it promises, beside what there is": func(t *testing.T, s *iamtest.Store, org,
		role resource.UID) {
		addTimed(t, s, org, iamtest.Bob, role, active)
		i := iamtest.NewInvite(org, role)
		for range 2 { // the second time the person already has the role
			testkit.Must(t, redeem(t, s, i, iamtest.Bob))
		}
		i.ExpireTime, i.Reason = time.Now().Add(2*time.Hour).Truncate(time.Second).UTC(), "a visit"
		for range 2 {
			testkit.Must(t, redeem(t, s, i, iamtest.Bob))
		}
		grants, err := s.GrantsOf(t.Context(), iamtest.Bob)
		testkit.Must(t, err)
		ends := []int64{}
		for _, g := range grants {
			ends = append(ends, g.ExpireMS)
		}
		if len(grants) != 3 || !slices.Contains(ends, 0) || !slices.Contains(ends, i.ExpireTime.UnixMilli()) {
			t.Errorf("grants of bob: %+v", grants)
		}
	},
}

// redeem redeems an invite for an identity.
func redeem(t *testing.T, s *iamtest.Store, i resource.GroupInvite, identity resource.UID) error {
	return s.Write(t.Context(), func(tx *store.Tx) error { return iamdb.In(tx).UseInvite(t.Context(), i, identity) })
}

// bindingOf returns the only binding that an identity has on a group.
func bindingOf(t *testing.T, s *iamtest.Store, group, identity resource.UID) (uid resource.UID) {
	t.Helper()
	var text string
	testkit.Must(t, s.Row(t.Context(), `SELECT uid FROM role_bindings WHERE identity = $1`, []any{string(identity)},
		&text))
	if uid = resource.UID(text); uid.Parent() != group {
		t.Fatalf("the binding of %s is %s", identity, uid)
	}
	return uid
}

func TestTimedBindings(t *testing.T) {
	t.Parallel()
	for name, promise := range timePromises {
		t.Run(name, func(t *testing.T) {
			iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
				heard(t, s)
				org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
				promise(t, s, org.UID, iamtest.AddRole(t, s.IAMStore, org.UID, "reader").UID)
			})
		})
	}
}

// TestBindingsEndOnce lets two replicas record the ends of bindings while others change the
// bindings. It checks that each end is recorded once.
func TestBindingsEndOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := iamtest.Open(t, url)
		other := s
		if s.Replicated() {
			other = iamtest.Open(t, url)
		}
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		role := iamtest.AddRole(t, s.IAMStore, org.UID, "reader").UID
		var all []resource.UID
		for range 40 {
			all = append(all, addTimed(t, s, org.UID, resource.NewRoot(), role, over).UID)
		}
		var wg sync.WaitGroup
		for _, replica := range []*iamtest.Store{s, other, s, other} {
			wg.Go(func() {
				for range 30 {
					if _, err := replica.EndBindings(t.Context(), 3); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for _, uid := range all[:10] {
				if err := other.DeleteBinding(t.Context(), uid); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		got := expiries(t, s)
		for i, uid := range all {
			if n := got[uid]; n > 1 || n == 0 && i >= 10 {
				t.Errorf("binding %d was said to have expired %d times", i, n)
			}
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestOwnersGetAnEndTogether: two owners limit the time of each other's binding concurrently. The
// test checks that one of them stays an owner without a limit.
func TestOwnersGetAnEndTogether(t *testing.T) {
	t.Parallel()
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		for i := range 10 {
			org, first := iamtest.AddOrganization(t, s.IAMStore, fmt.Sprintf("org %d", i), iamtest.Alice)
			second := iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Bob, resource.OwnerRole)
			shorten := func(uid resource.UID) func() error {
				return func() error {
					_, err := s.UpdateBinding(t.Context(), uid, func(b *resource.RoleBinding) error {
						b.ExpireTime = time.Now().Add(time.Hour).Truncate(time.Second)
						return nil
					})
					return err
				}
			}
			a, b := dbtest.AtOnce(shorten(first.UID), shorten(second.UID))
			if err := dbtest.OneOf(fault.FailedPrecondition, fault.FailedPrecondition)(a, b); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestTheDatabaseTellsTheTime checks that, on PostgreSQL, the clock of a replica decides nothing.
func TestTheDatabaseTellsTheTime(t *testing.T) {
	t.Parallel()
	s := iamtest.Open(t, dbtest.Postgres(t))
	org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
	role := iamtest.AddRole(t, s.IAMStore, org.UID, "reader").UID
	b := addTimed(t, s, org.UID, iamtest.Bob, role, active)
	if earliest, latest := s.Clock(); !earliest.IsZero() || latest.Before(time.Now().AddDate(1000, 0, 0)) {
		t.Errorf("before the first heartbeat it is between %v and %v", earliest, latest)
	}
	heard(t, s)
	for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		s.Now = func() time.Time { return time.Now().Add(skew) }
		before := time.Now()
		earliest, latest := s.Clock()
		wrong := earliest.After(time.Now().Add(time.Second)) || latest.Before(before.Add(-time.Second))
		if wrong || latest.Sub(earliest) > time.Minute {
			t.Errorf("with a skew of %v it is between %v and %v", skew, earliest, latest)
		}
		if n, err := s.EndBindings(t.Context(), 10); err != nil || n != 0 {
			t.Errorf("with a skew of %v %d bindings are over, %v", skew, n, err)
		}
		if got := holdersOf(t, s, org.UID, role); len(got) != 1 || got[0] != b.UID {
			t.Errorf("with a skew of %v %v hold the role", skew, got)
		}
	}
}

// TestTheTimeIsBetweenTheTwo checks that the time of PostgreSQL is always between the bounds that a replica
// computes, including the fraction of a millisecond that is rounded away.
func TestTheTimeIsBetweenTheTwo(t *testing.T) {
	t.Parallel()
	s := iamtest.Open(t, dbtest.Postgres(t))
	for range 100 {
		heard(t, s)
		for range 10 {
			earliest, _ := s.Clock()
			var ms int64
			testkit.Must(t, s.Row(t.Context(), `SELECT `+s.Engine.Clock, nil, &ms))
			_, latest := s.Clock()
			if now := store.FromMS(ms); now.Before(earliest) || now.After(latest) {
				t.Fatalf("it is %v, and was believed to be between %v and %v", now, earliest, latest)
			}
		}
	}
}

// TestTimeDoesNotRunBack: a clock that is set back by a minute does not make ended bindings valid again.
func TestTimeDoesNotRunBack(t *testing.T) {
	t.Parallel()
	s := iamtest.Open(t, dbtest.SQLite(t))
	start := time.Now()
	for i, step := range []struct{ at, want time.Duration }{
		{0, 0}, {time.Minute, time.Minute}, {0, time.Minute}, {2 * time.Minute, 2 * time.Minute},
		{-time.Hour, -time.Hour}, // the clock was wrong before it was set back
		{-time.Hour + time.Second, -time.Hour + time.Second},
	} {
		s.Now = func() time.Time { return start.Add(step.at) }
		if _, got := s.Clock(); got.UnixMilli() != start.Add(step.want).UnixMilli() {
			t.Errorf("step %d: the clock says %v, want %v", i, got.Sub(start), step.want)
		}
	}
}
