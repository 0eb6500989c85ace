package iam_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

var viewer = resource.ManagedRoleUID("viewer")

func provider(change func(*resource.IdentityProvider)) resource.IdentityProvider {
	p := resource.IdentityProvider{Name: "corp", DefaultRole: viewer, OIDC: &resource.OIDC{
		Issuer: "https://login.example", ClientID: "holdfast", ClientSecret: resource.Secret{Plain: "s3cret-value"},
	}}
	change(&p)
	return p
}

func same(*resource.IdentityProvider) {}

func TestProviders(t *testing.T) {
	key := secret.NewKey()
	story(t, iam.Config{Key: key}, func(t *testing.T, w *world) {
		p, err := w.CreateProvider(w.owner, w.acme.UID, provider(same))
		must(t, err)
		kept, err := w.store.Provider(t.Context(), p.UID)
		must(t, err)
		if plain, err := key.Open("client secret", kept.OIDC.ClientSecret.Sealed); err != nil ||
			string(plain) != "s3cret-value" {
			t.Errorf("kept %q, %v", plain, err)
		}
		events, err := outbox.Read(t.Context(), w.store.DB, 0, 1000)
		must(t, err)
		for _, e := range events {
			if bytes.Contains(e.After, []byte("s3cret")) || bytes.Contains(e.After, []byte("Sealed")) {
				t.Errorf("event %s holds the secret: %s", e.Type, e.After)
			}
		}
		// A change of another field keeps the secret. PKCE alone is enough.
		p, err = w.UpdateProvider(w.owner, p.UID, false, func(p *resource.IdentityProvider) error {
			p.Description = "x"
			return nil
		})
		if err != nil || len(p.OIDC.ClientSecret.Sealed) == 0 {
			t.Errorf("after an update: %+v, %v", p, err)
		}
		_, err = w.UpdateProvider(w.owner, p.UID, false, func(p *resource.IdentityProvider) error {
			p.OIDC.ClientSecret = resource.Secret{}
			return nil
		})
		want(t, "neither secret nor PKCE", err, fault.InvalidArgument)
		_, err = w.UpdateProvider(w.owner, p.UID, false, func(p *resource.IdentityProvider) error {
			p.OIDC.ClientSecret, p.OIDC.PKCE = resource.Secret{}, true
			return nil
		})
		must(t, err)
		// The correlation rule cannot be changed once it is set.
		rule := func(r resource.CorrelationRule) error {
			_, err := w.UpdateProvider(w.owner, p.UID, false, func(p *resource.IdentityProvider) error {
				p.OIDC.CorrelationRule = r
				return nil
			})
			return err
		}
		must(t, rule(resource.CorrelationObjectID))
		must(t, rule(resource.CorrelationObjectID))
		want(t, "another rule", rule(resource.CorrelationSubject), fault.InvalidArgument)
	})
}

func TestBadProviders(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		_, weak := w.worker(w.acme.UID, "identity_providers.create", "role_bindings.create")
		_, lone := w.worker(w.acme.UID, "identity_providers.create")
		tests := map[string]struct {
			as   context.Context
			p    resource.IdentityProvider
			code error
		}{
			"no default role": {
				w.owner, provider(func(p *resource.IdentityProvider) { p.DefaultRole = "" }), fault.InvalidArgument,
			},
			"no configuration": {w.owner, provider(func(p *resource.IdentityProvider) { p.OIDC = nil }), fault.InvalidArgument},
			"no issuer": {
				w.owner, provider(func(p *resource.IdentityProvider) { p.OIDC.Issuer = "" }), fault.InvalidArgument,
			},
			"no client": {
				w.owner, provider(func(p *resource.IdentityProvider) { p.OIDC.ClientID = "" }), fault.InvalidArgument,
			},
			"an endless secret": {w.owner, provider(func(p *resource.IdentityProvider) {
				p.OIDC.ClientSecret.Plain = strings.Repeat("x", 2049)
			}), fault.InvalidArgument},
			"a scope with a space": {
				w.owner, provider(func(p *resource.IdentityProvider) { p.OIDC.AdditionalScopes = []string{"a b"} }),
				fault.InvalidArgument,
			},
			"no such rule": {
				w.owner, provider(func(p *resource.IdentityProvider) { p.OIDC.CorrelationRule = 3 }), fault.InvalidArgument,
			},
			"no such role": {
				w.owner, provider(func(p *resource.IdentityProvider) { p.DefaultRole = resource.NewRoot() }), fault.NotFound,
			},
			"a role from elsewhere": {
				w.owner, provider(func(p *resource.IdentityProvider) { p.DefaultRole = w.other.UID.NewChild() }),
				fault.InvalidArgument,
			},
			"more than the caller has": {weak, provider(same), fault.PermissionDenied},
			"without bindings.create":  {lone, provider(same), fault.PermissionDenied},
			"in another's":             {w.rival, provider(same), fault.PermissionDenied},
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				if _, err := w.CreateProvider(tt.as, w.acme.UID, tt.p); !errors.Is(err, tt.code) {
					t.Errorf("error = %v, want %v", err, tt.code)
				}
			})
		}
		if all, err := w.ListProviders(w.owner, resource.Filter{}, page.Params{}); err != nil || all.Total != 0 {
			t.Errorf("%d providers, %v", all.Total, err)
		}
	})
}

