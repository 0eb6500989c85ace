package iamdb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// promises contains a test for each promise that the comments of the store make.
var promises = map[string]func(t *testing.T, s *iamtest.Store){
	"a group keeps what it was given": func(t *testing.T, s *iamtest.Store) {
		g := resource.Group{UID: resource.NewRoot(), Name: "org", Description: "ünï", Verified: true, Kind: resource.OrgDev,
			CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch.Add(time.Millisecond)}
		_, err := s.InsertGroup(t.Context(), g)
		testkit.Must(t, err)
		testkit.WantSame(t, s.Group, g.UID, g)
	},
	"siblings have different names": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		a, b := iamtest.AddGroup(t, s.IAMStore, org.UID, "a"), iamtest.AddGroup(t, s.IAMStore, org.UID, "b")
		_, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org.UID, "a"))
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "group", Name: "a"})
		_, err = store.Edit(t.Context(), b.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
			g.Name = "a"
			return nil
		})
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "group", Name: "a"})
		iamtest.AddGroup(t, s.IAMStore, b.UID, "a")
		iamtest.AddGroup(t, s.IAMStore, a.UID, "a")
	},
	"missing groups of a path are created, all or none, and those that are there are found": func(t *testing.T,
		s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		a := iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
		at, err := s.EnsureGroups(t.Context(), org.UID, []string{"a", "b", "c"})
		testkit.Must(t, err)
		again, err := s.EnsureGroups(t.Context(), a.UID, []string{"b", "c"})
		if err != nil || again != at || at.Parent().Parent() != a.UID {
			t.Errorf("groups = %s, then %s, %v", at, again, err)
		}
		c, err := s.Group(t.Context(), at)
		if err != nil || c.Name != "c" || c.CreateTime.IsZero() {
			t.Errorf("group = %+v, %v", c, err)
		}
		var created int
		for _, e := range dbtest.Events(t, s.DB) {
			if e.Type == resource.GroupCreated {
				created++
			}
		}
		if created != 4 {
			t.Errorf("%d events of new groups", created)
		}
		_, err = s.EnsureGroups(t.Context(), org.UID.NewChild(), []string{"x"})
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		dbtest.WantExact(t, s.DB)
	},
	"roots have different names": func(t *testing.T, s *iamtest.Store) {
		iamtest.AddGroup(t, s.IAMStore, "", "org")
		_, err := s.InsertGroup(t.Context(), iamtest.NewGroup("", "org"))
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "group", Name: "org"})
	},
	"a path finds what has its names, and nothing else": func(t *testing.T, s *iamtest.Store) {
		org, rival := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "rival")
		folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "folder")
		iamtest.AddGroup(t, s.IAMStore, rival.UID, "folder")
		ci := []resource.UID{iamtest.AddIdentity(t, s.IAMStore, folder.UID, "ci").UID, iamtest.AddIdentity(t, s.IAMStore,
			folder.UID, "ci").UID}
		slices.Sort(ci)
		deep := slices.Repeat([]string{"org"}, store.MaxNames+1)
		for name, tt := range map[string]struct {
			table string
			names []string
			limit int
			want  []resource.UID
		}{
			"an organization":   {"groups", []string{"org"}, 20, []resource.UID{org.UID}},
			"a folder":          {"groups", []string{"org", "folder"}, 20, []resource.UID{folder.UID}},
			"two of a name":     {"identities", []string{"org", "folder", "ci"}, 20, ci},
			"the first of them": {"identities", []string{"org", "folder", "ci"}, 1, ci[:1]},
			"one name too few":  {"identities", []string{"folder", "ci"}, 20, nil},
			"elsewhere":         {"identities", []string{"rival", "folder", "ci"}, 20, nil},
			"of another kind":   {"repos", []string{"org", "folder"}, 20, nil},
			"no names":          {"groups", nil, 20, nil},
			"too many names":    {"groups", deep, 20, nil},
			"as many as can be": {"groups", deep[1:], 20, nil},
		} {
			got, err := s.FindByPath(t.Context(), tt.table, tt.names, tt.limit)
			testkit.Must(t, err)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		repos := registrydb.New(s.DB)
		for _, names := range [][]string{deep, deep[1:], slices.Repeat(deep, 2)} {
			_, err := repos.GroupAt(t.Context(), names)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "group", Name: strings.Join(names, "/")})
			_, err = repos.RepoAt(t.Context(), names)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "repo", Name: strings.Join(names, "/")})
		}
	},
	"names are found by whole uids": func(t *testing.T, s *iamtest.Store) {
		org, rival := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "rival")
		folder := iamtest.NewGroup(org.UID, "folder")
		folder.DisplayName = "Ein Ordner für Zoë"
		folder, err := s.InsertGroup(t.Context(), folder)
		testkit.Must(t, err)
		grafted := rival.UID + folder.UID[len(org.UID):] // a uid with the segment of folder, but below another organization
		uids := []resource.UID{folder.UID, org.UID, grafted, rival.UID.NewChild(), folder.UID}
		got, err := s.NamesOf(t.Context(), "groups", true, uids)
		testkit.Must(t, err)
		want := map[resource.UID]resource.Info{
			org.UID: {UID: org.UID, Name: "org"}, folder.UID: {UID: folder.UID, Name: "folder", DisplayName: folder.DisplayName},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if got, err := s.NamesOf(t.Context(), "groups", true, []resource.UID{grafted}); err != nil || len(got) != 0 {
			t.Errorf("of a segment below another group: %v, %v", got, err)
		}
		if got, err := s.NamesOf(t.Context(), "roles", false, uids); err != nil || len(got) != 0 {
			t.Errorf("of another kind: %v, %v", got, err)
		}
		if got, err := s.NamesOf(t.Context(), "groups", true, nil); err != nil || len(got) != 0 {
			t.Errorf("of no uids: %v, %v", got, err)
		}
	},
	"names may have one character": func(t *testing.T, s *iamtest.Store) {
		iamtest.AddGroup(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "a").UID, "a")
	},
	"a group takes over its organization's kind": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.NewGroup("", "org")
		org.Kind = resource.OrgDev
		_, err := s.InsertGroup(t.Context(), org)
		testkit.Must(t, err)
		child := iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
		grandchild := iamtest.AddGroup(t, s.IAMStore, child.UID, "b")
		if child.Kind != resource.OrgDev || grandchild.Kind != resource.OrgDev {
			t.Errorf("kinds = %d, %d", child.Kind, grandchild.Kind)
		}
		testkit.WantSame(t, s.Group, grandchild.UID, grandchild)
	},
	"what is not there is not found": func(t *testing.T, s *iamtest.Store) {
		uid := iamtest.AddGroup(t, s.IAMStore, "", "org").UID.NewChild()
		ctx, name := t.Context(), string(uid)
		nothing := errors.New("change ran")
		_, g := s.Group(ctx, uid)
		_, gu := store.Edit(ctx, uid, s.Group, s.UpdateGroup, func(*resource.Group) error { return nothing })
		_, i := s.Identity(ctx, uid)
		_, iu := store.Edit(ctx, uid, s.Identity, s.UpdateIdentity, func(*resource.Identity) error { return nothing })
		_, r := s.Role(ctx, uid)
		_, ru := store.Edit(ctx, uid, s.Role, s.UpdateRole, func(*resource.Role) error { return nothing })
		_, b := s.Binding(ctx, uid)
		_, bu := s.UpdateBinding(ctx, uid, func(*resource.RoleBinding) error { return nothing })
		_, p := s.Provider(ctx, uid)
		_, pu := s.UpdateProvider(ctx, uid,
			iamtest.ChangeProvider(func(p *resource.IdentityProvider) error { return nothing }))
		_, a := s.Association(ctx, uid)
		_, au := store.Edit(ctx, uid, s.Association, s.UpdateAssociation, func(*resource.AccountAssociation) error {
			return nothing
		})
		_, v := s.Invite(ctx, uid)
		_, m := s.Mapping(ctx, uid)
		for kind, errs := range map[string][]error{
			"identity provider": {p, pu, s.DeleteProvider(ctx, uid)}, "account association": {a, au},
			"group invite": {v}, "external group role mapping": {m, s.DeleteMapping(ctx, uid)},
			"group": {g, gu, s.DeleteGroup(ctx, uid, "")}, "identity": {i, iu, s.DeleteIdentity(ctx, uid)},
			"role": {r, ru, s.DeleteRole(ctx, uid)}, "role binding": {b, bu},
		} {
			for _, err := range errs {
				testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: kind, Name: name})
			}
		}
		before := len(dbtest.Events(t, s.DB))
		testkit.Must(t, s.DeleteBinding(ctx, uid)) // the binding is already deleted
		testkit.Must(t, s.DeleteAssociation(ctx, uid))
		testkit.Must(t, s.DeleteInvite(ctx, uid))
		if n := len(dbtest.Events(t, s.DB)); n != before {
			t.Errorf("%d events of what was gone already", n-before)
		}
	},
	"a parent must be there": func(t *testing.T, s *iamtest.Store) {
		wantNoParent(t, s, resource.NewRoot().NewChild())
	},
	"and not be gone": func(t *testing.T, s *iamtest.Store) {
		g := iamtest.AddGroup(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "g")
		child := iamtest.AddGroup(t, s.IAMStore, g.UID, "known as a parent")
		testkit.Must(t, s.DeleteGroup(t.Context(), child.UID, iamtest.Alice))
		testkit.Must(t, s.DeleteGroup(t.Context(), g.UID, iamtest.Alice))
		wantNoParent(t, s, g.UID)
	},
	"the wrong path to the right segment is no parent": func(t *testing.T, s *iamtest.Store) {
		one, two := iamtest.AddGroup(t, s.IAMStore, "", "one"), iamtest.AddGroup(t, s.IAMStore, "", "two")
		g := iamtest.AddGroup(t, s.IAMStore, one.UID, "g")
		iamtest.AddGroup(t, s.IAMStore, g.UID, "known as a parent")
		wantNoParent(t, s, two.UID+g.UID[strings.LastIndex(string(g.UID), "/"):])
	},
	"a group is found by the end of its uid": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		g := iamtest.AddGroup(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, org.UID, "a").UID, "b")
		for _, suffix := range []string{string(g.UID), string(g.UID[58:]), string(g.UID[41:])} {
			got, err := s.GroupBySuffix(t.Context(), suffix)
			testkit.Must(t, err)
			if got.UID != g.UID {
				t.Errorf("%s is the end of %s", suffix, got.UID)
			}
		}
		for _, suffix := range []string{"0000000000000000", "0000000000000000/" + string(g.UID[58:]), string(org.UID[24:])} {
			_, err := s.GroupBySuffix(t.Context(), suffix)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "group", Name: suffix})
		}
		got, err := s.Organization(t.Context(), "org")
		testkit.Must(t, err)
		if got.UID != org.UID {
			t.Errorf("organization = %s", got.UID)
		}
		_, err = s.Organization(t.Context(), "a")
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "organization", Name: "a"})
	},
	"a group with children stays, and names every kind": func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		g := iamtest.AddGroup(t, s.IAMStore, org.UID, "g")
		children := map[string]func(){
			"groups":        func() { iamtest.AddGroup(t, s.IAMStore, g.UID, "c") },
			"identities":    func() { iamtest.AddIdentity(t, s.IAMStore, g.UID, "c") },
			"roles":         func() { iamtest.AddRole(t, s.IAMStore, g.UID, "c") },
			"role bindings": func() { iamtest.AddBinding(t, s.IAMStore, g.UID, iamtest.Alice, resource.OwnerRole) },

			"identity providers":   func() { iamtest.AddProvider(t, s.IAMStore, g.UID, resource.OwnerRole, "c") },
			"account associations": func() { iamtest.AddAssociation(t, s.IAMStore, g.UID, "c") },
			"group invites":        func() { iamtest.AddInvite(t, s.IAMStore, g.UID, resource.OwnerRole) },
		}
		var want []string
		for _, kind := range []string{"groups", "identities", "roles", "role bindings", "identity providers",
			"account associations", "group invites"} {
			children[kind]()
			want = append(want, "cannot delete group with child "+kind)
			err := s.DeleteGroup(t.Context(), g.UID, iamtest.Alice)
			testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
			var got []string
			for _, v := range fault.From(err).Unmet {
				got = append(got, v.Description)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	},
	"the caller's own binding goes with the organization": func(t *testing.T, s *iamtest.Store) {
		org, b := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		testkit.Must(t, s.DeleteGroup(t.Context(), org.UID, iamtest.Alice))
		_, err := s.Binding(t.Context(), b.UID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		if grants, err := s.GrantsOf(t.Context(), iamtest.Alice); err != nil || len(grants) != 0 {
			t.Errorf("grants left: %v, %v", grants, err)
		}
	},
	"but nobody else's": func(t *testing.T, s *iamtest.Store) {
		org, b := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		testkit.WantFault(t, s.DeleteGroup(t.Context(), org.UID, iamtest.Bob), fault.FailedPrecondition, fault.Resource{})
		iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Bob, resource.OwnerRole)
		testkit.WantFault(t, s.DeleteGroup(t.Context(), org.UID, iamtest.Alice), fault.FailedPrecondition, fault.Resource{})
		_, err := s.Binding(t.Context(), b.UID)
		testkit.Must(t, err)
	},
	"and not while something else is left": func(t *testing.T, s *iamtest.Store) {
		org, b := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		iamtest.AddGroup(t, s.IAMStore, org.UID, "g")
		testkit.WantFault(t, s.DeleteGroup(t.Context(), org.UID, iamtest.Alice), fault.FailedPrecondition, fault.Resource{})
		_, err := s.Binding(t.Context(), b.UID)
		testkit.Must(t, err)
	},
	"the last owner stays": func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		viewer := iamtest.AddRole(t, s.IAMStore, org.UID, "viewer")
		i := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i")
		first := onlyBinding(t, s, org.UID)
		testkit.WantUnmet(t, s.DeleteBinding(t.Context(), first), "LAST_OWNER")
		_, err := s.UpdateBinding(t.Context(), first, func(b *resource.RoleBinding) error { b.Role = viewer.UID; return nil })
		testkit.WantUnmet(t, err, "LAST_OWNER")
		_, err = s.UpdateBinding(t.Context(), first, func(b *resource.RoleBinding) error { b.Identity = i.UID; return nil })
		testkit.Must(t, err) // the organization still has an owner
		testkit.WantUnmet(t, s.DeleteIdentity(t.Context(), i.UID), "LAST_OWNER")
		second := iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Bob, resource.OwnerRole)
		testkit.Must(t, s.DeleteIdentity(t.Context(), i.UID))
		testkit.WantUnmet(t, s.DeleteBinding(t.Context(), second.UID), "LAST_OWNER")
	},
	"another organization keeps no workload, and the log tells that it has no owner": func(t *testing.T,
		s *iamtest.Store) {
		i := iamtest.AddIdentity(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "i")
		other, _ := iamtest.AddOrganization(t, s.IAMStore, "other", i.UID)
		var log bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		testkit.Must(t, s.DeleteIdentity(t.Context(), i.UID))
		if !strings.Contains(log.String(), string(other.UID)) {
			t.Errorf("the log says %q", log.String())
		}
	},
	"which organization a person owns alone is not told": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		a := iamtest.AddAccount(t, s.People, org.UID, "ann@example.test")
		other, _ := iamtest.AddOrganization(t, s.IAMStore, "other", a.Identity)
		err := s.DeleteIdentity(t.Context(), a.Identity)
		testkit.WantUnmet(t, err, "LAST_OWNER")
		if strings.Contains(fmt.Sprint(err, fault.From(err).Unmet), string(other.UID)) {
			t.Errorf("it is: %v", err)
		}
		testkit.Must(t, s.DeleteAccount(t.Context(), a.UID)) // the organization that the account belongs to may delete it
	},
	"a folder needs no owner": func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		b := iamtest.AddBinding(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, org.UID, "g").UID, iamtest.Alice,
			resource.OwnerRole)
		testkit.Must(t, s.DeleteBinding(t.Context(), b.UID))
	},
	"an identity keeps what it was given": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		i := iamtest.NewIdentity(org.UID, "i")
		i.Email, i.EmailUnverified, i.Company, i.Metadata = "a@b.test", "c@d.test", "co", map[string]any{"k": "v"}
		i.Relationship.ClaimMatch.Claims = map[string]string{"a": "b"}
		testkit.Must(t, s.InsertIdentity(t.Context(), i))
		testkit.WantSame(t, s.Identity, i.UID, i)
		err := s.InsertIdentity(t.Context(), i)
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "identity", Name: "i"})
	},
	"an identity goes with its bindings and its tokens": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		other := iamtest.AddGroup(t, s.IAMStore, "", "other")
		i, r := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		iamtest.AddBinding(t, s.IAMStore, org.UID, i.UID, r.UID)
		iamtest.AddBinding(t, s.IAMStore, other.UID, i.UID, r.UID)
		now := iamtest.Epoch.Add(time.Hour + 567*time.Microsecond)
		s.Now = func() time.Time { return now }
		testkit.Must(t, s.DeleteIdentity(t.Context(), i.UID))
		got, err := s.Revocations(t.Context(), iamtest.Epoch)
		testkit.Must(t, err)
		if diff := cmp.Diff(map[resource.UID]time.Time{i.UID: now.Truncate(time.Millisecond)}, got); diff != "" {
			t.Error(diff)
		}
		if grants, err := s.GrantsOf(t.Context(), i.UID); err != nil || len(grants) != 0 {
			t.Errorf("grants left: %v, %v", grants, err)
		}
	},
	"a role in use stays": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		b := iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Alice, r.UID)
		testkit.WantUnmet(t, s.DeleteRole(t.Context(), r.UID), "RESOURCE_IN_USE")
		testkit.Must(t, s.DeleteBinding(t.Context(), b.UID))
		testkit.Must(t, s.DeleteRole(t.Context(), r.UID))
	},
	"roles of a group have different names": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		testkit.WantSame(t, s.Role, r.UID, r)
		testkit.WantFault(t, s.InsertRole(t.Context(), iamtest.NewRole(org.UID, "r")), fault.AlreadyExists,
			fault.Resource{Type: "role", Name: "r"})
		q := iamtest.AddRole(t, s.IAMStore, org.UID, "q")
		_, err := store.Edit(t.Context(), q.UID, s.Role, s.UpdateRole, func(r *resource.Role) error {
			r.Name = "r"
			return nil
		})
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role", Name: "r"})
	},
	"managed roles are set, and set again": managedRoles,
	"a batch of bindings is all or nothing": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		good := iamtest.NewBinding(org.UID, iamtest.Alice, r.UID)
		for name, bad := range map[string]resource.RoleBinding{
			"no such role":     iamtest.NewBinding(org.UID, iamtest.Alice, org.UID.NewChild()),
			"no such identity": iamtest.NewBinding(org.UID, org.UID.NewChild(), r.UID),
		} {
			_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{good, bad})
			if !errors.Is(err, fault.NotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{good,
			iamtest.NewBinding(org.UID, iamtest.Alice, r.UID)})
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role binding", Name: string(iamtest.Alice)})
		if grants, err := s.GrantsOf(t.Context(), iamtest.Alice); err != nil || len(grants) != 0 {
			t.Errorf("grants: %v, %v", grants, err)
		}
		none, err := s.InsertBindings(t.Context(), nil)
		if err != nil || len(none) != 0 {
			t.Errorf("an empty batch: %v, %v", none, err)
		}
	},
	"a binding is there once": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Alice, r.UID)
		b := iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Bob, r.UID)
		_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{iamtest.NewBinding(org.UID, iamtest.Alice, r.UID)})
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role binding", Name: string(iamtest.Alice)})
		_, err = s.UpdateBinding(t.Context(), b.UID,
			func(b *resource.RoleBinding) error { b.Identity = iamtest.Alice; return nil })
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role binding", Name: string(iamtest.Alice)})
	},
	"access is asked for once in a while": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		i, now := iamtest.NewIdentity(org.UID, "i"), iamtest.Epoch
		s.Now = func() time.Time { return now }
		testkit.Must(t, s.RequestAccess(t.Context(), org.UID, i, time.Hour))
		now = now.Add(time.Hour - time.Millisecond)
		testkit.WantFault(t, s.RequestAccess(t.Context(), org.UID, i, time.Hour), fault.ResourceExhausted, fault.Resource{})
		testkit.Must(t, s.RequestAccess(t.Context(), org.UID, iamtest.NewIdentity(org.UID, "j"), time.Hour))
		now = now.Add(time.Millisecond)
		testkit.Must(t, s.RequestAccess(t.Context(), org.UID, i, time.Hour))
		if n := len(dbtest.Events(t, s.DB)); n != 4 {
			t.Errorf("%d events, want 4", n)
		}
	},
	"a role in use names every kind":                     roleUsers,
	"a provider keeps what it was given":                 providerKeeps,
	"a provider's role must be there":                    providerRole,
	"a secret is kept, changed and cleared":              providerSecret,
	"a provider in use stays":                            providerUsers,
	"a provider's counters go with it":                   providerCounters,
	"an association keeps what it was given":             associationKeeps,
	"a group has one association":                        associationOnce,
	"an association is listed by its group":              associationByGroup,
	"an association is inside its group":                 associationInside,
	"an invite shows its role":                           inviteKeeps,
	"an invite's role must be there":                     inviteRole,
	"an invite changes until it is used":                 inviteChanges,
	"invites are found by their key":                     inviteKey,
	"an order is asked for":                              noDefaultOrder,
	"a mapping is there once":                            mappingOnce,
	"a mapping's role must be there":                     mappingRole,
	"mappings go together, with one event":               mappingBatch,
	"a batch is of one provider":                         mappingBatchElsewhere,
	"a person learns where their roles come from":        heldRoles,
	"what strangers give does not crowd out what counts": heldRolesOfStrangers,

	"a binding shows what it ties together": hydration,
	"updates happen one after the other":    concurrentUpdates,
	"change's own error writes nothing":     changeFails,
	"a change of nothing writes nothing":    changeNothing,
	"failed writes leave nothing":           failedWrites,
	"counters follow any history":           randomHistory,
	"every change has one event":            everyEvent,
	"an event has before and after":         beforeAndAfter,
	"the first signing key wins":            signingKeys,

	"the last denials are kept for a while":      denialsKept,
	"the last exchanges are kept for a while":    exchangesKept,
	"to be seen is no change":                    seenQuietly,
	"an issuer is looked at by one":              issuerStates,
	"an issuer has the identities that trust it": identitiesOfIssuer,
	"signing keys follow one another":            signingKeysRotate,
}

