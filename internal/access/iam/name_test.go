package iam_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// TestLookupNames checks that callers get the names of resources that they may get. Hidden resources are left out, in
// the same way as resources that do not exist.
func TestLookupNames(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		web, err := w.CreateGroup(w.owner, string(w.acme.UID), resource.Group{Name: "web", DisplayName: "Web-Läden"})
		must(t, err)
		beside := w.group(w.acme.UID, "beside")
		repo := registry.Repo{UID: web.UID.NewChild(), Name: "app", CreateTime: web.CreateTime, UpdateTime: web.CreateTime}
		must(t, w.store.InsertRepo(t.Context(), repo))
		ci, err := w.CreateIdentity(w.owner, web.UID, person("ci", "ci"))
		must(t, err)
		idp, err := w.CreateProvider(w.owner, web.UID, provider(func(p *resource.IdentityProvider) { p.Name = "okta" }))
		must(t, err)
		owner, _ := authz.CallerFrom(w.owner)
		rival, _ := authz.CallerFrom(w.rival)
		forged := web.UID + w.other.UID.NewChild()[len(w.other.UID):] // UID whose last segment no resource has
		stolen, err := w.CreateGroup(w.rival, string(w.other.UID), resource.Group{Name: "secret"})
		must(t, err)
		// The last segment belongs to a group of another organization, and the rest to a group of the caller.
		grafted := web.UID + stolen.UID[len(w.other.UID):]
		all := []resource.UID{
			w.acme.UID, web.UID, beside.UID, repo.UID, ci.UID, idp.UID, resource.ManagedRoleUID("viewer"), owner.Identity,
			rival.Identity, w.other.UID, stolen.UID, forged, grafted, web.UID,
		}
		uid, editor := w.worker(web.UID, "groups.list", "repo.list", "identity.list", "roles.list", "identity_providers.list")
		_, lister := w.worker(web.UID, "repo.list")
		_, auditor := w.worker(w.acme.UID, "identity.list")
		_, binder := w.worker(w.acme.UID, "identity.list", "role_bindings.list")
		_, folder := w.worker(web.UID, "identity.list", "role_bindings.list")
		narrow := func(ctx context.Context, n resource.Narrowing) context.Context {
			c, _ := authz.CallerFrom(ctx)
			c.Caps, c.Scopes = n.Caps, n.Scopes
			return authz.WithCaller(t.Context(), c)
		}
		repos := resource.CapabilitySet("repo.list")
		for name, tt := range map[string]struct {
			as   context.Context
			want string
		}{
			"the owner": {
				w.owner, "acme, acme/web (Web-Läden), acme/beside, acme/web/app, acme/web/ci, acme/web/okta, viewer, acme owner",
			},
			"another organization's owner": {w.rival, "viewer, other owner, other, other/secret"},
			"with a role on the folder": {
				editor, "acme/web (Web-Läden), acme/web/app, acme/web/ci, acme/web/okta, viewer",
			},
			"with one capability":                    {lister, "acme/web/app"},
			"who sees identities, but no bindings":   {auditor, "acme/web/ci"},
			"who sees identities and bindings":       {binder, "acme/web/ci, acme owner"},
			"who sees them where the owner has none": {folder, "acme/web/ci"},
			"a workload, itself":                     {w.as(ci.UID), "acme/web/ci"},
			"a stranger":                             {w.as(resource.UserUID("https://issuer.example", "nobody")), ""},
			"the owner, narrowed to a capability":    {narrow(w.owner, resource.Narrowing{Caps: &repos}), "acme/web/app"},
			"the owner, narrowed to another folder": {
				narrow(w.owner, resource.Narrowing{Scopes: []resource.UID{beside.UID}}), "acme/beside, viewer",
			},
			"the rival, narrowed to what is not their own": {
				narrow(w.rival, resource.Narrowing{Scopes: []resource.UID{web.UID}}), "",
			},
		} {
			found, err := w.LookupNames(tt.as, all)
			must(t, err)
			var got []string
			for _, n := range found {
				text := n.Path
				if n.DisplayName != "" {
					text += " (" + n.DisplayName + ")"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		// A person who was bound to a role, but has not joined, stays hidden from the caller who bound them.
		_, err = w.CreateBinding(w.owner, w.acme.UID,
			resource.RoleBinding{Identity: rival.Identity, Role: resource.ManagedRoleUID("viewer")})
		must(t, err)
		if got, err := w.LookupNames(w.owner, []resource.UID{rival.Identity, uid}); err != nil || len(got) != 1 ||
			got[0].UID != uid {
			t.Errorf("the owner who has bound a stranger: %v, %v", got, err)
		}
		// A caller who may list identities in the organization that the person has joined, but not the bindings there,
		// does not see the person.
		there, err := w.CreateRole(w.rival, w.other.UID,
			resource.Role{Name: "lister", Capabilities: resource.CapabilitySet("identity.list")})
		must(t, err)
		_, err = w.CreateBinding(w.rival, w.other.UID, resource.RoleBinding{Identity: owner.Identity, Role: there.UID})
		must(t, err)
		if got, err := w.LookupNames(w.owner, []resource.UID{rival.Identity}); err != nil || len(got) != 0 {
			t.Errorf("the owner who sees identities where the stranger has joined: %v, %v", got, err)
		}
	})
}

// TestBootstrapKeepsTheName checks that an organization keeps the name that the operator has typed.
func TestBootstrapKeepsTheName(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		for range 2 { // in the second round, the organization already exists
			g, _, err := w.Bootstrap(t.Context(), "Größe AG", resource.OrgUnspecified, person("zoe", "zoe"))
			must(t, err)
			if g.Name != "grosse-ag" || g.DisplayName != "Größe AG" {
				t.Errorf("%q, %q", g.Name, g.DisplayName)
			}
		}
		_, _, err := w.Bootstrap(t.Context(), "東京", resource.OrgUnspecified, person("zoe", "zoe"))
		want(t, "a name without a path", err, fault.InvalidArgument)
	})
}