// TestProviderSecret changes the issuer of a provider. The new issuer must not get
// the old client secret.
func TestProviderSecret(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		p, err := w.CreateProvider(w.owner, w.acme.UID, provider(func(p *resource.IdentityProvider) {
			p.OIDC.PKCE = true
		}))
		must(t, err)
		for name, tt := range map[string]struct {
			change func(*resource.OIDC)
			kept   bool
		}{
			"another issuer": {func(o *resource.OIDC) { o.Issuer += "/x" }, false},
			"another client": {func(o *resource.OIDC) { o.ClientID += "x" }, false},
			"another claim":  {func(o *resource.OIDC) { o.GroupsClaim += "x" }, true},
			"another secret": {func(o *resource.OIDC) { o.ClientID, o.ClientSecret.Plain = o.ClientID+"y", "new" }, true},
		} {
			_, err := w.UpdateProvider(w.owner, p.UID, false, func(p *resource.IdentityProvider) error {
				p.OIDC.ClientSecret.Plain = "secret"
				return nil
			})
			must(t, err)
			_, err = w.UpdateProvider(w.owner, p.UID, false, func(p *resource.IdentityProvider) error {
				tt.change(p.OIDC)
				return nil
			})
			must(t, err)
			got, err := w.GetProvider(w.owner, p.UID)
			if err != nil || got.OIDC.ClientSecret.Empty() == tt.kept {
				t.Errorf("%s: kept is %t, %v", name, !got.OIDC.ClientSecret.Empty(), err)
			}
		}
		_, err = w.TrustProvider(t.Context(), p.UID, true)
		must(t, err)
		got, err := w.UpdateProvider(w.owner, p.UID, false, func(p *resource.IdentityProvider) error {
			p.OIDC.Issuer += "/y"
			return nil
		})
		if err != nil || got.Trusted {
			t.Errorf("the operator trusts what they have not seen: %v", err)
		}
	})
}

func TestMappings(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		p, err := w.CreateProvider(w.owner, w.acme.UID, provider(same))
		must(t, err)
		admins := resource.ExternalGroupRoleMapping{ExternalGroup: "admins", Role: viewer}
		m, err := w.CreateMapping(w.owner, p.UID, admins)
		must(t, err)
		if m.Provider() != p.UID || m.Scope != w.acme.UID {
			t.Errorf("mapping = %+v", m)
		}
		_, err = w.CreateMapping(w.owner, p.UID, admins)
		want(t, "the same again", err, fault.AlreadyExists)
		_, err = w.CreateMapping(
			w.owner, p.UID,
			resource.ExternalGroupRoleMapping{ExternalGroup: "x", Role: viewer, Scope: w.acme.UID.NewChild()},
		)
		want(t, "below the organization", err, fault.InvalidArgument)
		_, err = w.CreateMapping(w.owner, w.acme.UID.NewChild(), admins)
		want(t, "in no provider", err, fault.NotFound)
		_, weak := w.worker(w.acme.UID, "identity_providers.create", "role_bindings.create")
		_, err = w.CreateMapping(
			weak, p.UID, resource.ExternalGroupRoleMapping{ExternalGroup: "y", Role: resource.OwnerRole},
		)
		want(t, "more than the caller has", err, fault.PermissionDenied)
		second, err := w.CreateMapping(
			w.owner, p.UID, resource.ExternalGroupRoleMapping{ExternalGroup: "b", Role: viewer},
		)
		must(t, err)

		all, err := w.ListMappings(w.owner, resource.Filter{Group: p.UID}, page.Params{OrderBy: "create_time"})
		if err != nil || all.Total != 2 {
			t.Errorf("%d mappings, %v", all.Total, err)
		}
		err = w.DeleteProvider(w.owner, p.UID)
		if want(t, "a provider in use", err, fault.FailedPrecondition); err != nil &&
			fault.From(err).Unmet[0].Description != "cannot delete identity provider used by external group role mappings" {
			t.Errorf("unmet = %v", fault.From(err).Unmet)
		}
		_, err = w.DeleteMappings(w.owner, p.UID, "ids", []resource.UID{m.UID, w.acme.UID.NewChild()})
		if want(t, "one of another provider", err, fault.InvalidArgument); err != nil &&
			fault.From(err).Fields[0].Subject != "ids[1]" {
			t.Errorf("fields = %v", fault.From(err).Fields)
		}
		gone, err := w.DeleteMappings(w.owner, p.UID, "ids", []resource.UID{m.UID, p.UID.NewChild(), second.UID})
		if err != nil || len(gone) != 2 || gone[0].UID != m.UID {
			t.Errorf("gone = %v, %v", gone, err)
		}
		want(t, "what is gone", w.DeleteMapping(w.owner, m.UID), fault.NotFound)
		must(t, w.DeleteProvider(w.owner, p.UID))
		if drifts, err := w.store.Drifts(t.Context()); err != nil || len(drifts) > 0 {
			t.Errorf("drifts = %v, %v", drifts, err)
		}
	})
}