func TestPromises(t *testing.T) {
	for name, f := range promises {
		t.Run(name, func(t *testing.T) {
			iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
				f(t, s)
				dbtest.WantExact(t, s.DB)
			})
		})
	}
}

// wantNoParent checks that no resource can be inserted into a group that does not exist.
func wantNoParent(t *testing.T, s *iamtest.Store, parent resource.UID) {
	t.Helper()
	missing := fault.Resource{Type: "group", Name: string(parent)}
	_, err := s.InsertGroup(t.Context(), iamtest.NewGroup(parent, "a"))
	testkit.WantFault(t, err, fault.NotFound, missing)
	testkit.WantFault(t, s.InsertIdentity(t.Context(), iamtest.NewIdentity(parent, "a")), fault.NotFound, missing)
	testkit.WantFault(t, s.InsertRole(t.Context(), iamtest.NewRole(parent, "a")), fault.NotFound, missing)
	r := iamtest.AddRole(t, s.IAMStore, iamtest.AddGroup(t, s.IAMStore, "", "elsewhere").UID, "r")
	_, err = s.InsertBindings(t.Context(), []resource.RoleBinding{iamtest.NewBinding(parent, iamtest.Alice, r.UID)})
	testkit.WantFault(t, err, fault.NotFound, missing)
	testkit.WantFault(t, s.InsertProvider(t.Context(), iamtest.NewProvider(parent, r.UID, "a")), fault.NotFound, missing)
	testkit.WantFault(t, s.InsertAssociation(t.Context(), iamtest.NewAssociation(parent, "a")), fault.NotFound, missing)
	_, err = s.InsertInvite(t.Context(), iamtest.NewInvite(parent, r.UID))
	testkit.WantFault(t, err, fault.NotFound, missing)
	missing.Type = "identity provider"
	testkit.WantFault(t, s.InsertMapping(t.Context(), iamtest.NewMapping(parent, r.UID, "a")), fault.NotFound, missing)
}

