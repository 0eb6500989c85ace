package store_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// wantUsers checks that a delete was refused, and which kinds of resources the error names as
// users.
func wantUsers(t *testing.T, err error, want ...string) {
	t.Helper()
	wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
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

func roleUsers(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r, other := addRole(t, s, org.UID, "r"), addRole(t, s, org.UID, "other")
	p := addProvider(t, s, org.UID, other.UID, "p")
	var want []string
	for _, use := range []struct {
		kind string
		add  func()
	}{
		{"role bindings", func() { addBinding(t, s, org.UID, alice, r.UID) }},
		{"group invites", func() { addInvite(t, s, org.UID, r.UID) }},
		{"identity providers", func() { addProvider(t, s, org.UID, r.UID, "q") }},
		{"external group role mappings", func() { addMapping(t, s, p.UID, r.UID, "m") }},
	} {
		use.add()
		want = append(want, "cannot delete role used by "+use.kind)
		wantUsers(t, s.DeleteRole(t.Context(), r.UID), want...)
	}
}

func providerKeeps(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r, q := addRole(t, s, org.UID, "r"), addRole(t, s, org.UID, "q")
	p := newProvider(org.UID, r.UID, "p")
	p.Description, p.UpdateTime = "ünï", epoch.Add(time.Millisecond)
	p.OIDC = &resource.OIDC{
		Issuer: "https://issuer.test", ClientID: "c", ClientSecret: resource.Secret{Sealed: []byte{0, 255, 1}},
		AdditionalScopes: []string{"a",
			"b"}, GroupsClaim: "groups", CorrelationRule: resource.CorrelationObjectID, PKCE: true,
	}
	must(t, s.InsertProvider(t.Context(), p))
	wantSame(t, s.Provider, p.UID, p)
	addProvider(t, s, org.UID, r.UID, "p") // several providers may have the same name
	now := epoch.Add(time.Hour)
	s.Now = func() time.Time { return now }
	got, err := s.UpdateProvider(t.Context(), p.UID, changed(func(p *resource.IdentityProvider) error {
		p.Name, p.Description, p.DefaultRole, p.OIDC.Issuer = "x", "y", q.UID, "https://other.test"
		return nil
	}))
	must(t, err)
	oidc := *p.OIDC
	oidc.Issuer = "https://other.test"
	p.Name, p.Description, p.DefaultRole, p.OIDC, p.UpdateTime = "x", "y", q.UID, &oidc, now
	p.Epoch = 1 // the issuer has changed
	p.Realm = string(p.UID) + "#1"
	if diff := cmp.Diff(p, got); diff != "" {
		t.Error(diff)
	}
	wantSame(t, s.Provider, p.UID, p)
}

func providerRole(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r := addRole(t, s, org.UID, "r")
	p := addProvider(t, s, org.UID, r.UID, "p")
	none := org.UID.NewChild()
	missing := fault.Resource{Type: "role", Name: string(none)}
	wantFault(t, s.InsertProvider(t.Context(), newProvider(org.UID, none, "q")), fault.NotFound, missing)
	_, err := s.UpdateProvider(t.Context(), p.UID, changed(func(p *resource.IdentityProvider) error {
		p.DefaultRole = none
		return nil
	}))
	wantFault(t, err, fault.NotFound, missing)
	wantSame(t, s.Provider, p.UID, p)
}

func providerSecret(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	p := addProvider(t, s, org.UID, addRole(t, s, org.UID, "r").UID, "p")
	for _, step := range []struct {
		does   string
		change func(*resource.IdentityProvider)
		want   []byte
	}{
		{"keep", func(p *resource.IdentityProvider) { p.Name = "q" }, []byte{0, 1, 2}},
		{"change", func(p *resource.IdentityProvider) { p.OIDC.ClientSecret.Sealed = []byte("other") }, []byte("other")},
		{"keep again", func(p *resource.IdentityProvider) { p.OIDC.PKCE = true }, []byte("other")},
		{"clear", func(p *resource.IdentityProvider) { p.OIDC.ClientSecret = resource.Secret{} }, nil},
	} {
		_, err := s.UpdateProvider(t.Context(), p.UID, changed(func(p *resource.IdentityProvider) error {
			step.change(p)
			return nil
		}))
		must(t, err)
		got, err := s.Provider(t.Context(), p.UID)
		must(t, err)
		if secret := got.OIDC.ClientSecret; !bytes.Equal(secret.Sealed, step.want) || secret.Empty() != (step.want == nil) {
			t.Errorf("%s: sealed = %q, want %q", step.does, secret.Sealed, step.want)
		}
	}
	for _, e := range events(t, s) {
		if bytes.Contains(e.Before, []byte("ecret")) || bytes.Contains(e.After, []byte("ecret")) {
			t.Errorf("the secret is in an event: %s, %s", e.Before, e.After)
		}
	}
}

func providerUsers(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r, i := addRole(t, s, org.UID, "r"), addIdentity(t, s, org.UID, "i")
	p := addProvider(t, s, org.UID, r.UID, "p")
	m := addMapping(t, s, p.UID, r.UID, "m")
	const mapped = "cannot delete identity provider used by external group role mappings"
	const came = "cannot delete identity provider used by identities"
	wantUsers(t, s.DeleteProvider(t.Context(), p.UID), mapped)
	must(t, s.CameThrough(t.Context(), i.UID, p.UID))
	wantUsers(t, s.DeleteProvider(t.Context(), p.UID), mapped, came)
	must(t, s.DeleteMapping(t.Context(), m.UID))
	wantUsers(t, s.DeleteProvider(t.Context(), p.UID), came)
	wantSame(t, s.Provider, p.UID, p)
	must(t, s.DeleteIdentity(t.Context(), i.UID))
	must(t, s.DeleteProvider(t.Context(), p.UID))
	_, err := s.Provider(t.Context(), p.UID)
	wantFault(t, err, fault.NotFound, fault.Resource{Type: "identity provider", Name: string(p.UID)})
}

// providerCounters adds and deletes a provider and a mapping. The caller then checks the counters
// with wantExact.
func providerCounters(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	r := addRole(t, s, org.UID, "r")
	p := addProvider(t, s, org.UID, r.UID, "p")
	m := addMapping(t, s, p.UID, r.UID, "m")
	of := resource.Filter{Group: p.UID}
	reach := store.Reach{Under: []resource.UID{org.UID}}
	if got, err := s.Mappings(t.Context(), reach, of, byUID); err != nil || got.Total != 1 || len(got.Items) != 1 {
		t.Errorf("mappings = %+v, %v", got, err)
	}
	must(t, s.DeleteMapping(t.Context(), m.UID))
	must(t, s.DeleteProvider(t.Context(), p.UID))
	if got, err := s.Mappings(t.Context(), reach, of, byUID); err != nil || got.Total != 0 {
		t.Errorf("mappings = %+v, %v", got, err)
	}
}

// changed returns a change to a provider that ignores the provider's mappings.
func changed(change func(*resource.IdentityProvider) error) iamdb.ProviderChange {
	return func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
		return nil, change(p)
	}
}