func TestInvites(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		i, err := w.CreateInvite(
			w.owner, w.acme.UID, resource.GroupInvite{Role: viewer, Email: "a@b.example", SingleUse: true}, time.Hour,
		)
		must(t, err)
		if i.Code == "" || i.RoleInfo.Name != "viewer" || !i.ExpirationTime.Equal(i.CreateTime.Add(time.Hour)) {
			t.Errorf("invite = %+v", i)
		}
		code, ok := resource.ReadInviteCode(i.Code)
		kept, err := w.store.Invite(t.Context(), i.UID)
		must(t, err)
		if !ok || code.UID != i.UID || !bytes.Equal(kept.Digest, code.Digest) || kept.Code != "" {
			t.Error("what is kept is not the digest of the secret")
		}
		got, err := w.ListInvites(w.owner, resource.Filter{KeyID: i.KeyID}, page.Params{})
		if err != nil || got.Total != 1 || got.Items[0].Code != "" {
			t.Errorf("by key: %+v, %v", got, err)
		}
		for name, ttl := range map[string]time.Duration{"no time": 0, "back in time": -time.Hour,
			"too long": 31 * 24 * time.Hour} {
			_, err := w.CreateInvite(w.owner, w.acme.UID, resource.GroupInvite{Role: viewer}, ttl)
			want(t, name, err, fault.InvalidArgument)
		}
		_, err = w.CreateInvite(w.owner, w.acme.UID, resource.GroupInvite{Role: viewer, Email: "nobody"}, time.Hour)
		want(t, "no address", err, fault.InvalidArgument)
		_, weak := w.worker(w.acme.UID, "group_invites.create", "role_bindings.create")
		_, err = w.CreateInvite(weak, w.acme.UID, resource.GroupInvite{Role: viewer}, time.Hour)
		want(t, "more than the caller has", err, fault.PermissionDenied)
		must(t, w.DeleteInvite(w.owner, i.UID))
		must(t, w.DeleteInvite(w.owner, i.UID)) // deleting it again is no error
	})
}