func onlyBinding(t *testing.T, s *iamtest.Store, group resource.UID) resource.UID {
	t.Helper()
	got, err := s.Bindings(t.Context(), store.Reach{Under: []resource.UID{group}}, resource.Filter{Group: group},
		iamtest.ByUID)
	testkit.Must(t, err)
	if len(got.Items) != 1 {
		t.Fatalf("%d bindings in %s, want 1", len(got.Items), group)
	}
	return got.Items[0].UID
}

func managedRoles(t *testing.T, s *iamtest.Store) {
	s.Now = func() time.Time { return iamtest.Epoch }
	other := resource.Role{UID: resource.ManagedRoleUID("other"), Name: "other",
		Capabilities: resource.CapabilitySet("roles.list")}
	set := []resource.Role{iamtest.OwnerRole, other}
	testkit.Must(t, s.SetManagedRoles(t.Context(), set))
	revision, err := s.Revision(t.Context())
	testkit.Must(t, err)
	s.Now = func() time.Time { return iamtest.Epoch.Add(time.Hour) }
	testkit.Must(t, s.SetManagedRoles(t.Context(), set))
	if same, err := s.Revision(t.Context()); err != nil || same != revision {
		t.Errorf("setting the same roles moved the revision from %d to %d", revision, same)
	}
	other.Capabilities = resource.CapabilitySet("roles.list", "groups.list")
	testkit.Must(t, s.SetManagedRoles(t.Context(), []resource.Role{iamtest.OwnerRole, other}))
	got, err := s.Role(t.Context(), other.UID)
	testkit.Must(t, err)
	other.CreateTime, other.UpdateTime = iamtest.Epoch, iamtest.Epoch.Add(time.Hour)
	if diff := cmp.Diff(other, got); diff != "" {
		t.Error(diff)
	}
	caps, err := s.RoleCapabilities(t.Context())
	testkit.Must(t, err)
	if diff := cmp.Diff(map[resource.UID]resource.Capabilities{iamtest.OwnerRole.UID: iamtest.OwnerRole.Capabilities,
		other.UID: other.Capabilities}, caps); diff != "" {
		t.Error(diff)
	}
}

