package store_test

import (
	"bytes"
	"context"
	"database/sql"
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

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var alice, bob = resource.UserUID("https://issuer.test", "alice"), resource.UserUID("https://issuer.test", "bob")

// promises contains a test for each promise that the comments of the store make.
var promises = map[string]func(t *testing.T, s *storetest.Store){
	"a group keeps what it was given": func(t *testing.T, s *storetest.Store) {
		g := resource.Group{UID: resource.NewRoot(), Name: "org", Description: "ünï", Verified: true, Kind: resource.OrgDev,
			CreateTime: epoch, UpdateTime: epoch.Add(time.Millisecond)}
		_, err := s.InsertGroup(t.Context(), g)
		must(t, err)
		wantSame(t, s.Group, g.UID, g)
	},
	"siblings have different names": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		a, b := addGroup(t, s, org.UID, "a"), addGroup(t, s, org.UID, "b")
		_, err := s.InsertGroup(t.Context(), newGroup(org.UID, "a"))
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "group", Name: "a"})
		_, err = store.Edit(t.Context(), b.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
			g.Name = "a"
			return nil
		})
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "group", Name: "a"})
		addGroup(t, s, b.UID, "a")
		addGroup(t, s, a.UID, "a")
	},
	"missing groups of a path are created, all or none, and those that are there are found": func(t *testing.T,
		s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		a := addGroup(t, s, org.UID, "a")
		at, err := s.EnsureGroups(t.Context(), org.UID, []string{"a", "b", "c"})
		must(t, err)
		again, err := s.EnsureGroups(t.Context(), a.UID, []string{"b", "c"})
		if err != nil || again != at || at.Parent().Parent() != a.UID {
			t.Errorf("groups = %s, then %s, %v", at, again, err)
		}
		c, err := s.Group(t.Context(), at)
		if err != nil || c.Name != "c" || c.CreateTime.IsZero() {
			t.Errorf("group = %+v, %v", c, err)
		}
		var created int
		for _, e := range events(t, s) {
			if e.Type == resource.GroupCreated {
				created++
			}
		}
		if created != 4 {
			t.Errorf("%d events of new groups", created)
		}
		_, err = s.EnsureGroups(t.Context(), org.UID.NewChild(), []string{"x"})
		wantFault(t, err, fault.NotFound, fault.Resource{})
		wantExact(t, s)
	},
	"roots have different names": func(t *testing.T, s *storetest.Store) {
		addGroup(t, s, "", "org")
		_, err := s.InsertGroup(t.Context(), newGroup("", "org"))
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "group", Name: "org"})
	},
	"a path finds what has its names, and nothing else": func(t *testing.T, s *storetest.Store) {
		org, rival := addGroup(t, s, "", "org"), addGroup(t, s, "", "rival")
		folder := addGroup(t, s, org.UID, "folder")
		addGroup(t, s, rival.UID, "folder")
		ci := []resource.UID{addIdentity(t, s, folder.UID, "ci").UID, addIdentity(t, s, folder.UID, "ci").UID}
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
			must(t, err)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		for _, names := range [][]string{deep, deep[1:], slices.Repeat(deep, 2)} {
			_, err := s.GroupAt(t.Context(), names)
			wantFault(t, err, fault.NotFound, fault.Resource{Type: "group", Name: strings.Join(names, "/")})
			_, err = s.RepoAt(t.Context(), names)
			wantFault(t, err, fault.NotFound, fault.Resource{Type: "repo", Name: strings.Join(names, "/")})
		}
	},
	"names are found by whole uids": func(t *testing.T, s *storetest.Store) {
		org, rival := addGroup(t, s, "", "org"), addGroup(t, s, "", "rival")
		folder := newGroup(org.UID, "folder")
		folder.DisplayName = "Ein Ordner für Zoë"
		folder, err := s.InsertGroup(t.Context(), folder)
		must(t, err)
		grafted := rival.UID + folder.UID[len(org.UID):] // a uid with the segment of folder, but below another organization
		uids := []resource.UID{folder.UID, org.UID, grafted, rival.UID.NewChild(), folder.UID}
		got, err := s.NamesOf(t.Context(), "groups", true, uids)
		must(t, err)
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
	"names may have one character": func(t *testing.T, s *storetest.Store) {
		addGroup(t, s, addGroup(t, s, "", "a").UID, "a")
	},
	"a group takes over its organization's kind": func(t *testing.T, s *storetest.Store) {
		org := newGroup("", "org")
		org.Kind = resource.OrgDev
		_, err := s.InsertGroup(t.Context(), org)
		must(t, err)
		child := addGroup(t, s, org.UID, "a")
		grandchild := addGroup(t, s, child.UID, "b")
		if child.Kind != resource.OrgDev || grandchild.Kind != resource.OrgDev {
			t.Errorf("kinds = %d, %d", child.Kind, grandchild.Kind)
		}
		wantSame(t, s.Group, grandchild.UID, grandchild)
	},
	"what is not there is not found": func(t *testing.T, s *storetest.Store) {
		uid := addGroup(t, s, "", "org").UID.NewChild()
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
		_, pu := s.UpdateProvider(ctx, uid, changed(func(p *resource.IdentityProvider) error { return nothing }))
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
				wantFault(t, err, fault.NotFound, fault.Resource{Type: kind, Name: name})
			}
		}
		before := len(events(t, s))
		must(t, s.DeleteBinding(ctx, uid)) // the binding is already deleted
		must(t, s.DeleteAssociation(ctx, uid))
		must(t, s.DeleteInvite(ctx, uid))
		if n := len(events(t, s)); n != before {
			t.Errorf("%d events of what was gone already", n-before)
		}
	},
	"a parent must be there": func(t *testing.T, s *storetest.Store) {
		wantNoParent(t, s, resource.NewRoot().NewChild())
	},
	"and not be gone": func(t *testing.T, s *storetest.Store) {
		g := addGroup(t, s, addGroup(t, s, "", "org").UID, "g")
		child := addGroup(t, s, g.UID, "known as a parent")
		must(t, s.DeleteGroup(t.Context(), child.UID, alice))
		must(t, s.DeleteGroup(t.Context(), g.UID, alice))
		wantNoParent(t, s, g.UID)
	},
	"the wrong path to the right segment is no parent": func(t *testing.T, s *storetest.Store) {
		one, two := addGroup(t, s, "", "one"), addGroup(t, s, "", "two")
		g := addGroup(t, s, one.UID, "g")
		addGroup(t, s, g.UID, "known as a parent")
		wantNoParent(t, s, two.UID+g.UID[strings.LastIndex(string(g.UID), "/"):])
	},
	"a group is found by the end of its uid": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		g := addGroup(t, s, addGroup(t, s, org.UID, "a").UID, "b")
		for _, suffix := range []string{string(g.UID), string(g.UID[58:]), string(g.UID[41:])} {
			got, err := s.GroupBySuffix(t.Context(), suffix)
			must(t, err)
			if got.UID != g.UID {
				t.Errorf("%s is the end of %s", suffix, got.UID)
			}
		}
		for _, suffix := range []string{"0000000000000000", "0000000000000000/" + string(g.UID[58:]), string(org.UID[24:])} {
			_, err := s.GroupBySuffix(t.Context(), suffix)
			wantFault(t, err, fault.NotFound, fault.Resource{Type: "group", Name: suffix})
		}
		got, err := s.Organization(t.Context(), "org")
		must(t, err)
		if got.UID != org.UID {
			t.Errorf("organization = %s", got.UID)
		}
		_, err = s.Organization(t.Context(), "a")
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "organization", Name: "a"})
	},
	"a group with children stays, and names every kind": func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "org", alice)
		g := addGroup(t, s, org.UID, "g")
		children := map[string]func(){
			"groups":        func() { addGroup(t, s, g.UID, "c") },
			"identities":    func() { addIdentity(t, s, g.UID, "c") },
			"roles":         func() { addRole(t, s, g.UID, "c") },
			"role bindings": func() { addBinding(t, s, g.UID, alice, resource.OwnerRole) },

			"identity providers":   func() { addProvider(t, s, g.UID, resource.OwnerRole, "c") },
			"account associations": func() { addAssociation(t, s, g.UID, "c") },
			"group invites":        func() { addInvite(t, s, g.UID, resource.OwnerRole) },
		}
		var want []string
		for _, kind := range []string{"groups", "identities", "roles", "role bindings", "identity providers",
			"account associations", "group invites"} {
			children[kind]()
			want = append(want, "cannot delete group with child "+kind)
			err := s.DeleteGroup(t.Context(), g.UID, alice)
			wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
			var got []string
			for _, v := range fault.From(err).Unmet {
				got = append(got, v.Description)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	},
	"the caller's own binding goes with the organization": func(t *testing.T, s *storetest.Store) {
		org, b := addOrganization(t, s, "org", alice)
		must(t, s.DeleteGroup(t.Context(), org.UID, alice))
		_, err := s.Binding(t.Context(), b.UID)
		wantFault(t, err, fault.NotFound, fault.Resource{})
		if grants, err := s.GrantsOf(t.Context(), alice); err != nil || len(grants) != 0 {
			t.Errorf("grants left: %v, %v", grants, err)
		}
	},
	"but nobody else's": func(t *testing.T, s *storetest.Store) {
		org, b := addOrganization(t, s, "org", alice)
		wantFault(t, s.DeleteGroup(t.Context(), org.UID, bob), fault.FailedPrecondition, fault.Resource{})
		addBinding(t, s, org.UID, bob, resource.OwnerRole)
		wantFault(t, s.DeleteGroup(t.Context(), org.UID, alice), fault.FailedPrecondition, fault.Resource{})
		_, err := s.Binding(t.Context(), b.UID)
		must(t, err)
	},
	"and not while something else is left": func(t *testing.T, s *storetest.Store) {
		org, b := addOrganization(t, s, "org", alice)
		addGroup(t, s, org.UID, "g")
		wantFault(t, s.DeleteGroup(t.Context(), org.UID, alice), fault.FailedPrecondition, fault.Resource{})
		_, err := s.Binding(t.Context(), b.UID)
		must(t, err)
	},
	"the last owner stays": func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "org", alice)
		viewer := addRole(t, s, org.UID, "viewer")
		i := addIdentity(t, s, org.UID, "i")
		first := onlyBinding(t, s, org.UID)
		wantUnmet(t, s.DeleteBinding(t.Context(), first), "LAST_OWNER")
		_, err := s.UpdateBinding(t.Context(), first, func(b *resource.RoleBinding) error { b.Role = viewer.UID; return nil })
		wantUnmet(t, err, "LAST_OWNER")
		_, err = s.UpdateBinding(t.Context(), first, func(b *resource.RoleBinding) error { b.Identity = i.UID; return nil })
		must(t, err) // the organization still has an owner
		wantUnmet(t, s.DeleteIdentity(t.Context(), i.UID), "LAST_OWNER")
		second := addBinding(t, s, org.UID, bob, resource.OwnerRole)
		must(t, s.DeleteIdentity(t.Context(), i.UID))
		wantUnmet(t, s.DeleteBinding(t.Context(), second.UID), "LAST_OWNER")
	},
	"another organization keeps no workload, and the log tells that it has no owner": func(t *testing.T,
		s *storetest.Store) {
		i := addIdentity(t, s, addGroup(t, s, "", "org").UID, "i")
		other, _ := addOrganization(t, s, "other", i.UID)
		var log bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		must(t, s.DeleteIdentity(t.Context(), i.UID))
		if !strings.Contains(log.String(), string(other.UID)) {
			t.Errorf("the log says %q", log.String())
		}
	},
	"which organization a person owns alone is not told": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		a := addAccount(t, s, org.UID, "ann@example.test")
		other, _ := addOrganization(t, s, "other", a.Identity)
		err := s.DeleteIdentity(t.Context(), a.Identity)
		wantUnmet(t, err, "LAST_OWNER")
		if strings.Contains(fmt.Sprint(err, fault.From(err).Unmet), string(other.UID)) {
			t.Errorf("it is: %v", err)
		}
		must(t, s.DeleteAccount(t.Context(), a.UID)) // the organization that the account belongs to may delete it
	},
	"a folder needs no owner": func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "org", alice)
		b := addBinding(t, s, addGroup(t, s, org.UID, "g").UID, alice, resource.OwnerRole)
		must(t, s.DeleteBinding(t.Context(), b.UID))
	},
	"an identity keeps what it was given": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		i := newIdentity(org.UID, "i")
		i.Email, i.EmailUnverified, i.Company, i.Metadata = "a@b.test", "c@d.test", "co", map[string]any{"k": "v"}
		i.Relationship.ClaimMatch.Claims = map[string]string{"a": "b"}
		must(t, s.InsertIdentity(t.Context(), i))
		wantSame(t, s.Identity, i.UID, i)
		err := s.InsertIdentity(t.Context(), i)
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "identity", Name: "i"})
	},
	"an identity goes with its bindings and its tokens": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		other := addGroup(t, s, "", "other")
		i, r := addIdentity(t, s, org.UID, "i"), addRole(t, s, org.UID, "r")
		addBinding(t, s, org.UID, i.UID, r.UID)
		addBinding(t, s, other.UID, i.UID, r.UID)
		now := epoch.Add(time.Hour + 567*time.Microsecond)
		s.Now = func() time.Time { return now }
		must(t, s.DeleteIdentity(t.Context(), i.UID))
		got, err := s.Revocations(t.Context(), epoch)
		must(t, err)
		if diff := cmp.Diff(map[resource.UID]time.Time{i.UID: now.Truncate(time.Millisecond)}, got); diff != "" {
			t.Error(diff)
		}
		if grants, err := s.GrantsOf(t.Context(), i.UID); err != nil || len(grants) != 0 {
			t.Errorf("grants left: %v, %v", grants, err)
		}
	},
	"a role in use stays": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		r := addRole(t, s, org.UID, "r")
		b := addBinding(t, s, org.UID, alice, r.UID)
		wantUnmet(t, s.DeleteRole(t.Context(), r.UID), "RESOURCE_IN_USE")
		must(t, s.DeleteBinding(t.Context(), b.UID))
		must(t, s.DeleteRole(t.Context(), r.UID))
	},
	"roles of a group have different names": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		r := addRole(t, s, org.UID, "r")
		wantSame(t, s.Role, r.UID, r)
		wantFault(t, s.InsertRole(t.Context(), newRole(org.UID, "r")), fault.AlreadyExists,
			fault.Resource{Type: "role", Name: "r"})
		q := addRole(t, s, org.UID, "q")
		_, err := store.Edit(t.Context(), q.UID, s.Role, s.UpdateRole, func(r *resource.Role) error {
			r.Name = "r"
			return nil
		})
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role", Name: "r"})
	},
	"managed roles are set, and set again": managedRoles,
	"a batch of bindings is all or nothing": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		r := addRole(t, s, org.UID, "r")
		good := newBinding(org.UID, alice, r.UID)
		for name, bad := range map[string]resource.RoleBinding{
			"no such role":     newBinding(org.UID, alice, org.UID.NewChild()),
			"no such identity": newBinding(org.UID, org.UID.NewChild(), r.UID),
		} {
			_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{good, bad})
			if !errors.Is(err, fault.NotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{good, newBinding(org.UID, alice, r.UID)})
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role binding", Name: string(alice)})
		if grants, err := s.GrantsOf(t.Context(), alice); err != nil || len(grants) != 0 {
			t.Errorf("grants: %v, %v", grants, err)
		}
		none, err := s.InsertBindings(t.Context(), nil)
		if err != nil || len(none) != 0 {
			t.Errorf("an empty batch: %v, %v", none, err)
		}
	},
	"a binding is there once": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		r := addRole(t, s, org.UID, "r")
		addBinding(t, s, org.UID, alice, r.UID)
		b := addBinding(t, s, org.UID, bob, r.UID)
		_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{newBinding(org.UID, alice, r.UID)})
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role binding", Name: string(alice)})
		_, err = s.UpdateBinding(t.Context(), b.UID, func(b *resource.RoleBinding) error { b.Identity = alice; return nil })
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "role binding", Name: string(alice)})
	},
	"access is asked for once in a while": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		i, now := newIdentity(org.UID, "i"), epoch
		s.Now = func() time.Time { return now }
		must(t, s.RequestAccess(t.Context(), org.UID, i, time.Hour))
		now = now.Add(time.Hour - time.Millisecond)
		wantFault(t, s.RequestAccess(t.Context(), org.UID, i, time.Hour), fault.ResourceExhausted, fault.Resource{})
		must(t, s.RequestAccess(t.Context(), org.UID, newIdentity(org.UID, "j"), time.Hour))
		now = now.Add(time.Millisecond)
		must(t, s.RequestAccess(t.Context(), org.UID, i, time.Hour))
		if n := len(events(t, s)); n != 4 {
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
	"holders are of the groups and the roles":            holders,
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
	"grant changes are complete or say so":  grantChanges,
	"watchers run before the write returns": watchers,
	"a setting is taken once":               settings,
	"the first signing key wins":            signingKeys,

	"a session keeps what it was given":              sessionKeeps,
	"a refresh token is replaced by the next":        refreshRotates,
	"a refresh token used twice ends its session":    refreshReplayed,
	"a session ends when idle, and in any case":      sessionEnds,
	"a session that is ended is over":                sessionEnded,
	"whoever ends a session leaves an event":         sessionEndsTold,
	"those concerned are told of a session's end":    sessionEndsHeard,
	"sessions that are over are forgotten":           sessionsForgotten,
	"an identity goes with its sessions and denials": identityWithSessions,
	"the last denials are kept for a while":          denialsKept,
	"the last exchanges are kept for a while":        exchangesKept,
	"to be seen is no change":                        seenQuietly,
	"an issuer is looked at by one":                  issuerStates,
	"an issuer has the identities that trust it":     identitiesOfIssuer,
	"signing keys follow one another":                signingKeysRotate,
}

