package iamtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// Epoch is the time at which the fixtures are created.
var Epoch = time.Date(2024, 5, 6, 7, 8, 9, 123e6, time.UTC)

// ByUID asks for a page of resources in the order of their UIDs.
var ByUID = page.Request{Size: page.MaxSize, Order: page.Order{Field: "uid"}}

// AddGroup inserts a group under parent, or an organization if parent is "".
func AddGroup(t testing.TB, s *IAMStore, parent resource.UID, name string) resource.Group {
	t.Helper()
	g, err := s.InsertGroup(t.Context(), NewGroup(parent, name))
	testkit.Must(t, err)
	return g
}

// NewGroup returns a group under parent, or an organization if parent is "".
func NewGroup(parent resource.UID, name string) resource.Group {
	uid := resource.NewRoot()
	if parent != "" {
		uid = parent.NewChild()
	}
	return resource.Group{UID: uid, Name: name, CreateTime: Epoch, UpdateTime: Epoch}
}

// NewIdentity returns a workload that an issuer identifies by its name.
func NewIdentity(parent resource.UID, name string) resource.Identity {
	return resource.Identity{
		UID: parent.NewChild(), Name: name, CreateTime: Epoch, UpdateTime: Epoch, LastSeenTime: Epoch,
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.test", Subject: name}},
	}
}

// AddIdentity inserts a workload.
func AddIdentity(t testing.TB, s *IAMStore, parent resource.UID, name string) resource.Identity {
	t.Helper()
	i := NewIdentity(parent, name)
	testkit.Must(t, s.InsertIdentity(t.Context(), i))
	return i
}

// NewRole returns a role with one capability.
func NewRole(parent resource.UID, name string) resource.Role {
	return resource.Role{
		UID: parent.NewChild(), Name: name, Capabilities: resource.CapabilitySet("groups.list"),
		CreateTime: Epoch, UpdateTime: Epoch,
	}
}

// AddRole inserts a role.
func AddRole(t testing.TB, s *IAMStore, parent resource.UID, name string) resource.Role {
	t.Helper()
	r := NewRole(parent, name)
	testkit.Must(t, s.InsertRole(t.Context(), r))
	return r
}

// NewBinding returns the binding of an identity to a role on a group.
func NewBinding(group, identity, role resource.UID) resource.RoleBinding {
	return resource.RoleBinding{UID: group.NewChild(), Identity: identity, Role: role, CreateTime: Epoch}
}

// AddBinding inserts a binding.
func AddBinding(t testing.TB, s *IAMStore, group, identity, role resource.UID) resource.RoleBinding {
	t.Helper()
	b := NewBinding(group, identity, role)
	_, err := s.InsertBinding(t.Context(), b)
	testkit.Must(t, err)
	return b
}

// NewProvider returns an identity provider.
func NewProvider(parent, role resource.UID, name string) resource.IdentityProvider {
	p := resource.IdentityProvider{
		UID: parent.NewChild(), Name: name, DefaultRole: role, CreateTime: Epoch, UpdateTime: Epoch,
		OIDC: &resource.OIDC{Issuer: "https://issuer.test", ClientID: "c",
			ClientSecret: resource.Secret{Sealed: []byte{0, 1, 2}}},
	}
	p.Realm = p.OwnRealm()
	return p
}

// AddProvider inserts an identity provider.
func AddProvider(t testing.TB, s *IAMStore, parent, role resource.UID, name string) resource.IdentityProvider {
	t.Helper()
	p := NewProvider(parent, role, name)
	testkit.Must(t, s.InsertProvider(t.Context(), p))
	return p
}

// NewAssociation returns the association of a group with an Amazon account.
func NewAssociation(group resource.UID, name string) resource.AccountAssociation {
	return resource.AccountAssociation{
		UID: group, Name: name, Amazon: &resource.AmazonAccount{Account: "123456789012"}, CreateTime: Epoch,
		UpdateTime: Epoch,
	}
}

// AddAssociation inserts an association.
func AddAssociation(t testing.TB, s *IAMStore, group resource.UID, name string) resource.AccountAssociation {
	t.Helper()
	a := NewAssociation(group, name)
	testkit.Must(t, s.InsertAssociation(t.Context(), a))
	return a
}

// NewInvite returns an invite to a role.
func NewInvite(group, role resource.UID) resource.GroupInvite {
	return resource.GroupInvite{
		UID: group.NewChild(), Role: role, KeyID: "k", Digest: []byte{3,
			4}, ExpirationTime: Epoch.Add(time.Hour), CreateTime: Epoch,
	}
}