func TestAssociations(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		amazon := resource.AccountAssociation{Name: "cloud", Amazon: &resource.AmazonAccount{Account: "123456789012"}}
		a, err := w.CreateAssociation(w.owner, w.acme.UID, amazon)
		if err != nil || a.UID != w.acme.UID {
			t.Fatalf("association = %+v, %v", a, err)
		}
		_, err = w.CreateAssociation(w.owner, w.acme.UID, amazon)
		want(t, "a second", err, fault.AlreadyExists)
		_, err = w.CreateAssociation(w.owner, w.acme.UID.NewChild(), amazon)
		want(t, "of no group", err, fault.NotFound)
		folder := w.group(w.acme.UID, "folder")
		_, err = w.CreateAssociation(w.owner, folder.UID, amazon)
		must(t, err)
		all, err := w.ListAssociations(w.owner, resource.Filter{}, page.Params{})
		if err != nil || all.Total != 2 || all.Items[0].UID != w.acme.UID || all.Items[1].UID != folder.UID {
			t.Errorf("all = %+v, %v", all, err)
		}
		asked := func(_ context.Context, a resource.AccountAssociation, _ resource.ProviderType) (resource.Readiness, error) {
			return resource.Readiness{Ready: true, Message: a.Amazon.Account}, nil
		}
		ready, err := w.CheckAssociation(w.owner, w.acme.UID, resource.ProviderAmazon, asked)
		if err != nil || !ready.Ready || ready.Message != amazon.Amazon.Account {
			t.Errorf("ready = %+v, %v", ready, err)
		}
		ready, err = w.CheckAssociation(w.owner, w.acme.UID, resource.ProviderGoogle, asked)
		if err != nil || ready.Reason != "NOT_CONFIGURED" {
			t.Errorf("ready = %+v, %v", ready, err)
		}
		service := resource.Identity{Name: "ingester", Relationship: resource.Relationship{ServicePrincipal: 2}}
		i, err := w.CreateIdentity(w.owner, folder.UID, service)
		must(t, err)
		bind := func(name string, uid resource.UID) error {
			_, err := w.UpdateAssociation(w.owner, folder.UID, func(a *resource.AccountAssociation) error {
				a.ServiceBindings, a.HasBindings = map[string]resource.UID{name: uid}, true
				return nil
			})
			return err
		}
		must(t, bind("INGESTER", i.UID))
		want(t, "another service", bind("COSIGNED", i.UID), fault.InvalidArgument)
		want(t, "no such service", bind("NONE", i.UID), fault.InvalidArgument)
		want(t, "nobody", bind("INGESTER", folder.UID.NewChild()), fault.InvalidArgument)
		want(t, "from another group", bind("INGESTER", w.acme.UID.NewChild()), fault.InvalidArgument)
		must(t, w.DeleteIdentity(w.owner, i.UID))
		err = w.DeleteGroup(w.owner, folder.UID)
		if want(t, "a group that has one", err, fault.FailedPrecondition); err != nil &&
			fault.From(err).Message != "Precondition failed: cannot delete group with child account associations" {
			t.Errorf("error = %v", err)
		}
		must(t, w.DeleteAssociation(w.owner, folder.UID))
		must(t, w.DeleteAssociation(w.owner, folder.UID)) // deleting it again is no error
		must(t, w.DeleteGroup(w.owner, folder.UID))
	})
}

func TestWhatHoldsARole(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		r, err := w.CreateRole(
			w.owner, w.acme.UID, resource.Role{Name: "r", Capabilities: resource.CapabilitySet("groups.list")},
		)
		must(t, err)
		_, err = w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: resource.NewRoot(), Role: r.UID})
		must(t, err)
		p, err := w.CreateProvider(w.owner, w.acme.UID, provider(func(p *resource.IdentityProvider) {
			p.DefaultRole = r.UID
		}))
		must(t, err)
		_, err = w.CreateMapping(w.owner, p.UID, resource.ExternalGroupRoleMapping{ExternalGroup: "g", Role: r.UID})
		must(t, err)
		_, err = w.CreateInvite(w.owner, w.acme.UID, resource.GroupInvite{Role: r.UID}, time.Hour)
		must(t, err)
		err = w.DeleteRole(w.owner, r.UID)
		const text = "Precondition failed: cannot delete role used by role bindings, group invites, identity providers, " +
			"external group role mappings"
		if err == nil || err.Error() != text || len(fault.From(err).Unmet) != 4 {
			t.Errorf("error = %v", err)
		}
	})
}

func TestDryRun(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		before, err := outbox.Read(t.Context(), w.store.DB, 0, 1000)
		must(t, err)
		rev, err := w.store.Revision(t.Context())
		must(t, err)
		try := resource.WithDryRun(w.owner)
		g, err := w.CreateGroup(try, string(w.acme.UID), resource.Group{Name: "new"})
		if err != nil || g.Name != "new" || g.UID.Parent() != w.acme.UID {
			t.Errorf("create = %+v, %v", g, err)
		}
		_, err = w.CreateGroup(try, string(w.acme.UID), resource.Group{Name: "folder"})
		want(t, "a name that is taken", err, fault.AlreadyExists)
		got, err := w.UpdateGroup(try, folder.UID, func(g *resource.Group) error {
			g.Description = "changed"
			return nil
		})
		if err != nil || got.Description != "changed" {
			t.Errorf("update = %+v, %v", got, err)
		}
		must(t, w.DeleteGroup(try, folder.UID))
		b, err := w.CreateBinding(try, folder.UID, resource.RoleBinding{Identity: resource.NewRoot(), Role: viewer})
		if err != nil || b.RoleInfo.Name != "viewer" {
			t.Errorf("bind = %+v, %v", b, err)
		}
		i, err := w.CreateInvite(try, folder.UID, resource.GroupInvite{Role: viewer}, time.Hour)
		if err != nil || i.Code != "" {
			t.Errorf("invite = %+v, %v", i, err)
		}
		after, err := outbox.Read(t.Context(), w.store.DB, 0, 1000)
		must(t, err)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("something happened: %s", diff)
		}
		if now, err := w.store.Revision(t.Context()); err != nil || now != rev {
			t.Errorf("the revision moved from %d to %d, %v", rev, now, err)
		}
		if drifts, err := w.store.Drifts(t.Context()); err != nil || len(drifts) > 0 {
			t.Errorf("drifts = %v, %v", drifts, err)
		}
	})
}