func TestPromises(t *testing.T) {
	for name, f := range promises {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, s *storetest.Store) {
				f(t, s)
				wantExact(t, s)
			})
		})
	}
}

func wantSame[T any](t *testing.T, get func(context.Context, resource.UID) (T, error), uid resource.UID, want T) {
	t.Helper()
	got, err := get(t.Context(), uid)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func wantUnmet(t *testing.T, err error, kind string) {
	t.Helper()
	wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
	if unmet := fault.From(err).Unmet; len(unmet) != 1 || unmet[0].Subject != kind {
		t.Errorf("unmet = %v, want %s", unmet, kind)
	}
}

// wantNoParent checks that no resource can be inserted into a group that does not exist.
func wantNoParent(t *testing.T, s *storetest.Store, parent resource.UID) {
	t.Helper()
	missing := fault.Resource{Type: "group", Name: string(parent)}
	_, err := s.InsertGroup(t.Context(), newGroup(parent, "a"))
	wantFault(t, err, fault.NotFound, missing)
	wantFault(t, s.InsertIdentity(t.Context(), newIdentity(parent, "a")), fault.NotFound, missing)
	wantFault(t, s.InsertRole(t.Context(), newRole(parent, "a")), fault.NotFound, missing)
	r := addRole(t, s, addGroup(t, s, "", "elsewhere").UID, "r")
	_, err = s.InsertBindings(t.Context(), []resource.RoleBinding{newBinding(parent, alice, r.UID)})
	wantFault(t, err, fault.NotFound, missing)
	wantFault(t, s.InsertProvider(t.Context(), newProvider(parent, r.UID, "a")), fault.NotFound, missing)
	wantFault(t, s.InsertAssociation(t.Context(), newAssociation(parent, "a")), fault.NotFound, missing)
	_, err = s.InsertInvite(t.Context(), newInvite(parent, r.UID))
	wantFault(t, err, fault.NotFound, missing)
	missing.Type = "identity provider"
	wantFault(t, s.InsertMapping(t.Context(), newMapping(parent, r.UID, "a")), fault.NotFound, missing)
}

func onlyBinding(t *testing.T, s *storetest.Store, group resource.UID) resource.UID {
	t.Helper()
	got, err := s.Bindings(t.Context(), store.Reach{Under: []resource.UID{group}}, resource.Filter{Group: group}, byUID)
	must(t, err)
	if len(got.Items) != 1 {
		t.Fatalf("%d bindings in %s, want 1", len(got.Items), group)
	}
	return got.Items[0].UID
}

func managedRoles(t *testing.T, s *storetest.Store) {
	s.Now = func() time.Time { return epoch }
	other := resource.Role{UID: resource.ManagedRoleUID("other"), Name: "other",
		Capabilities: resource.CapabilitySet("roles.list")}
	set := []resource.Role{ownerRole, other}
	must(t, s.SetManagedRoles(t.Context(), set))
	revision, err := s.Revision(t.Context())
	must(t, err)
	s.Now = func() time.Time { return epoch.Add(time.Hour) }
	must(t, s.SetManagedRoles(t.Context(), set))
	if same, err := s.Revision(t.Context()); err != nil || same != revision {
		t.Errorf("setting the same roles moved the revision from %d to %d", revision, same)
	}
	other.Capabilities = resource.CapabilitySet("roles.list", "groups.list")
	must(t, s.SetManagedRoles(t.Context(), []resource.Role{ownerRole, other}))
	got, err := s.Role(t.Context(), other.UID)
	must(t, err)
	other.CreateTime, other.UpdateTime = epoch, epoch.Add(time.Hour)
	if diff := cmp.Diff(other, got); diff != "" {
		t.Error(diff)
	}
	caps, err := s.RoleCapabilities(t.Context())
	must(t, err)
	if diff := cmp.Diff(map[resource.UID]resource.Capabilities{ownerRole.UID: ownerRole.Capabilities,
		other.UID: other.Capabilities}, caps); diff != "" {
		t.Error(diff)
	}
}

func hydration(t *testing.T, s *storetest.Store) {
	org := newGroup("", "org")
	org.Description = "the org"
	_, err := s.InsertGroup(t.Context(), org)
	must(t, err)
	i, r := newIdentity(org.UID, "i"), newRole(org.UID, "r")
	i.Description, i.Email, r.Description = "an identity", "i@b.test", "a role"
	must(t, s.InsertIdentity(t.Context(), i))
	must(t, s.InsertRole(t.Context(), r))
	with, without := newBinding(org.UID, i.UID, r.UID), newBinding(org.UID, alice, r.UID)
	want := []resource.BoundRole{
		{
			RoleBinding: with,
			IdentityInfo: resource.IdentityInfo{Info: resource.Info{UID: i.UID, Name: "i", Description: "an identity"},
				Issuer: "https://issuer.test", Subject: "i", Email: "i@b.test"},
		},
		{RoleBinding: without, IdentityInfo: resource.IdentityInfo{Info: resource.Info{UID: alice}}},
	}
	for n := range want {
		want[n].GroupInfo = resource.Info{UID: org.UID, Name: "org", Description: "the org"}
		want[n].RoleInfo = resource.Info{UID: r.UID, Name: "r", Description: "a role"}
	}
	got, err := s.InsertBindings(t.Context(), []resource.RoleBinding{with, without})
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantSame(t, s.Binding, with.UID, want[0])
	wantSame(t, s.Binding, without.UID, want[1])
	listed, err := s.Bindings(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{}, byUID)
	must(t, err)
	slices.SortFunc(want, func(a, b resource.BoundRole) int { return strings.Compare(string(a.UID), string(b.UID)) })
	if diff := cmp.Diff(want, listed.Items); diff != "" {
		t.Error(diff)
	}
}

func concurrentUpdates(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	i, r := addIdentity(t, s, org.UID, "i"), addRole(t, s, org.UID, "r")
	p, a := addProvider(t, s, org.UID, r.UID, "p"), addAssociation(t, s, org.UID, "a")
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
			_, p := s.UpdateProvider(t.Context(), p.UID, changed(func(p *resource.IdentityProvider) error {
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
	must(t, err)
	gotI, err := s.Identity(t.Context(), i.UID)
	must(t, err)
	gotR, err := s.Role(t.Context(), r.UID)
	must(t, err)
	gotP, err := s.Provider(t.Context(), p.UID)
	must(t, err)
	gotA, err := s.Association(t.Context(), a.UID)
	must(t, err)
	for kind, text := range map[string]string{
		"group": gotG.Description, "identity": gotI.Description, "role": gotR.Description,
		"identity provider": gotP.Description, "account association": gotA.Description,
	} {
		if len(text) != 20 {
			t.Errorf("%d of 20 updates of the %s were lost", 20-len(text), kind)
		}
	}
}

func changeNothing(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	i, r := addIdentity(t, s, org.UID, "i"), addRole(t, s, org.UID, "r")
	p, a := addProvider(t, s, org.UID, r.UID, "p"), addAssociation(t, s, org.UID, "a")
	before := len(events(t, s))
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
	got, pe := s.UpdateProvider(t.Context(), p.UID, changed(func(p *resource.IdentityProvider) error {
		p.Name = "p"
		return nil
	}))
	_, ae := store.Edit(t.Context(), a.UID, s.Association, s.UpdateAssociation,
		func(a *resource.AccountAssociation) error {
			a.Name = "a"
			return nil
		})
	must(t, errors.Join(ge, ie, me, re, pe, ae))
	if diff := cmp.Diff(p, got); diff != "" { // the result equals the stored resource
		t.Error(diff)
	}
	wantSame(t, s.Group, org.UID, org)
	wantSame(t, s.Identity, i.UID, i)
	wantSame(t, s.Role, r.UID, r)
	wantSame(t, s.Provider, p.UID, p)
	wantSame(t, s.Association, a.UID, a)
	if n := len(events(t, s)); n != before {
		t.Errorf("%d events more", n-before)
	}
}

func changeFails(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	i, r := addIdentity(t, s, org.UID, "i"), addRole(t, s, org.UID, "r")
	b := addBinding(t, s, org.UID, alice, r.UID)
	p, a := addProvider(t, s, org.UID, r.UID, "p"), addAssociation(t, s, org.UID, "a")
	before := len(events(t, s))
	revision, err := s.Revision(t.Context())
	must(t, err)
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
	_, be := s.UpdateBinding(t.Context(), b.UID, func(b *resource.RoleBinding) error { b.Identity = bob; return own })
	_, pe := s.UpdateProvider(t.Context(), p.UID, changed(func(p *resource.IdentityProvider) error {
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
	wantSame(t, s.Group, org.UID, org)
	wantSame(t, s.Identity, i.UID, i)
	wantSame(t, s.Role, r.UID, r)
	wantSame(t, s.Provider, p.UID, p)
	wantSame(t, s.Association, a.UID, a)
	if n := len(events(t, s)); n != before {
		t.Errorf("%d events more", n-before)
	}
	if now, err := s.Revision(t.Context()); err != nil || now != revision {
		t.Errorf("revision = %d, want %d", now, revision)
	}
}

func failedWrites(t *testing.T, s *storetest.Store) {
	ctx := t.Context()
	org, owner := addOrganization(t, s, "org", alice)
	addGroup(t, s, org.UID, "a")
	r := addRole(t, s, org.UID, "r")
	addBinding(t, s, org.UID, bob, r.UID)
	before := events(t, s)
	revision, err := s.Revision(ctx)
	must(t, err)
	_, taken := s.InsertGroup(ctx, newGroup(org.UID, "a"), newBinding(org.UID, bob, resource.OwnerRole))
	g := newGroup("", "with a bad binding")
	_, unbound := s.InsertGroup(ctx, g, newBinding(g.UID, bob, org.UID.NewChild()))
	_, dup := s.InsertBindings(ctx, []resource.RoleBinding{newBinding(org.UID, bob, r.UID)})
	for n, err := range []error{
		taken, unbound, dup, s.DeleteGroup(ctx, org.UID, bob), s.DeleteRole(ctx, r.UID), s.DeleteBinding(ctx, owner.UID),
		s.InsertRole(ctx, newRole(org.UID, "r")), s.DeleteIdentity(ctx, org.UID.NewChild()),
	} {
		if err == nil {
			t.Errorf("write %d succeeded", n)
		}
	}
	if diff := cmp.Diff(before, events(t, s)); diff != "" {
		t.Error(diff)
	}
	if now, err := s.Revision(ctx); err != nil || now != revision {
		t.Errorf("revision = %d, want %d", now, revision)
	}
}

// randomHistory inserts and deletes random resources in several goroutines.
func randomHistory(t *testing.T, s *storetest.Store) {
	ctx := t.Context()
	org, _ := addOrganization(t, s, "org", alice)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			groups := []resource.UID{org.UID}
			for n := range 60 {
				parent, name := groups[rand.IntN(len(groups))], fmt.Sprintf("n%d of %d", n, w)
				var err error
				switch rand.IntN(8) {
				case 0, 1:
					g := newGroup(parent, name)
					_, err = s.InsertGroup(ctx, g)
					groups = append(groups, g.UID)
				case 2:
					i := newIdentity(parent, name)
					err = s.InsertIdentity(ctx, i)
					_, bound := s.InsertBindings(ctx, []resource.RoleBinding{newBinding(parent, i.UID, resource.OwnerRole),
						newBinding(parent, i.UID[:40], resource.OwnerRole)})
					if bound != nil && !errors.Is(bound, fault.AlreadyExists) {
						err = errors.Join(err, bound)
					}
					if n%2 == 0 {
						err = errors.Join(err, s.DeleteIdentity(ctx, i.UID))
					}
				case 3:
					r := newRole(parent, name)
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
func randomProvider(ctx context.Context, s *storetest.Store, parent resource.UID, name string) error {
	p := newProvider(parent, resource.OwnerRole, name)
	err := s.InsertProvider(ctx, p)
	var uids []resource.UID
	for i := range 3 {
		m := newMapping(p.UID, resource.OwnerRole, fmt.Sprint(i))
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
func randomRest(ctx context.Context, s *storetest.Store, parent resource.UID, name string) error {
	i := newInvite(parent, resource.OwnerRole)
	_, err := s.InsertInvite(ctx, i)
	if e := s.InsertAssociation(ctx, newAssociation(parent, name)); !errors.Is(e, fault.AlreadyExists) {
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

func everyEvent(t *testing.T, s *storetest.Store) {
	now := time.Date(2025, 1, 2, 3, 4, 5, 678_999_999, time.FixedZone("", 3600))
	s.Now = func() time.Time { return now }
	actor := resource.Actor{Subject: alice, Act: &resource.Upstream{Issuer: "https://issuer.test", Subject: "s",
		Audience: []string{"a"}}, RequestID: "r1", Remote: "192.0.2.1"}
	ctx := resource.WithActor(t.Context(), actor)
	// managed roles belong to the service, so there is no event
	must(t, s.SetManagedRoles(ctx, []resource.Role{ownerRole}))
	want := lifetime(ctx, t, s)
	all := events(t, s)
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
func lifetime(ctx context.Context, t *testing.T, s *storetest.Store) []entry {
	org := newGroup("", "org")
	owner := newBinding(org.UID, alice, resource.OwnerRole)
	g, i, r := newGroup(org.UID, "g"), newIdentity(org.UID, "i"), newRole(org.UID, "r")
	b, c, d := newBinding(g.UID, i.UID, r.UID), newBinding(g.UID, alice, r.UID), newBinding(g.UID, bob, r.UID)
	e := newBinding(g.UID, alice, resource.OwnerRole)
	_, err := s.InsertGroup(ctx, org, owner)
	must(t, err)
	_, err = s.InsertGroup(ctx, g)
	must(t, err)
	_, err = store.Edit(ctx, g.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
		g.Description = "d"
		return nil
	})
	must(t, err)
	must(t, s.InsertIdentity(ctx, i))
	_, err = store.Edit(ctx, i.UID, s.Identity, s.UpdateMetadata, func(i *resource.Identity) error {
		i.Metadata = map[string]any{"a": "b"}
		return nil
	})
	must(t, err)
	must(t, s.InsertRole(ctx, r))
	_, err = store.Edit(ctx, r.UID, s.Role, s.UpdateRole, func(r *resource.Role) error { r.Description = "d"; return nil })
	must(t, err)
	_, err = s.InsertBinding(ctx, b)
	must(t, err)
	_, err = s.InsertBindings(ctx, []resource.RoleBinding{c, d})
	must(t, err)
	_, err = s.InsertBindings(ctx, []resource.RoleBinding{e})
	must(t, err)
	must(t, s.DeleteBinding(ctx, e.UID))
	_, err = s.UpdateBinding(ctx, d.UID, func(d *resource.RoleBinding) error { d.Role = resource.OwnerRole; return nil })
	must(t, err)
	must(t, s.DeleteBinding(ctx, c.UID))
	must(t, s.DeleteBinding(ctx, c.UID)) // the binding is already deleted, so there is no event
	must(t, s.DeleteBinding(ctx, d.UID))
	must(t, s.DeleteIdentity(ctx, i.UID))
	must(t, s.DeleteRole(ctx, r.UID))
	must(t, s.DeleteGroup(ctx, g.UID, alice))
	must(t, s.RequestAccess(ctx, org.UID, i, time.Hour))
	rest := lifetimeOfTheRest(ctx, t, s, org.UID)
	must(t, s.DeleteGroup(ctx, org.UID, alice))
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
func lifetimeOfTheRest(ctx context.Context, t *testing.T, s *storetest.Store, org resource.UID) []entry {
	p, a, i := newProvider(org, resource.OwnerRole, "p"), newAssociation(org, "a"), newInvite(org, resource.OwnerRole)
	m, n, o := newMapping(p.UID, resource.OwnerRole, "m"), newMapping(p.UID, resource.OwnerRole, "n"), newMapping(p.UID,
		resource.OwnerRole, "o")
	must(t, s.InsertProvider(ctx, p))
	_, err := s.UpdateProvider(ctx, p.UID, changed(func(p *resource.IdentityProvider) error {
		p.Description = "d"
		return nil
	}))
	must(t, err)
	must(t, s.InsertAssociation(ctx, a))
	_, err = store.Edit(ctx, a.UID, s.Association, s.UpdateAssociation, func(a *resource.AccountAssociation) error {
		a.Description = "d"
		return nil
	})
	must(t, err)
	_, err = s.InsertInvite(ctx, i)
	must(t, err)
	for _, m := range []resource.ExternalGroupRoleMapping{m, n, o} {
		must(t, s.InsertMapping(ctx, m))
	}
	must(t, s.DeleteMapping(ctx, m.UID))
	for range 2 { // the second iteration causes no event
		_, err = s.DeleteMappings(ctx, p.UID, []resource.UID{m.UID, n.UID, o.UID})
		must(t, err)
		must(t, s.DeleteAssociation(ctx, a.UID))
		must(t, s.DeleteInvite(ctx, i.UID))
	}
	must(t, s.DeleteProvider(ctx, p.UID))
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
func beforeAndAfter(t *testing.T, s *storetest.Store) {
	now := epoch.Add(time.Hour)
	s.Now = func() time.Time { return now }
	g := addGroup(t, s, "", "org")
	for range 3 {
		_, err := store.Edit(t.Context(), g.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
			g.Description += "d"
			return nil
		})
		must(t, err)
	}
	all := events(t, s)
	var before, after resource.Group
	must(t, errors.Join(json.Unmarshal(all[1].Before, &before), json.Unmarshal(all[1].After, &after)))
	if diff := cmp.Diff(g, before); diff != "" {
		t.Error(diff)
	}
	g.Description, g.UpdateTime = "d", now
	if diff := cmp.Diff(g, after); diff != "" {
		t.Error(diff)
	}
	some, err := s.Events(t.Context(), all[0].Seq, 2)
	must(t, err)
	if diff := cmp.Diff(all[1:3], some); diff != "" {
		t.Error(diff)
	}
}

func grantChanges(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	start, err := s.Revision(t.Context())
	must(t, err)
	i, r := addIdentity(t, s, org.UID, "i"), addRole(t, s, org.UID, "r")
	b := addBinding(t, s, org.UID, i.UID, r.UID)
	_, err = s.UpdateBinding(t.Context(), b.UID, func(b *resource.RoleBinding) error { b.Identity = alice; return nil })
	must(t, err)
	_, err = store.Edit(t.Context(), org.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
		g.Description = "d"
		return nil
	})
	must(t, err)
	want := []store.GrantChange{
		{Revision: start + 1, Role: r.UID}, {Revision: start + 2, Identity: i.UID},
		{Revision: start + 3, Identity: i.UID}, {Revision: start + 4, Identity: alice},
	}
	got, complete, err := s.GrantChanges(t.Context(), start)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" || !complete {
		t.Errorf("complete %v\n%s", complete, diff)
	}
	if now, err := s.Revision(t.Context()); err != nil || now != start+4 {
		t.Errorf("revision = %d, want %d", now, start+4)
	}
	if none, complete, err := s.GrantChanges(t.Context(), start+4); err != nil || len(none) != 0 || !complete {
		t.Errorf("after the last: %v, %v, %v", none, complete, err)
	}
	var grants []iamdb.Grant
	revision, err := s.Grants(t.Context(), func(g iamdb.Grant) { grants = append(grants, g) })
	must(t, err)
	if diff := cmp.Diff([]iamdb.Grant{{Identity: alice, Group: org.UID, Role: r.UID}}, grants); diff != "" ||
		revision != start+4 {
		t.Errorf("revision %d\n%s", revision, diff)
	}
	must(t, s.SkipChanges(t.Context(), store.ChangesKept+1500))
	if _, complete, err := s.GrantChanges(t.Context(), start); err != nil || complete {
		t.Errorf("pruned changes pass for complete (%v)", err)
	}
	last, err := s.Revision(t.Context())
	must(t, err)
	kept, complete, err := s.GrantChanges(t.Context(), last-store.ChangesKept)
	must(t, err)
	if len(kept) != store.ChangesKept || !complete {
		t.Errorf("%d changes kept, complete %v", len(kept), complete)
	}
}

func watchers(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r := addRole(t, s, org.UID, "r")
	heard := int64(0)
	s.OnGrantChange(func(ctx context.Context, revision int64) {
		if now, err := s.Revision(ctx); err != nil || now < revision {
			t.Errorf("told of %d at revision %d (%v)", revision, now, err)
		}
		heard = revision // if this call comes too late, the race detector reports it
	})
	addBinding(t, s, org.UID, alice, r.UID)
	now, err := s.Revision(t.Context())
	must(t, err)
	if heard != now {
		t.Errorf("heard of %d, want %d", heard, now)
	}
	addGroup(t, s, org.UID, "g")
	_, err = s.InsertBindings(t.Context(), []resource.RoleBinding{newBinding(org.UID, alice, r.UID)})
	if err == nil || heard != now {
		t.Errorf("heard of %d after a failed write, want %d", heard, now)
	}
}

func settings(t *testing.T, s *storetest.Store) {
	ctx := t.Context()
	_, err := s.Setting(ctx, "a")
	wantFault(t, err, fault.NotFound, fault.Resource{Type: "setting", Name: "a"})
	must(t, s.SetSetting(ctx, "a", []byte("one")))
	must(t, s.SetSetting(ctx, "a", []byte("two")))
	if v, err := s.Setting(ctx, "a"); err != nil || string(v) != "two" {
		t.Errorf("setting = %q, %v", v, err)
	}
	if taken, err := s.DeleteSettingIf(ctx, "a", []byte("one")); err != nil || taken {
		t.Errorf("another value was taken (%v)", err)
	}
	wins := make(chan bool, 8)
	var wg sync.WaitGroup
	for range cap(wins) {
		wg.Go(func() {
			taken, err := s.DeleteSettingIf(ctx, "a", []byte("two"))
			if err != nil {
				t.Error(err)
			}
			wins <- taken
		})
	}
	wg.Wait()
	close(wins)
	n := 0
	for won := range wins {
		if won {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d took the setting", n)
	}
	must(t, s.SetSetting(ctx, "b", []byte("x")))
	must(t, s.SetSetting(ctx, "b", nil))
	_, err = s.Setting(ctx, "b")
	wantFault(t, err, fault.NotFound, fault.Resource{Type: "setting", Name: "b"})
}

func signingKeys(t *testing.T, s *storetest.Store) {
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			k := iamdb.SigningKey{ID: fmt.Sprintf("k%d", n), Algorithm: "ES256", Sealed: []byte{0, 1, byte(n)},
				CreateTime: epoch}
			if err := s.InsertFirstSigningKey(t.Context(), k); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	keys, err := s.SigningKeys(t.Context())
	must(t, err)
	if len(keys) != 1 || keys[0].ID != fmt.Sprintf("k%d", keys[0].Sealed[2]) || !keys[0].CreateTime.Equal(epoch) {
		t.Errorf("keys = %v", keys)
	}
}

// TestReopen checks that a store that is closed and opened again still has its
// data, and that opening it records no event and no revision.
func TestReopen(t *testing.T) {
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		db, err := store.Open(t.Context(), url)
		must(t, err)
		s := storetest.Combine(db)
		if has, err := s.HasOrganizations(t.Context()); err != nil || has {
			t.Errorf("an empty store has organizations (%v)", err)
		}
		org, b := addOrganization(t, s, "org", alice)
		i := addIdentity(t, s, org.UID, "i")
		must(t, s.SetSetting(t.Context(), "a", []byte("b")))
		want := events(t, s)
		revision, err := s.Revision(t.Context())
		must(t, err)
		must(t, s.Close())
		s = storetest.Open(t, url)
		must(t, s.Ping(t.Context()))
		wantSame(t, s.Group, org.UID, org)
		wantSame(t, s.Identity, i.UID, i)
		_, err = s.Binding(t.Context(), b.UID)
		must(t, err)
		if v, err := s.Setting(t.Context(), "a"); err != nil || string(v) != "b" {
			t.Errorf("setting = %q, %v", v, err)
		}
		if diff := cmp.Diff(want, events(t, s)); diff != "" {
			t.Error(diff)
		}
		if now, err := s.Revision(t.Context()); err != nil || now != revision {
			t.Errorf("revision = %d, want %d (%v)", now, revision, err)
		}
		if has, err := s.HasOrganizations(t.Context()); err != nil || !has {
			t.Errorf("the organization is not seen (%v)", err)
		}
		wantExact(t, s)
	})
}

// TestNewerSchema opens a database that a later version has migrated. It checks
// that Open succeeds if the table schema_needs allows it, and otherwise returns
// an error that names the schema.
func TestNewerSchema(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		s, err := store.Open(t.Context(), url)
		must(t, err)
		must(t, s.Close())
		driver := "sqlite"
		if strings.Contains(url, "://") {
			driver = "pgx"
		}
		db, err := sql.Open(driver, url)
		must(t, err)
		defer db.Close()
		exec := func(text string) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), text)
			must(t, err)
		}
		exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
		exec(`ALTER TABLE groups ADD COLUMN later TEXT NOT NULL DEFAULT ''`)
		s, err = store.Open(t.Context(), url)
		if err != nil {
			t.Fatalf("what a later version has added: %v", err)
		}
		addGroup(t, storetest.Combine(s), "", "by the version before")
		must(t, s.Close())
		exec(`UPDATE schema_needs SET version = 9999`)
		s, err = store.Open(t.Context(), url)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "9999") || errors.Is(err, fault.Unavailable) {
			t.Errorf("opened: error = %v, want one that names the schema", err)
		}
	})
}

// TestListenGrants checks that ListenGrants of one store calls its function after another store has
// changed grants.
func TestListenGrants(t *testing.T) {
	address := storetest.Postgres(t)
	one, two := storetest.Open(t, address), storetest.Open(t, address)
	ctx, stop := context.WithCancel(t.Context())
	heard, done := make(chan struct{}, 1), make(chan error)
	go func() {
		done <- two.ListenGrants(ctx, func() {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	org := addGroup(t, one, "", "org")
	for n := 0; len(heard) == 0; n++ { // until the other store listens, changes have no effect
		addRole(t, one, org.UID, fmt.Sprintf("r%d", n))
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	must(t, two.Ping(t.Context()))
}

// TestListenAlone checks that ListenGrants on SQLite never calls its function and returns when its
// context ends.
func TestListenAlone(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.ListenGrants(ctx, func() { t.Error("heard something") }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}
