package iamdb_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func inviteKeeps(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := iamtest.NewRole(org.UID, "r")
	r.Description = "a role"
	testkit.Must(t, s.InsertRole(t.Context(), r))
	i := iamtest.NewInvite(org.UID, r.UID)
	i.Email, i.SingleUse, i.Digest, i.Code = "a@b.test", true, []byte{0, 255}, "known once"
	want := i
	want.Code, want.RoleInfo = "", resource.Role{UID: r.UID, Name: "r", Description: "a role",
		Capabilities: r.Capabilities}
	got, err := s.InsertInvite(t.Context(), i)
	testkit.Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, err = store.Edit(t.Context(), r.UID, s.Role, s.UpdateRole, func(r *resource.Role) error {
		r.Name = "renamed"
		return nil
	})
	testkit.Must(t, err)
	want.RoleInfo.Name = "renamed"
	testkit.WantSame(t, s.Invite, i.UID, want)
	listed, err := s.Invites(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{}, iamtest.ByUID)
	testkit.Must(t, err)
	if diff := cmp.Diff([]resource.GroupInvite{want}, listed.Items); diff != "" {
		t.Error(diff)
	}
	testkit.Must(t, s.DeleteInvite(t.Context(), i.UID))
	_, err = s.Invite(t.Context(), i.UID)
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "group invite", Name: string(i.UID)})
}

func inviteRole(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	none := org.UID.NewChild()
	_, err := s.InsertInvite(t.Context(), iamtest.NewInvite(org.UID, none))
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "role", Name: string(none)})
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	i := iamtest.AddInvite(t, s.IAMStore, org.UID, r.UID)
	iamtest.WantUsers(t, s.DeleteRole(t.Context(), r.UID), "cannot delete role used by group invites")
	testkit.Must(t, s.DeleteInvite(t.Context(), i.UID))
	testkit.Must(t, s.DeleteRole(t.Context(), r.UID))
}

func inviteChanges(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r, other := iamtest.AddRole(t, s.IAMStore, org.UID, "r"), iamtest.AddRole(t, s.IAMStore, org.UID, "other")
	i := iamtest.NewInvite(org.UID, r.UID)
	i.SingleUse, i.Digest = true, []byte{1, 2}
	i, err := s.InsertInvite(t.Context(), i)
	testkit.Must(t, err)
	edit := func(change func(*resource.GroupInvite)) (resource.GroupInvite, error) {
		return store.Edit(t.Context(), i.UID, s.Invite, s.UpdateInvite, func(i *resource.GroupInvite) error {
			change(i)
			return nil
		})
	}
	got, err := edit(func(i *resource.GroupInvite) {
		i.Role, i.Email, i.ExpirationTime = other.UID, "b@c.test", iamtest.Epoch.Add(time.Hour)
		// the store must ignore changes to these fields
		i.SingleUse, i.Digest, i.KeyID, i.CreateTime = false, []byte{3}, "changed", iamtest.Epoch
	})
	testkit.Must(t, err)
	want := i
	want.Role, want.Email = other.UID, "b@c.test"
	want.ExpirationTime, want.UpdateTime = iamtest.Epoch.Add(time.Hour), got.UpdateTime
	want.RoleInfo = resource.Role{UID: other.UID, Name: "other", Capabilities: other.Capabilities}
	if diff := cmp.Diff(want, got); diff != "" || !got.UpdateTime.After(i.UpdateTime) {
		t.Errorf("changed at %v, after %v\n%s", got.UpdateTime, i.UpdateTime, diff)
	}
	testkit.WantSame(t, s.Invite, i.UID, want)
	testkit.Must(t, s.DeleteRole(t.Context(), r.UID)) // possible, because the invite no longer refers to the role
	_, err = edit(func(i *resource.GroupInvite) { i.Role = r.UID })
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "role", Name: string(r.UID)})
	_, err = s.UpdateInvite(t.Context(), i, want) // i is the version before the change
	if !errors.Is(err, store.ErrStale) {
		t.Errorf("a change of what has changed: %v", err)
	}
	if _, err = s.DB.Exec(t.Context(), `INSERT INTO joins (grp, invite, identity, role, at_ms) VALUES ($1, $2, '', '', 0)`,
		store.Segment(org.UID), string(i.UID)); err != nil {
		t.Fatal(err)
	}
	_, err = edit(func(i *resource.GroupInvite) { i.Email = "" })
	testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
	testkit.Must(t, s.DeleteInvite(t.Context(), i.UID))
	_, err = edit(func(*resource.GroupInvite) {})
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "group invite", Name: string(i.UID)})
}