func TestLookupNamesRefuses(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		many := slices.Repeat([]resource.UID{w.acme.UID}, 501)
		_, err := w.LookupNames(w.owner, many)
		want(t, "too many", err, fault.InvalidArgument)
		_, err = w.LookupNames(w.owner, nil)
		want(t, "none", err, fault.InvalidArgument)
		_, err = w.LookupNames(t.Context(), many[:1])
		want(t, "nobody", err, fault.Unauthenticated)
		if got, err := w.LookupNames(w.owner, many[:500]); err != nil || len(got) != 1 {
			t.Errorf("one uid 500 times: %v, %v", got, err)
		}
	})
}

// TestPeopleKeepTheirNames checks that every sign-in updates the display name of a person, but not the name in paths.
func TestPeopleKeepTheirNames(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		p, err := w.CreateProvider(w.owner, w.acme.UID, provider(same))
		must(t, err)
		for _, tt := range []struct{ told, name, display string }{
			{"Zoe\u0308 Müller", "zoe muller", "Zoë Müller"},
			{"Zoë Schmidt", "zoe muller", "Zoë Schmidt"},
			{"", "zoe muller", "Zoë Schmidt"}, // a sign-in without a name keeps the display name
			{"\u202eadmin\n", "zoe muller", "admin"},
		} {
			l, err := w.store.SignIn(t.Context(), resource.SignIn{
				Issuer: p.OIDC.Issuer, Subject: "zoe", Realm: p.Realm, Voucher: p.Voucher(), Name: tt.told, UpdateRoles: true,
				Register: true,
			})
			must(t, err)
			i2, err := w.store.Identity(t.Context(), l.Identity.UID)
			must(t, err)
			if i2.Name != tt.name || i2.DisplayName != tt.display || l.Identity.DisplayName != tt.display {
				t.Errorf("after %q: %q, %q", tt.told, i2.Name, i2.DisplayName)
			}
		}
		before, err := w.store.SignIn(t.Context(),
			resource.SignIn{Issuer: p.OIDC.Issuer, Subject: "zoe", Realm: p.Realm, Voucher: p.Voucher(), Name: "admin"})
		must(t, err)
		again, err := w.store.SignIn(t.Context(),
			resource.SignIn{Issuer: p.OIDC.Issuer, Subject: "zoe", Realm: p.Realm, Voucher: p.Voucher(), Name: "admin"})
		must(t, err)
		if !again.Identity.UpdateTime.Equal(before.Identity.UpdateTime) {
			t.Error("a sign-in that tells nothing new changes the identity")
		}
	})
}
