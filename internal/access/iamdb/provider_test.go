package iamdb_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func roleUsers(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r, other := iamtest.AddRole(t, s.IAMStore, org.UID, "r"), iamtest.AddRole(t, s.IAMStore, org.UID, "other")
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, other.UID, "p")
	var want []string
	for _, use := range []struct {
		kind string
		add  func()
	}{
		{"role bindings", func() { iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Alice, r.UID) }},
		{"group invites", func() { iamtest.AddInvite(t, s.IAMStore, org.UID, r.UID) }},
		{"identity providers", func() { iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "q") }},
		{"external group role mappings", func() { iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "m") }},
	} {
		use.add()
		want = append(want, "cannot delete role used by "+use.kind)
		iamtest.WantUsers(t, s.DeleteRole(t.Context(), r.UID), want...)
	}
}

func providerKeeps(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r, q := iamtest.AddRole(t, s.IAMStore, org.UID, "r"), iamtest.AddRole(t, s.IAMStore, org.UID, "q")
	p := iamtest.NewProvider(org.UID, r.UID, "p")
	p.Description, p.UpdateTime = "ünï", iamtest.Epoch.Add(time.Millisecond)
	p.OIDC = &resource.OIDC{
		Issuer: "https://issuer.test", ClientID: "c", ClientSecret: resource.Secret{Sealed: []byte{0, 255, 1}},
		AdditionalScopes: []string{"a",
			"b"}, GroupsClaim: "groups", CorrelationRule: resource.CorrelationObjectID, PKCE: true,
	}
	testkit.Must(t, s.InsertProvider(t.Context(), p))
	testkit.WantSame(t, s.Provider, p.UID, p)
	iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p") // several providers may have the same name
	now := iamtest.Epoch.Add(time.Hour)
	s.Now = func() time.Time { return now }
	got, err := s.UpdateProvider(t.Context(), p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
		p.Name, p.Description, p.DefaultRole, p.OIDC.Issuer = "x", "y", q.UID, "https://other.test"
		return nil
	}))
	testkit.Must(t, err)
	oidc := *p.OIDC
	oidc.Issuer = "https://other.test"
	p.Name, p.Description, p.DefaultRole, p.OIDC, p.UpdateTime = "x", "y", q.UID, &oidc, now
	p.Epoch = 1 // the issuer has changed
	p.Realm = string(p.UID) + "#1"
	if diff := cmp.Diff(p, got); diff != "" {
		t.Error(diff)
	}
	testkit.WantSame(t, s.Provider, p.UID, p)
}

func providerRole(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p")
	none := org.UID.NewChild()
	missing := fault.Resource{Type: "role", Name: string(none)}
	testkit.WantFault(t, s.InsertProvider(t.Context(), iamtest.NewProvider(org.UID, none, "q")), fault.NotFound, missing)
	_, err := s.UpdateProvider(t.Context(), p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
		p.DefaultRole = none
		return nil
	}))
	testkit.WantFault(t, err, fault.NotFound, missing)
	testkit.WantSame(t, s.Provider, p.UID, p)
}

func providerSecret(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, iamtest.AddRole(t, s.IAMStore, org.UID, "r").UID, "p")
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
		_, err := s.UpdateProvider(t.Context(), p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
			step.change(p)
			return nil
		}))
		testkit.Must(t, err)
		got, err := s.Provider(t.Context(), p.UID)
		testkit.Must(t, err)
		if secret := got.OIDC.ClientSecret; !bytes.Equal(secret.Sealed, step.want) || secret.Empty() != (step.want == nil) {
			t.Errorf("%s: sealed = %q, want %q", step.does, secret.Sealed, step.want)
		}
	}
	for _, e := range dbtest.Events(t, s.DB) {
		if bytes.Contains(e.Before, []byte("ecret")) || bytes.Contains(e.After, []byte("ecret")) {
			t.Errorf("the secret is in an event: %s, %s", e.Before, e.After)
		}
	}
}

func providerUsers(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r, i := iamtest.AddRole(t, s.IAMStore, org.UID, "r"), iamtest.AddIdentity(t, s.IAMStore, org.UID, "i")
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p")
	m := iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "m")
	const mapped = "cannot delete identity provider used by external group role mappings"
	const came = "cannot delete identity provider used by identities"
	iamtest.WantUsers(t, s.DeleteProvider(t.Context(), p.UID), mapped)
	testkit.Must(t, cameThrough(t.Context(), s.DB, i.UID, p.UID))
	iamtest.WantUsers(t, s.DeleteProvider(t.Context(), p.UID), mapped, came)
	testkit.Must(t, s.DeleteMapping(t.Context(), m.UID))
	iamtest.WantUsers(t, s.DeleteProvider(t.Context(), p.UID), came)
	testkit.WantSame(t, s.Provider, p.UID, p)
	testkit.Must(t, s.DeleteIdentity(t.Context(), i.UID))
	testkit.Must(t, s.DeleteProvider(t.Context(), p.UID))
	_, err := s.Provider(t.Context(), p.UID)
	testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "identity provider", Name: string(p.UID)})
}

// providerCounters adds and deletes a provider and a mapping. The caller then checks the counters
// with wantExact.
func providerCounters(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
	p := iamtest.AddProvider(t, s.IAMStore, org.UID, r.UID, "p")
	m := iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "m")
	of := resource.Filter{Group: p.UID}
	reach := store.Reach{Under: []resource.UID{org.UID}}
	if got, err := s.Mappings(t.Context(), reach, of, iamtest.ByUID); err != nil || got.Total != 1 || len(got.Items) != 1 {
		t.Errorf("mappings = %+v, %v", got, err)
	}
	testkit.Must(t, s.DeleteMapping(t.Context(), m.UID))
	testkit.Must(t, s.DeleteProvider(t.Context(), p.UID))
	if got, err := s.Mappings(t.Context(), reach, of, iamtest.ByUID); err != nil || got.Total != 0 {
		t.Errorf("mappings = %+v, %v", got, err)
	}
}

// cameThrough records the provider that authenticated an identity.
func cameThrough(ctx context.Context, s *store.DB, identity, provider resource.UID) error {
	return s.Write(ctx, func(t *store.Tx) error {
		_, err := t.Exec(ctx, `UPDATE identities SET provider = $2 WHERE uid = $1`, string(identity), store.Segment(provider))
		return err
	})
}