func inviteKey(t *testing.T, s *iamtest.Store) {
	org, other := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "other")
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	keyed := func(group resource.UID, key string) resource.UID {
		i := iamtest.NewInvite(group, r.UID)
		i.KeyID = key
		_, err := s.InsertInvite(t.Context(), i)
		testkit.Must(t, err)
		return i.UID
	}
	want := keyed(org.UID, "one")
	keyed(org.UID, "two")
	keyed(other.UID, "one") // this group is not in the reach of the list
	got, err := s.Invites(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{KeyID: "one"},
		iamtest.ByUID)
	testkit.Must(t, err)
	if got.Total != 1 || len(got.Items) != 1 || got.Items[0].UID != want {
		t.Errorf("invites = %+v", got)
	}
}

// noDefaultOrder checks that the store has no default order, and refuses an
// order that the kind does not have.
func noDefaultOrder(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := store.Reach{Under: []resource.UID{org.UID}}
	h := iamdb.HolderQuery{Groups: r.Under, Roles: []resource.UID{resource.OwnerRole}}
	for _, field := range []string{"", "key_id", "t.uid"} {
		p := page.Request{Size: 1, Order: page.Order{Field: field}}
		_, providers := s.Providers(t.Context(), r, resource.Filter{}, p)
		_, associations := s.Associations(t.Context(), r, resource.Filter{}, p)
		_, invites := s.Invites(t.Context(), r, resource.Filter{}, p)
		_, mappings := s.Mappings(t.Context(), r, resource.Filter{}, p)
		_, holders := s.Holders(t.Context(), h, p)
		for n, err := range []error{providers, associations, invites, mappings, holders} {
			if err == nil {
				t.Errorf("list %d takes the order %q", n, field)
			}
		}
	}
}

// TestInvitesExpire checks that an expired invite has one event, and another one if its
// expiry was moved and has passed again.
func TestInvitesExpire(t *testing.T) {
	t.Parallel()
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		role := iamtest.AddRole(t, s.IAMStore, org, "reader").UID
		add := func(in time.Duration) resource.GroupInvite {
			i := resource.GroupInvite{UID: org.NewChild(), Role: role, KeyID: "k", Digest: []byte("d"),
				ExpirationTime: time.Now().Add(in), CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
			made, err := s.InsertInvite(t.Context(), i)
			testkit.Must(t, err)
			return made
		}
		over := add(-time.Minute)
		add(time.Hour)
		told := func() (n int) {
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if _, err := s.EndInvites(t.Context(), 10); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, e := range dbtest.Events(t, s.DB) {
				if e.Type == resource.InviteExpired {
					n++
					if e.Subject != over.UID || e.Group != org {
						t.Errorf("the event is about %s in %s", e.Subject, e.Group)
					}
				}
			}
			return n
		}
		if n := told(); n != 1 {
			t.Errorf("told %d times", n)
		}
		again := over
		again.ExpirationTime = time.Now().Add(-time.Second)
		again, err := s.UpdateInvite(t.Context(), over, again)
		testkit.Must(t, err)
		if n := told() + told(); n != 4 {
			t.Errorf("told %d times altogether after its end was put off, want 2", n/2)
		}
	})
}