func hydration(t *testing.T, s *iamtest.Store) {
	org := iamtest.NewGroup("", "org")
	org.Description = "the org"
	_, err := s.InsertGroup(t.Context(), org)
	testkit.Must(t, err)
	i, r := iamtest.NewIdentity(org.UID, "i"), iamtest.NewRole(org.UID, "r")
	i.Description, i.Email, r.Description = "an identity", "i@b.test", "a role"
	testkit.Must(t, s.InsertIdentity(t.Context(), i))
	testkit.Must(t, s.InsertRole(t.Context(), r))
	with, without := iamtest.NewBinding(org.UID, i.UID, r.UID), iamtest.NewBinding(org.UID, iamtest.Alice, r.UID)
	want := []resource.BoundRole{
		{
			RoleBinding: with,
			IdentityInfo: resource.IdentityInfo{Info: resource.Info{UID: i.UID, Name: "i", Description: "an identity"},
				Issuer: "https://issuer.test", Subject: "i", Email: "i@b.test"},
		},
		{RoleBinding: without, IdentityInfo: resource.IdentityInfo{Info: resource.Info{UID: iamtest.Alice}}},
	}
	for n := range want {
		want[n].GroupInfo = resource.Info{UID: org.UID, Name: "org", Description: "the org"}
		want[n].RoleInfo = resource.Info{UID: r.UID, Name: "r", Description: "a role"}
	}
	got, err := s.InsertBindings(t.Context(), []resource.RoleBinding{with, without})
	testkit.Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	testkit.WantSame(t, s.Binding, with.UID, want[0])
	testkit.WantSame(t, s.Binding, without.UID, want[1])
	listed, err := s.Bindings(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{}, iamtest.ByUID)
	testkit.Must(t, err)
	slices.SortFunc(want, func(a, b resource.BoundRole) int { return strings.Compare(string(a.UID), string(b.UID)) })
	if diff := cmp.Diff(want, listed.Items); diff != "" {
		t.Error(diff)
	}
}