// AddInvite inserts an invite.
func AddInvite(t testing.TB, s *IAMStore, group, role resource.UID) resource.GroupInvite {
	t.Helper()
	i, err := s.InsertInvite(t.Context(), NewInvite(group, role))
	testkit.Must(t, err)
	return i
}

// NewMapping returns the mapping of an external group to a role.
func NewMapping(provider, role resource.UID, external string) resource.ExternalGroupRoleMapping {
	return resource.ExternalGroupRoleMapping{
		UID: provider.NewChild(), ExternalGroup: external, Role: role, Scope: provider.Root(), CreateTime: Epoch,
	}
}

// AddMapping inserts a mapping.
func AddMapping(t testing.TB, s *IAMStore, provider, role resource.UID,
	external string) resource.ExternalGroupRoleMapping {
	t.Helper()
	m := NewMapping(provider, role, external)
	testkit.Must(t, s.InsertMapping(t.Context(), m))
	return m
}

// OwnerRole is the managed role of owners, as the service stores it when it starts.
var OwnerRole = resource.Role{UID: resource.OwnerRole, Name: "owner",
	Capabilities: resource.CapabilitySet("groups.list", "groups.delete")}

// AddOrganization inserts a root group with an owner.
func AddOrganization(t testing.TB, s *IAMStore, name string, owner resource.UID) (resource.Group,
	resource.RoleBinding) {
	t.Helper()
	testkit.Must(t, s.SetManagedRoles(t.Context(), []resource.Role{OwnerRole}))
	g := NewGroup("", name)
	b := NewBinding(g.UID, owner, resource.OwnerRole)
	_, err := s.InsertGroup(t.Context(), g, b)
	testkit.Must(t, err)
	return g, b
}

// Alice and Bob are two people.
var (
	Alice = resource.UserUID("https://issuer.test", "alice")
	Bob   = resource.UserUID("https://issuer.test", "bob")
)

// AddRequest adds a request by a new workload for a role on a group, and the rule that allows the
// request.
func AddRequest(t testing.TB, s *IAMStore, group, role resource.UID) resource.AccessRequest {
	t.Helper()
	rule := resource.AccessRule{UID: group.NewChild(), Role: role, MaxDuration: time.Hour, Approvers: 1,
		CreateTime: Epoch, UpdateTime: Epoch}
	testkit.Must(t, s.InsertAccessRule(t.Context(), rule))
	r := resource.AccessRequest{
		UID: group.NewChild(), Rule: rule.UID, Role: role, Identity: AddIdentity(t, s, group.Root(),
			"asks").UID, Duration: time.Hour,
		State: resource.AccessPending, Approvers: 1, CreateTime: s.Time(), UpdateTime: s.Time(),
	}
	testkit.Must(t, s.InsertAccessRequest(t.Context(), r))
	return r
}

// Anybody allows every approval of a request.
func Anybody(resource.AccessRequest) error { return nil }

// WalkAll reads all pages and returns how often it has seen each group.
func WalkAll(t testing.TB, s *IAMStore, r store.Reach, p page.Request) map[resource.UID]int {
	t.Helper()
	seen := map[resource.UID]int{}
	for {
		got, err := s.Groups(t.Context(), r, resource.Filter{}, p)
		testkit.Must(t, err)
		for _, g := range got.Items {
			seen[g.UID]++
		}
		if got.Last == nil {
			return seen
		}
		p.After = got.Last
	}
}

// WantUsers checks that a delete was refused, and which kinds of resources the error names as
// users.
func WantUsers(t testing.TB, err error, want ...string) {
	t.Helper()
	testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
	var got []string
	for _, v := range fault.From(err).Unmet {
		if v.Subject != "RESOURCE_IN_USE" {
			t.Errorf("unmet: %v", v)
		}
		got = append(got, v.Description)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// ChangeProvider returns a change to a provider that ignores the provider's mappings.
func ChangeProvider(change func(*resource.IdentityProvider) error) iamdb.ProviderChange {
	return func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
		return nil, change(p)
	}
}

// PastOn returns the bindings that were valid on a group at a time.
func PastOn(t testing.TB, s *GrantLog, group resource.UID, at time.Time) []resource.BoundRole {
	t.Helper()
	got, err := s.PastBindings(t.Context(), grantlog.Query{At: at, Groups: []resource.UID{group}}, ByUID)
	testkit.Must(t, err)
	return got.Items
}
