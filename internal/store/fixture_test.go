package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

var epoch = time.Date(2024, 5, 6, 7, 8, 9, 123e6, time.UTC)

var byUID = page.Request{Size: page.MaxSize, Order: page.Order{Field: "uid"}}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantFault checks the code of an error, and the resource that the error names.
func wantFault(t *testing.T, err error, code fault.Code, about fault.Resource) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Fatalf("error = %v, want %s", err, code.Reason())
	}
	if about != (fault.Resource{}) && (f.Resource == nil || *f.Resource != about) {
		t.Fatalf("the error is about %v, want %v", f.Resource, about)
	}
}

// addGroup inserts a group under parent, or an organization if parent is "".
func addGroup(t *testing.T, s *storetest.Store, parent resource.UID, name string) resource.Group {
	t.Helper()
	g, err := s.InsertGroup(t.Context(), newGroup(parent, name))
	must(t, err)
	return g
}

func newGroup(parent resource.UID, name string) resource.Group {
	uid := resource.NewRoot()
	if parent != "" {
		uid = parent.NewChild()
	}
	return resource.Group{UID: uid, Name: name, CreateTime: epoch, UpdateTime: epoch}
}

func newIdentity(parent resource.UID, name string) resource.Identity {
	return resource.Identity{
		UID: parent.NewChild(), Name: name, CreateTime: epoch, UpdateTime: epoch, LastSeenTime: epoch,
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.test", Subject: name}},
	}
}

func addIdentity(t *testing.T, s *storetest.Store, parent resource.UID, name string) resource.Identity {
	t.Helper()
	i := newIdentity(parent, name)
	must(t, s.InsertIdentity(t.Context(), i))
	return i
}

func newRole(parent resource.UID, name string) resource.Role {
	return resource.Role{
		UID: parent.NewChild(), Name: name, Capabilities: resource.CapabilitySet("groups.list"),
		CreateTime: epoch, UpdateTime: epoch,
	}
}

func addRole(t *testing.T, s *storetest.Store, parent resource.UID, name string) resource.Role {
	t.Helper()
	r := newRole(parent, name)
	must(t, s.InsertRole(t.Context(), r))
	return r
}

func newBinding(group, identity, role resource.UID) resource.RoleBinding {
	return resource.RoleBinding{UID: group.NewChild(), Identity: identity, Role: role, CreateTime: epoch}
}

func addBinding(t *testing.T, s *storetest.Store, group, identity, role resource.UID) resource.RoleBinding {
	t.Helper()
	b := newBinding(group, identity, role)
	_, err := s.InsertBinding(t.Context(), b)
	must(t, err)
	return b
}

func newProvider(parent, role resource.UID, name string) resource.IdentityProvider {
	p := resource.IdentityProvider{
		UID: parent.NewChild(), Name: name, DefaultRole: role, CreateTime: epoch, UpdateTime: epoch,
		OIDC: &resource.OIDC{Issuer: "https://issuer.test", ClientID: "c",
			ClientSecret: resource.Secret{Sealed: []byte{0, 1, 2}}},
	}
	p.Realm = p.OwnRealm()
	return p
}

func addProvider(t *testing.T, s *storetest.Store, parent, role resource.UID, name string) resource.IdentityProvider {
	t.Helper()
	p := newProvider(parent, role, name)
	must(t, s.InsertProvider(t.Context(), p))
	return p
}

func newAssociation(group resource.UID, name string) resource.AccountAssociation {
	return resource.AccountAssociation{
		UID: group, Name: name, Amazon: &resource.AmazonAccount{Account: "123456789012"}, CreateTime: epoch,
		UpdateTime: epoch,
	}
}

func addAssociation(t *testing.T, s *storetest.Store, group resource.UID, name string) resource.AccountAssociation {
	t.Helper()
	a := newAssociation(group, name)
	must(t, s.InsertAssociation(t.Context(), a))
	return a
}

func newInvite(group, role resource.UID) resource.GroupInvite {
	return resource.GroupInvite{
		UID: group.NewChild(), Role: role, KeyID: "k", Digest: []byte{3,
			4}, ExpirationTime: epoch.Add(time.Hour), CreateTime: epoch,
	}
}

func addInvite(t *testing.T, s *storetest.Store, group, role resource.UID) resource.GroupInvite {
	t.Helper()
	i, err := s.InsertInvite(t.Context(), newInvite(group, role))
	must(t, err)
	return i
}

func newMapping(provider, role resource.UID, external string) resource.ExternalGroupRoleMapping {
	return resource.ExternalGroupRoleMapping{
		UID: provider.NewChild(), ExternalGroup: external, Role: role, Scope: provider.Root(), CreateTime: epoch,
	}
}

func addMapping(t *testing.T, s *storetest.Store, provider, role resource.UID,
	external string) resource.ExternalGroupRoleMapping {
	t.Helper()
	m := newMapping(provider, role, external)
	must(t, s.InsertMapping(t.Context(), m))
	return m
}

// ownerRole is the managed role of owners, as the service stores it when it starts.
var ownerRole = resource.Role{UID: resource.OwnerRole, Name: "owner",
	Capabilities: resource.CapabilitySet("groups.list", "groups.delete")}

// addOrganization inserts a root group with an owner.
func addOrganization(t *testing.T, s *storetest.Store, name string, owner resource.UID) (resource.Group,
	resource.RoleBinding) {
	t.Helper()
	must(t, s.SetManagedRoles(t.Context(), []resource.Role{ownerRole}))
	g := newGroup("", name)
	b := newBinding(g.UID, owner, resource.OwnerRole)
	_, err := s.InsertGroup(t.Context(), g, b)
	must(t, err)
	return g, b
}

// wantExact checks that every counter equals the number of its rows, and that deleted
// resources have no counters.
func wantExact(t *testing.T, s *storetest.Store) {
	t.Helper()
	drifts, err := s.Drifts(t.Context())
	must(t, err)
	for _, d := range drifts {
		t.Errorf("counter of %s below %s%d: %d of %d, directly %d of %d", d.Kind, d.Group, d.Key, d.Counted, d.Rows,
			d.DirectCounted, d.DirectRows)
	}
	stray, err := s.StrayCounters(t.Context())
	must(t, err)
	if stray != 0 {
		t.Errorf("%d counters of what is gone", stray)
	}
}

// events returns everything in the outbox.
func events(t *testing.T, s *storetest.Store) []resource.Event {
	t.Helper()
	all, err := s.Events(t.Context(), 0, 1_000_000)
	must(t, err)
	return all
}