func concurrentUpdates(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	i, r := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	p, a := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p"), iamtest.AddAssociation(t, s.IAMStore, org.UID, "a")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, g := store.Edit(t.Context(), org.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
				g.Description += "x"
				return nil
			})
			_, i := store.Edit(t.Context(), i.UID, s.Identity, s.UpdateIdentity, func(i *resource.Identity) error {
				i.Description += "x"
				return nil
			})
			_, r := store.Edit(t.Context(), r.UID, s.Role, s.UpdateRole, func(r *resource.Role) error {
				r.Description += "x"
				return nil
			})
			_, p := s.UpdateProvider(t.Context(), p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
				p.Description += "x"
				return nil
			}))
			_, a := store.Edit(t.Context(), a.UID, s.Association, s.UpdateAssociation,
				func(a *resource.AccountAssociation) error {
					a.Description += "x"
					return nil
				})
			if err := errors.Join(g, i, r, p, a); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	gotG, err := s.Group(t.Context(), org.UID)
	testkit.Must(t, err)
	gotI, err := s.Identity(t.Context(), i.UID)
	testkit.Must(t, err)
	gotR, err := s.Role(t.Context(), r.UID)
	testkit.Must(t, err)
	gotP, err := s.Provider(t.Context(), p.UID)
	testkit.Must(t, err)
	gotA, err := s.Association(t.Context(), a.UID)
	testkit.Must(t, err)
	for kind, text := range map[string]string{
		"group": gotG.Description, "identity": gotI.Description, "role": gotR.Description,
		"identity provider": gotP.Description, "account association": gotA.Description,
	} {
		if len(text) != 20 {
			t.Errorf("%d of 20 updates of the %s were lost", 20-len(text), kind)
		}
	}
}