func TestAccess(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		deep := w.group(folder.UID, "deep")
		above, _ := w.worker(w.acme.UID, "groups.delete")
		here, _ := w.worker(folder.UID, "groups.delete")
		beside, _ := w.worker(w.group(w.acme.UID, "beside").UID, "groups.delete")
		check := func(as context.Context, who resource.UID) iam.Access {
			t.Helper()
			a, err := w.CheckAccess(as, who, resource.GroupsDelete, deep.UID)
			must(t, err)
			return a
		}
		if a := check(w.owner, above); !a.Allowed || len(a.Items) != 1 || a.Items[0].GroupInfo.UID != w.acme.UID {
			t.Errorf("from above: %+v", a)
		}
		if a := check(w.owner, beside); a.Allowed || len(a.Items) != 0 {
			t.Errorf("from beside: %+v", a)
		}
		who, err := w.ListAccess(
			w.owner, resource.GroupsDelete, deep.UID, page.Params{Size: 2, OrderBy: "create_time"},
		)
		must(t, err)
		if who.Total != 3 || len(who.Items) != 2 || who.Next == "" || who.Incomplete {
			t.Errorf("who = %+v", who)
		}
		rest, err := w.ListAccess(
			w.owner, resource.GroupsDelete, deep.UID, page.Params{Size: 2, OrderBy: "create_time", Token: who.Next},
		)
		if err != nil || len(rest.Items) != 1 || rest.Items[0].Identity != here || rest.Next != "" {
			t.Errorf("rest = %+v, %v", rest, err)
		}
		_, local := w.worker(folder.UID, "role_bindings.list")
		some, err := w.ListAccess(local, resource.GroupsDelete, deep.UID, page.Params{})
		if err != nil || some.Total != 1 || !some.Incomplete {
			t.Errorf("with half a view: %+v, %v", some, err)
		}
		if a := check(local, above); !a.Allowed || len(a.Items) != 0 || !a.Incomplete {
			t.Errorf("with half a view: %+v", a)
		}
		if a := check(w.as(above), above); !a.Allowed || len(a.Items) != 1 {
			t.Errorf("oneself: %+v", a)
		}
		_, err = w.CheckAccess(w.rival, above, resource.GroupsDelete, deep.UID)
		want(t, "by a stranger", err, fault.PermissionDenied)
		_, err = w.ListAccess(w.rival, resource.GroupsDelete, deep.UID, page.Params{})
		want(t, "by a stranger", err, fault.PermissionDenied)
	})
}

// TestSharedRedirect checks that new providers use the shared redirect address, that
// an update can move a provider of the previous version to it, and that a client that
// does not know the field cannot move a provider away.
func TestSharedRedirect(t *testing.T) {
	story(t, iam.Config{Key: secret.NewKey()}, func(t *testing.T, w *world) {
		made, err := w.CreateProvider(w.owner, w.acme.UID, provider(same))
		if err != nil || !made.SharedRedirect {
			t.Fatalf("a new one: %v, %v", made.SharedRedirect, err)
		}
		old := provider(func(p *resource.IdentityProvider) {
			p.UID, p.CreateTime, p.UpdateTime = w.acme.UID.NewChild(), made.CreateTime, made.UpdateTime
			p.OIDC.PKCE = true // PKCE replaces the client secret, which would need an encryption key
		})
		must(t, w.store.InsertProvider(t.Context(), old))
		for _, want := range []bool{false, true, false} {
			for _, uid := range []resource.UID{old.UID, made.UID} {
				got, err := w.UpdateProvider(w.owner, uid, false, func(p *resource.IdentityProvider) error {
					p.SharedRedirect = want
					return nil
				})
				old.SharedRedirect = old.SharedRedirect || want
				if err != nil || got.SharedRedirect != (old.SharedRedirect || uid == made.UID) {
					t.Errorf("%s, set to %v: %v, %v", uid, want, got.SharedRedirect, err)
				}
			}
		}
	})
}