func changeNothing(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	i, r := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	p, a := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p"), iamtest.AddAssociation(t, s.IAMStore, org.UID, "a")
	before := len(dbtest.Events(t, s.DB))
	_, ge := store.Edit(t.Context(), org.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
		g.Name = "org"
		return nil
	})
	_, ie := store.Edit(t.Context(), i.UID, s.Identity, s.UpdateIdentity, func(i *resource.Identity) error {
		i.Name = "i"
		return nil
	})
	_, me := store.Edit(t.Context(), i.UID, s.Identity, s.UpdateMetadata, func(i *resource.Identity) error {
		i.Company = ""
		return nil
	})
	_, re := store.Edit(t.Context(), r.UID, s.Role, s.UpdateRole, func(r *resource.Role) error {
		r.Name = "r"
		return nil
	})
	got, pe := s.UpdateProvider(t.Context(), p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
		p.Name = "p"
		return nil
	}))
	_, ae := store.Edit(t.Context(), a.UID, s.Association, s.UpdateAssociation,
		func(a *resource.AccountAssociation) error {
			a.Name = "a"
			return nil
		})
	testkit.Must(t, errors.Join(ge, ie, me, re, pe, ae))
	if diff := cmp.Diff(p, got); diff != "" { // the result equals the stored resource
		t.Error(diff)
	}
	testkit.WantSame(t, s.Group, org.UID, org)
	testkit.WantSame(t, s.Identity, i.UID, i)
	testkit.WantSame(t, s.Role, r.UID, r)
	testkit.WantSame(t, s.Provider, p.UID, p)
	testkit.WantSame(t, s.Association, a.UID, a)
	if n := len(dbtest.Events(t, s.DB)); n != before {
		t.Errorf("%d events more", n-before)
	}
}

func changeFails(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	i, r := iamtest.AddIdentity(t, s.IAMStore, org.UID, "i"), iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	b := iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Alice, r.UID)
	p, a := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p"), iamtest.AddAssociation(t, s.IAMStore, org.UID, "a")
	before := len(dbtest.Events(t, s.DB))
	revision, err := s.Revision(t.Context())
	testkit.Must(t, err)
	own := errors.New("mine")
	_, g := store.Edit(t.Context(), org.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
		g.Name = "x"
		return own
	})
	_, ie := store.Edit(t.Context(), i.UID, s.Identity, s.UpdateIdentity, func(i *resource.Identity) error {
		i.Name = "x"
		i.Relationship.ClaimMatch.Issuer = "x"
		return own
	})
	_, re := store.Edit(t.Context(), r.UID, s.Role, s.UpdateRole, func(r *resource.Role) error {
		r.Name = "x"
		return own
	})
	_, be := s.UpdateBinding(t.Context(), b.UID,
		func(b *resource.RoleBinding) error { b.Identity = iamtest.Bob; return own })
	_, pe := s.UpdateProvider(t.Context(), p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
		p.Name, p.OIDC.Issuer = "x", "x"
		return own
	}))
	_, ae := store.Edit(t.Context(), a.UID, s.Association, s.UpdateAssociation,
		func(a *resource.AccountAssociation) error {
			a.Name, a.Amazon = "x", nil
			return own
		})
	for _, err := range []error{g, ie, re, be, pe, ae} {
		if !errors.Is(err, own) {
			t.Errorf("error = %v", err)
		}
	}
	testkit.WantSame(t, s.Group, org.UID, org)
	testkit.WantSame(t, s.Identity, i.UID, i)
	testkit.WantSame(t, s.Role, r.UID, r)
	testkit.WantSame(t, s.Provider, p.UID, p)
	testkit.WantSame(t, s.Association, a.UID, a)
	if n := len(dbtest.Events(t, s.DB)); n != before {
		t.Errorf("%d events more", n-before)
	}
	if now, err := s.Revision(t.Context()); err != nil || now != revision {
		t.Errorf("revision = %d, want %d", now, revision)
	}
}

func failedWrites(t *testing.T, s *iamtest.Store) {
	ctx := t.Context()
	org, owner := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
	iamtest.AddGroup(t, s.IAMStore, org.UID, "a")
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Bob, r.UID)
	before := dbtest.Events(t, s.DB)
	revision, err := s.Revision(ctx)
	testkit.Must(t, err)
	_, taken := s.InsertGroup(ctx, iamtest.NewGroup(org.UID, "a"), iamtest.NewBinding(org.UID, iamtest.Bob,
		resource.OwnerRole))
	g := iamtest.NewGroup("", "with a bad binding")
	_, unbound := s.InsertGroup(ctx, g, iamtest.NewBinding(g.UID, iamtest.Bob, org.UID.NewChild()))
	_, dup := s.InsertBindings(ctx, []resource.RoleBinding{iamtest.NewBinding(org.UID, iamtest.Bob, r.UID)})
	for n, err := range []error{
		taken, unbound, dup, s.DeleteGroup(ctx, org.UID, iamtest.Bob), s.DeleteRole(ctx, r.UID), s.DeleteBinding(ctx,
			owner.UID),
		s.InsertRole(ctx, iamtest.NewRole(org.UID, "r")), s.DeleteIdentity(ctx, org.UID.NewChild()),
	} {
		if err == nil {
			t.Errorf("write %d succeeded", n)
		}
	}
	if diff := cmp.Diff(before, dbtest.Events(t, s.DB)); diff != "" {
		t.Error(diff)
	}
	if now, err := s.Revision(ctx); err != nil || now != revision {
		t.Errorf("revision = %d, want %d", now, revision)
	}
}

// randomHistory inserts and deletes random resources in several goroutines.
func randomHistory(t *testing.T, s *iamtest.Store) {
	ctx := t.Context()
	org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			groups := []resource.UID{org.UID}
			for n := range 60 {
				parent, name := groups[rand.IntN(len(groups))], fmt.Sprintf("n%d of %d", n, w)
				var err error
				switch rand.IntN(8) {
				case 0, 1:
					g := iamtest.NewGroup(parent, name)
					_, err = s.InsertGroup(ctx, g)
					groups = append(groups, g.UID)
				case 2:
					i := iamtest.NewIdentity(parent, name)
					err = s.InsertIdentity(ctx, i)
					_, bound := s.InsertBindings(ctx, []resource.RoleBinding{iamtest.NewBinding(parent, i.UID, resource.OwnerRole),
						iamtest.NewBinding(parent, i.UID[:40], resource.OwnerRole)})
					if bound != nil && !errors.Is(bound, fault.AlreadyExists) {
						err = errors.Join(err, bound)
					}
					if n%2 == 0 {
						err = errors.Join(err, s.DeleteIdentity(ctx, i.UID))
					}
				case 3:
					r := iamtest.NewRole(parent, name)
					err = s.InsertRole(ctx, r)
					if n%2 == 0 {
						err = errors.Join(err, s.DeleteRole(ctx, r.UID))
					}
				case 4:
					err = randomProvider(ctx, s, parent, name)
				case 5:
					err = randomRest(ctx, s, parent, name)
				default:
					if i := rand.IntN(len(groups)); i > 0 {
						if err = s.DeleteGroup(ctx, groups[i], ""); err == nil {
							groups = slices.Delete(groups, i, i+1)
						}
					}
				}
				if err != nil && !errors.Is(err, fault.FailedPrecondition) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// randomProvider adds a provider with mappings, and removes some or all of them.
func randomProvider(ctx context.Context, s *iamtest.Store, parent resource.UID, name string) error {
	p := iamtest.NewProvider(parent, resource.OwnerRole, name)
	err := s.InsertProvider(ctx, p)
	var uids []resource.UID
	for i := range 3 {
		m := iamtest.NewMapping(p.UID, resource.OwnerRole, fmt.Sprint(i))
		err = errors.Join(err, s.InsertMapping(ctx, m))
		uids = append(uids, m.UID)
	}
	if rand.IntN(2) == 0 {
		err = errors.Join(err, s.DeleteMapping(ctx, uids[1]))
	}
	if rand.IntN(2) == 0 {
		_, gone := s.DeleteMappings(ctx, p.UID, uids)
		err = errors.Join(err, gone, s.DeleteProvider(ctx, p.UID))
	}
	return err
}

// randomRest adds an invite and an association, and removes one or both of them.
func randomRest(ctx context.Context, s *iamtest.Store, parent resource.UID, name string) error {
	i := iamtest.NewInvite(parent, resource.OwnerRole)
	_, err := s.InsertInvite(ctx, i)
	if e := s.InsertAssociation(ctx, iamtest.NewAssociation(parent, name)); !errors.Is(e, fault.AlreadyExists) {
		err = errors.Join(err, e)
	}
	if rand.IntN(2) == 0 {
		err = errors.Join(err, s.DeleteInvite(ctx, i.UID))
	}
	if rand.IntN(2) == 0 {
		err = errors.Join(err, s.DeleteAssociation(ctx, parent))
	}
	return err
}

// An entry is the part of an event that tests compare.
type entry struct {
	Type           resource.EventType
	Subject, Group resource.UID
	Before, After  bool
}

func everyEvent(t *testing.T, s *iamtest.Store) {
	now := time.Date(2025, 1, 2, 3, 4, 5, 678_999_999, time.FixedZone("", 3600))
	s.Now = func() time.Time { return now }
	actor := resource.Actor{Subject: iamtest.Alice, Act: &resource.Upstream{Issuer: "https://issuer.test", Subject: "s",
		Audience: []string{"a"}}, RequestID: "r1", Remote: "192.0.2.1"}
	ctx := resource.WithActor(t.Context(), actor)
	// managed roles belong to the service, so there is no event
	testkit.Must(t, s.SetManagedRoles(ctx, []resource.Role{iamtest.OwnerRole}))
	want := lifetime(ctx, t, s)
	all := dbtest.Events(t, s.DB)
	var got []entry
	ids := map[string]bool{}
	for _, e := range all {
		got = append(got, entry{e.Type, e.Subject, e.Group, len(e.Before) > 0, len(e.After) > 0})
		ids[e.ID] = true
		if diff := cmp.Diff(actor, e.Actor); diff != "" || !e.Time.Equal(now.Truncate(time.Millisecond)) {
			t.Errorf("%s at %s by %v", e.Type, e.Time, e.Actor)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(ids) != len(all) {
		t.Errorf("%d ids for %d events", len(ids), len(all))
	}
}

// lifetime makes one change of every type, and returns the events that are
// expected for them.
func lifetime(ctx context.Context, t *testing.T, s *iamtest.Store) []entry {
	org := iamtest.NewGroup("", "org")
	owner := iamtest.NewBinding(org.UID, iamtest.Alice, resource.OwnerRole)
	g, i, r := iamtest.NewGroup(org.UID, "g"), iamtest.NewIdentity(org.UID, "i"), iamtest.NewRole(org.UID, "r")
	b, c, d := iamtest.NewBinding(g.UID, i.UID, r.UID), iamtest.NewBinding(g.UID, iamtest.Alice,
		r.UID), iamtest.NewBinding(g.UID, iamtest.Bob, r.UID)
	e := iamtest.NewBinding(g.UID, iamtest.Alice, resource.OwnerRole)
	_, err := s.InsertGroup(ctx, org, owner)
	testkit.Must(t, err)
	_, err = s.InsertGroup(ctx, g)
	testkit.Must(t, err)
	_, err = store.Edit(ctx, g.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
		g.Description = "d"
		return nil
	})
	testkit.Must(t, err)
	testkit.Must(t, s.InsertIdentity(ctx, i))
	_, err = store.Edit(ctx, i.UID, s.Identity, s.UpdateMetadata, func(i *resource.Identity) error {
		i.Metadata = map[string]any{"a": "b"}
		return nil
	})
	testkit.Must(t, err)
	testkit.Must(t, s.InsertRole(ctx, r))
	_, err = store.Edit(ctx, r.UID, s.Role, s.UpdateRole, func(r *resource.Role) error { r.Description = "d"; return nil })
	testkit.Must(t, err)
	_, err = s.InsertBinding(ctx, b)
	testkit.Must(t, err)
	_, err = s.InsertBindings(ctx, []resource.RoleBinding{c, d})
	testkit.Must(t, err)
	_, err = s.InsertBindings(ctx, []resource.RoleBinding{e})
	testkit.Must(t, err)
	testkit.Must(t, s.DeleteBinding(ctx, e.UID))
	_, err = s.UpdateBinding(ctx, d.UID, func(d *resource.RoleBinding) error { d.Role = resource.OwnerRole; return nil })
	testkit.Must(t, err)
	testkit.Must(t, s.DeleteBinding(ctx, c.UID))
	testkit.Must(t, s.DeleteBinding(ctx, c.UID)) // the binding is already deleted, so there is no event
	testkit.Must(t, s.DeleteBinding(ctx, d.UID))
	testkit.Must(t, s.DeleteIdentity(ctx, i.UID))
	testkit.Must(t, s.DeleteRole(ctx, r.UID))
	testkit.Must(t, s.DeleteGroup(ctx, g.UID, iamtest.Alice))
	testkit.Must(t, s.RequestAccess(ctx, org.UID, i, time.Hour))
	rest := lifetimeOfTheRest(ctx, t, s, org.UID)
	testkit.Must(t, s.DeleteGroup(ctx, org.UID, iamtest.Alice))
	return slices.Concat([]entry{
		{resource.GroupCreated, org.UID, org.UID, false, true},
		{resource.BindingCreated, owner.UID, org.UID, false, true},
		{resource.GroupCreated, g.UID, g.UID, false, true},
		{resource.GroupUpdated, g.UID, g.UID, true, true},
		{resource.IdentityCreated, i.UID, org.UID, false, true},
		{resource.IdentityMetadataUpdated, i.UID, org.UID, true, true},
		{resource.RoleCreated, r.UID, org.UID, false, true},
		{resource.RoleUpdated, r.UID, org.UID, true, true},
		{resource.BindingCreated, b.UID, g.UID, false, true},
		{resource.BindingsCreated, g.UID, g.UID, false, true},
		{resource.BindingsCreated, g.UID, g.UID, false, true}, // a batch with one binding
		{resource.BindingDeleted, e.UID, g.UID, true, false},
		{resource.BindingUpdated, d.UID, g.UID, true, true},
		{resource.BindingDeleted, c.UID, g.UID, true, false},
		{resource.BindingDeleted, d.UID, g.UID, true, false},
		{resource.BindingDeleted, b.UID, g.UID, true, false},
		{resource.IdentityDeleted, i.UID, org.UID, true, false},
		{resource.RoleDeleted, r.UID, org.UID, true, false},
		{resource.GroupDeleted, g.UID, org.UID, true, false},
		{resource.GroupAccessRequested, org.UID, org.UID, false, true},
	}, rest, []entry{
		{resource.BindingDeleted, owner.UID, org.UID, true, false},
		{resource.GroupDeleted, org.UID, "/", true, false},
	})
}

// lifetimeOfTheRest is lifetime for the resources in an organization that are not
// groups, identities, roles or bindings.
func lifetimeOfTheRest(ctx context.Context, t *testing.T, s *iamtest.Store, org resource.UID) []entry {
	p, a, i := iamtest.NewProvider(org, resource.OwnerRole, "p"), iamtest.NewAssociation(org, "a"), iamtest.NewInvite(org,
		resource.OwnerRole)
	m, n, o := iamtest.NewMapping(p.UID, resource.OwnerRole, "m"), iamtest.NewMapping(p.UID, resource.OwnerRole,
		"n"), iamtest.NewMapping(p.UID,
		resource.OwnerRole, "o")
	testkit.Must(t, s.InsertProvider(ctx, p))
	_, err := s.UpdateProvider(ctx, p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
		p.Description = "d"
		return nil
	}))
	testkit.Must(t, err)
	testkit.Must(t, s.InsertAssociation(ctx, a))
	_, err = store.Edit(ctx, a.UID, s.Association, s.UpdateAssociation, func(a *resource.AccountAssociation) error {
		a.Description = "d"
		return nil
	})
	testkit.Must(t, err)
	_, err = s.InsertInvite(ctx, i)
	testkit.Must(t, err)
	for _, m := range []resource.ExternalGroupRoleMapping{m, n, o} {
		testkit.Must(t, s.InsertMapping(ctx, m))
	}
	testkit.Must(t, s.DeleteMapping(ctx, m.UID))
	for range 2 { // the second iteration causes no event
		_, err = s.DeleteMappings(ctx, p.UID, []resource.UID{m.UID, n.UID, o.UID})
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteAssociation(ctx, a.UID))
		testkit.Must(t, s.DeleteInvite(ctx, i.UID))
	}
	testkit.Must(t, s.DeleteProvider(ctx, p.UID))
	return []entry{
		{resource.ProviderCreated, p.UID, org, false, true},
		{resource.ProviderUpdated, p.UID, org, true, true},
		{resource.AssociationCreated, org, org, false, true},
		{resource.AssociationUpdated, org, org, true, true},
		{resource.InviteCreated, i.UID, org, false, true},
		{resource.MappingCreated, m.UID, org, false, true},
		{resource.MappingCreated, n.UID, org, false, true},
		{resource.MappingCreated, o.UID, org, false, true},
		{resource.MappingDeleted, m.UID, org, true, false},
		{resource.MappingsDeleted, p.UID, org, true, false},
		{resource.AssociationDeleted, org, org, true, false},
		{resource.InviteDeleted, i.UID, org, true, false},
		{resource.ProviderDeleted, p.UID, org, true, false},
	}
}

// beforeAndAfter checks the fields of an event that is read back, and that a part of the outbox can
// be read.
func beforeAndAfter(t *testing.T, s *iamtest.Store) {
	now := iamtest.Epoch.Add(time.Hour)
	s.Now = func() time.Time { return now }
	g := iamtest.AddGroup(t, s.IAMStore, "", "org")
	for range 3 {
		_, err := store.Edit(t.Context(), g.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
			g.Description += "d"
			return nil
		})
		testkit.Must(t, err)
	}
	all := dbtest.Events(t, s.DB)
	var before, after resource.Group
	testkit.Must(t, errors.Join(json.Unmarshal(all[1].Before, &before), json.Unmarshal(all[1].After, &after)))
	if diff := cmp.Diff(g, before); diff != "" {
		t.Error(diff)
	}
	g.Description, g.UpdateTime = "d", now
	if diff := cmp.Diff(g, after); diff != "" {
		t.Error(diff)
	}
	some, err := outbox.Read(t.Context(), s.DB, all[0].Seq, 2)
	testkit.Must(t, err)
	if diff := cmp.Diff(all[1:3], some); diff != "" {
		t.Error(diff)
	}
}

func signingKeys(t *testing.T, s *iamtest.Store) {
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			k := tokendb.SigningKey{ID: fmt.Sprintf("k%d", n), Algorithm: "ES256", Sealed: []byte{0, 1, byte(n)},
				CreateTime: iamtest.Epoch}
			if err := s.InsertFirstSigningKey(t.Context(), k); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	keys, err := s.SigningKeys(t.Context())
	testkit.Must(t, err)
	if len(keys) != 1 || keys[0].ID != fmt.Sprintf("k%d", keys[0].Sealed[2]) || !keys[0].CreateTime.Equal(iamtest.Epoch) {
		t.Errorf("keys = %v", keys)
	}
}
