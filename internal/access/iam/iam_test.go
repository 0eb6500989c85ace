package iam_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A world is a service with two organizations, each with an owner.
type world struct {
	*iam.Service
	t            *testing.T
	store        *storetest.Store
	checker      *authz.Checker
	acme, other  resource.Group
	owner, rival context.Context
}

func newWorld(t *testing.T, s *storetest.Store, cfg iam.Config) *world {
	t.Helper()
	must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
	checker, err := authz.Load(t.Context(), s.DB, slog.New(slog.DiscardHandler))
	must(t, err)
	w := &world{t: t, store: s, checker: checker,
		Service: iam.New(s.DB, checker, page.NewTokens([]byte("key"), time.Now), cfg)}
	w.acme, w.owner = w.found("acme")
	w.other, w.rival = w.found("other")
	return w
}

func (w *world) found(name string) (resource.Group, context.Context) {
	w.t.Helper()
	g, i, err := w.Bootstrap(w.t.Context(), name, resource.OrgUnspecified, person(name+" owner", name))
	must(w.t, err)
	return g, w.as(i.UID)
}

func person(name, subject string) resource.Identity {
	return resource.Identity{Name: name, Relationship: resource.Relationship{
		ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.example", Subject: subject},
	}}
}

func (w *world) as(uid resource.UID) context.Context {
	return authz.WithCaller(w.t.Context(), authz.Caller{Identity: uid, Issued: time.Now()})
}

// worker creates an identity in acme that holds these capabilities on a group.
func (w *world) worker(on resource.UID, capabilities ...string) (resource.UID, context.Context) {
	w.t.Helper()
	name := string("worker " + w.acme.UID.NewChild()[41:])
	i, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
	must(w.t, err)
	r, err := w.CreateRole(
		w.owner, w.acme.UID, resource.Role{Name: name, Capabilities: resource.CapabilitySet(capabilities...)},
	)
	must(w.t, err)
	_, err = w.CreateBinding(w.owner, on, resource.RoleBinding{Identity: i.UID, Role: r.UID})
	must(w.t, err)
	return i.UID, w.as(i.UID)
}

// vouched returns the context of a person who has signed in with a provider of a group.
// The provider has verified the e-mail address.
func (w *world) vouched(t *testing.T, group resource.UID, email string) context.Context {
	t.Helper()
	p, err := w.CreateProvider(w.owner, group, provider(same))
	must(t, err)
	l, err := w.store.SignIn(t.Context(), resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: "me", Realm: p.Realm, Voucher: p.Voucher(), Email: email, EmailVerified: true,
		UpdateRoles: true, Register: true,
	})
	must(t, err)
	return authz.WithCaller(t.Context(), authz.Caller{Identity: l.Identity.UID, Voucher: p.Voucher()})
}

func (w *world) group(parent resource.UID, name string) resource.Group {
	w.t.Helper()
	g, err := w.CreateGroup(w.owner, string(parent), resource.Group{Name: name})
	must(w.t, err)
	return g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, what string, err error, code fault.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: error = %v, want code %d", what, err, code)
	}
}

// each runs f with a new world on every engine.
func each(t *testing.T, cfg iam.Config, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) { f(t, newWorld(t, s, cfg)) })
}

// story runs f with a new world on the engines that storetest.Story chooses.
func story(t *testing.T, cfg iam.Config, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) { f(t, newWorld(t, s, cfg)) })
}

func TestCreateGroup(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		w.group(folder.UID, "deep")
		w.group(w.acme.UID, "twice")
		w.group(folder.UID, "twice")
		tests := map[string]struct {
			as     context.Context
			parent string
			group  resource.Group
			in     resource.UID
			code   error
		}{
			"in a group the caller rules": {w.owner, string(w.acme.UID), resource.Group{Name: "a"}, w.acme.UID, nil},
			"below it":                    {w.owner, string(folder.UID), resource.Group{Name: "a"}, folder.UID, nil},
			"by the last segment":         {w.owner, string(folder.UID[41:]), resource.Group{Name: "b"}, folder.UID, nil},
			"by name":                     {w.owner, "deep", resource.Group{Name: "a"}, "", nil},
			"by a name that two have":     {w.owner, "twice", resource.Group{Name: "a"}, "", fault.InvalidArgument},
			"by a name nobody has":        {w.owner, "nothing", resource.Group{Name: "a"}, "", fault.InvalidArgument},
			"by the name of another's":    {w.rival, "folder", resource.Group{Name: "a"}, "", fault.InvalidArgument},
			"by the segment of another's": {
				w.rival, string(folder.UID[41:]), resource.Group{Name: "a"}, "", fault.InvalidArgument,
			},
			"in another's": {
				w.rival, string(w.acme.UID), resource.Group{Name: "a"}, "", fault.PermissionDenied,
			},
			"where nothing is, in reach": {
				w.owner, string(w.acme.UID.NewChild()), resource.Group{Name: "a"}, "", fault.NotFound,
			},
			"where nothing is, out of it": {
				w.rival, string(w.acme.UID.NewChild()), resource.Group{Name: "a"}, "", fault.PermissionDenied,
			},
			"without a token": {
				t.Context(), string(w.acme.UID), resource.Group{Name: "a"}, "", fault.Unauthenticated,
			},
			"with no name": {w.owner, string(w.acme.UID), resource.Group{}, "", fault.InvalidArgument},
			"with a name that is taken": {
				w.owner, string(w.acme.UID), resource.Group{Name: "folder"}, "", fault.AlreadyExists,
			},
			"verified by oneself": {
				w.owner, string(w.acme.UID), resource.Group{Name: "v", Verified: true}, "", fault.InvalidArgument,
			},
			"of a kind of its own": {
				w.owner, string(w.acme.UID), resource.Group{Name: "k", Kind: 2}, "", fault.InvalidArgument,
			},
			"denied before its name is known": {w.rival, string(w.acme.UID), resource.Group{}, "", fault.PermissionDenied},
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				g, err := w.CreateGroup(tt.as, tt.parent, tt.group)
				if !errors.Is(err, tt.code) {
					t.Fatalf("error = %v, want %v", err, tt.code)
				}
				if err == nil && tt.in != "" && g.UID.Parent() != tt.in {
					t.Errorf("created %s, want a child of %s", g.UID, tt.in)
				}
			})
		}
	})
}

func TestGroupsNestSixteenDeep(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		at := w.acme.UID
		for at.Depth() < 16 {
			at = w.group(at, "g").UID
		}
		_, err := w.CreateGroup(w.owner, string(at), resource.Group{Name: "g"})
		want(t, "level 17", err, fault.InvalidArgument)
		_, err = w.CreateIdentity(w.owner, at, person("i", "i"))
		must(t, err)
	})
}

func TestOrganizations(t *testing.T) {
	tests := map[string]struct {
		who   string
		owner error
		other error
	}{
		"anyone":                 {iam.Anyone, nil, nil},
		"owners":                 {iam.Owners, nil, fault.PermissionDenied},
		"nobody but an operator": {iam.Nobody, fault.PermissionDenied, fault.PermissionDenied},
		"nobody, by default":     {"", fault.PermissionDenied, fault.PermissionDenied},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			story(t, iam.Config{CreateOrganizations: tt.who}, func(t *testing.T, w *world) {
				g, err := w.CreateGroup(w.owner, "", resource.Group{Name: "new", Kind: 2})
				if !errors.Is(err, tt.owner) {
					t.Fatalf("an owner: %v, want %v", err, tt.owner)
				}
				if err == nil {
					sub, err := w.CreateGroup(w.owner, string(g.UID), resource.Group{Name: "sub"})
					if err != nil || sub.Kind != 2 {
						t.Errorf("its creator does not own it, or its kind is lost: %+v, %v", sub, err)
					}
				}
				g, err = w.CreateGroup(w.owner, "/", resource.Group{Name: "as clients write it"})
				if !errors.Is(err, tt.owner) || err == nil && !g.UID.IsRoot() {
					t.Errorf("under /: %+v, %v, want %v", g, err, tt.owner)
				}
				if _, err := w.CreateGroup(w.as(resource.NewRoot()), "", resource.Group{Name: "newer"}); !errors.Is(err, tt.other) {
					t.Errorf("somebody else: %v, want %v", err, tt.other)
				}
			})
		})
	}
}

func TestDeleteOrganization(t *testing.T) {
	story(t, iam.Config{CreateOrganizations: iam.Owners}, func(t *testing.T, w *world) {
		g, err := w.CreateGroup(w.owner, "", resource.Group{Name: "short-lived"})
		must(t, err)
		want(t, "by a stranger", w.DeleteGroup(w.rival, g.UID), fault.PermissionDenied)
		must(t, w.DeleteGroup(w.owner, g.UID))
		want(t, "once it is gone, with its binding", w.DeleteGroup(w.owner, g.UID), fault.PermissionDenied)
		if drifts, err := w.store.Drifts(t.Context()); err != nil || len(drifts) > 0 {
			t.Errorf("drifts = %v, %v", drifts, err)
		}
	})
}

func TestNobodyGrantsWhatTheyDoNotHold(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		folder := w.group(w.acme.UID, "folder")
		_, admin := w.worker(
			folder.UID, "role_bindings.create", "role_bindings.update", "roles.create", "roles.update",
			"identity.update", "groups.list",
		)
		target, _ := w.worker(folder.UID, "groups.list")
		strong, _ := w.worker(w.acme.UID, "groups.delete")
		list := resource.CapabilitySet("groups.list")
		reader, err := w.CreateRole(admin, folder.UID, resource.Role{Name: "reader", Capabilities: list})
		must(t, err)
		killer, err := w.CreateRole(
			admin, folder.UID, resource.Role{Name: "killer", Capabilities: resource.CapabilitySet("groups.delete")},
		)
		must(t, err)

		b, err := w.CreateBinding(admin, folder.UID, resource.RoleBinding{Identity: target, Role: reader.UID})
		must(t, err)
		_, err = w.CreateBinding(admin, folder.UID, resource.RoleBinding{Identity: target, Role: killer.UID})
		want(t, "binding a stronger role", err, fault.PermissionDenied)
		_, err = w.CreateBinding(admin, folder.UID, resource.RoleBinding{Identity: target, Role: resource.OwnerRole})
		want(t, "making an owner", err, fault.PermissionDenied)
		_, err = w.CreateBindings(
			admin, folder.UID,
			[]resource.RoleBinding{{Identity: strong, Role: reader.UID}, {Identity: target, Role: killer.UID}},
		)
		want(t, "one of a batch", err, fault.PermissionDenied)
		_, err = w.UpdateBinding(admin, b.UID, func(b *resource.RoleBinding) error { b.Role = killer.UID; return nil })
		want(t, "changing a binding", err, fault.PermissionDenied)
		_, err = w.UpdateRole(admin, reader.UID, func(r *resource.Role) error {
			r.Capabilities.Add(resource.GroupsDelete)
			return nil
		})
		want(t, "adding to a role", err, fault.PermissionDenied)
		_, err = w.UpdateRole(admin, killer.UID, func(r *resource.Role) error { r.Description = "still"; return nil })
		must(t, err)

		for what, uid := range map[string]resource.UID{"a role as its own holder": resource.OwnerRole,
			"an organization as one": w.acme.UID} {
			_, err = w.CreateBinding(w.owner, folder.UID, resource.RoleBinding{Identity: uid, Role: reader.UID})
			want(t, what, err, fault.InvalidArgument)
			_, err = w.UpdateBinding(w.owner, b.UID, func(b *resource.RoleBinding) error {
				b.Identity = uid
				return nil
			})
			want(t, what+", in an update", err, fault.InvalidArgument)
		}
		_, err = w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: target, Role: reader.UID})
		want(t, "a role from further down", err, fault.InvalidArgument)
		_, err = w.CreateBinding(w.rival, w.other.UID, resource.RoleBinding{Identity: target, Role: reader.UID})
		want(t, "a role from elsewhere", err, fault.InvalidArgument)
	})
}

func TestNobodyBecomesWhoIsStronger(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		strong, _ := w.worker(w.acme.UID, "groups.delete")
		weak, _ := w.worker(w.acme.UID, "groups.list")
		_, admin := w.worker(w.acme.UID, "identity.update", "groups.list")
		take := func(i *resource.Identity) error { i.Relationship.ClaimMatch.Subject = "me"; return nil }
		_, err := w.UpdateIdentity(admin, strong, take)
		want(t, "who may delete groups", err, fault.PermissionDenied)
		_, err = w.UpdateIdentity(admin, strong, func(i *resource.Identity) error {
			i.Description = "fine"
			return nil
		})
		must(t, err)
		_, err = w.UpdateIdentity(admin, weak, take)
		must(t, err)
		got, err := w.GetIdentity(w.owner, strong)
		must(t, err)
		if got.Relationship.ClaimMatch.Subject == "me" {
			t.Error("the refused change was made")
		}
	})
}

// TestExpiredKeysCanBeRenamed checks that an identity whose keys have expired can still be changed, and that a new
// relationship must be valid.
func TestExpiredKeysCanBeRenamed(t *testing.T) {
	clock := time.Now()
	story(t, iam.Config{Now: func() time.Time { return clock }}, func(t *testing.T, w *world) {
		clock = time.Now()
		i, err := w.CreateIdentity(w.owner, w.acme.UID, resource.Identity{Name: "ci", Relationship: resource.Relationship{
			StaticKeys: &resource.StaticKeys{
				Issuer: "https://issuer.example", Subject: "ci", IssuerKeys: keySet,
				ExpirationTime: clock.Add(time.Hour),
			},
		}})
		must(t, err)
		clock = clock.Add(2 * time.Hour)
		got, err := w.UpdateIdentity(w.owner, i.UID, func(i *resource.Identity) error {
			i.Description = "was ci"
			return nil
		})
		must(t, err)
		if got.Description != "was ci" {
			t.Errorf("description = %q", got.Description)
		}
		_, err = w.UpdateIdentity(w.owner, i.UID, func(i *resource.Identity) error { i.Name = "Ci"; return nil })
		want(t, "a bad name", err, fault.InvalidArgument)
		_, err = w.UpdateIdentity(w.owner, i.UID, func(i *resource.Identity) error {
			i.Relationship.StaticKeys.Subject = "cd"
			return nil
		})
		want(t, "other keys that have expired", err, fault.InvalidArgument)
		_, err = w.UpdateIdentity(w.owner, i.UID, func(i *resource.Identity) error {
			i.Relationship.StaticKeys.ExpirationTime = clock.Add(time.Hour)
			return nil
		})
		must(t, err)
	})
}

const keySet = `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`

func TestRevocationIsImmediate(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		uid, worker := w.worker(w.acme.UID, "groups.list")
		_, err := w.GetGroup(worker, w.acme.UID)
		must(t, err)
		bound, err := w.ListBindings(w.owner, resource.Filter{Identity: uid}, page.Params{})
		must(t, err)
		must(t, w.DeleteBinding(w.owner, bound.Items[0].UID))
		_, err = w.GetGroup(worker, w.acme.UID)
		want(t, "after its binding went", err, fault.PermissionDenied)
		must(t, w.DeleteBinding(w.owner, bound.Items[0].UID)) // the second deletion succeeds, too

		uid, worker = w.worker(w.acme.UID, "groups.list", "groups.update")
		roles, err := w.ListBindings(w.owner, resource.Filter{Identity: uid}, page.Params{})
		must(t, err)
		_, err = w.UpdateRole(w.owner, roles.Items[0].Role, func(r *resource.Role) error {
			r.Capabilities = resource.CapabilitySet("groups.list")
			return nil
		})
		must(t, err)
		_, err = w.UpdateGroup(worker, w.acme.UID, func(*resource.Group) error { return nil })
		want(t, "after its role shrank", err, fault.PermissionDenied)
		must(t, w.DeleteIdentity(w.owner, uid))
		_, err = w.GetGroup(worker, w.acme.UID)
		want(t, "after it was deleted", err, fault.PermissionDenied)
	})
}

func TestLastOwner(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		all, err := w.ListBindings(w.owner, resource.Filter{Role: resource.OwnerRole}, page.Params{})
		must(t, err)
		if all.Total != 1 {
			t.Fatalf("%d owners, want 1", all.Total)
		}
		want(t, "removing the last", w.DeleteBinding(w.owner, all.Items[0].UID), fault.FailedPrecondition)
		second, err := w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{
			Identity: resource.UserUID("https://issuer.example", "new"), Role: resource.OwnerRole,
		})
		must(t, err)
		if second.IdentityInfo.Name != "" || second.GroupInfo.Name != "acme" || second.RoleInfo.Name != "owner" {
			t.Errorf("hydrated: %+v", second)
		}
		must(t, w.DeleteBinding(w.owner, all.Items[0].UID))
	})
}

func TestRoles(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		_, reader := w.worker(w.acme.UID, "roles.list")
		_, blind := w.worker(w.acme.UID, "groups.list")
		all, err := w.ListRoles(reader, resource.Filter{Name: "viewer"}, page.Params{})
		must(t, err)
		if len(all.Items) != 1 || len(all.Items[0].Capabilities.All()) != 51 {
			t.Fatalf("viewer = %+v", all.Items)
		}
		none, err := w.ListRoles(blind, resource.Filter{}, page.Params{})
		if err != nil || none.Total != 0 {
			t.Errorf("without roles.list: %d roles, %v", none.Total, err)
		}
		_, err = w.GetRole(reader, all.Items[0].UID)
		must(t, err)
		_, err = w.GetRole(blind, all.Items[0].UID)
		want(t, "getting a managed role without roles.list", err, fault.PermissionDenied)
		_, err = w.UpdateRole(w.owner, all.Items[0].UID, func(*resource.Role) error { return nil })
		want(t, "updating a managed role", err, fault.PermissionDenied)
		want(t, "deleting a managed role", w.DeleteRole(w.owner, all.Items[0].UID), fault.PermissionDenied)
		custom, err := w.CreateRole(
			w.owner, w.acme.UID, resource.Role{Name: "custom", Capabilities: resource.CapabilitySet("groups.list")},
		)
		must(t, err)
		_, err = w.CreateBinding(
			w.owner, w.acme.UID, resource.RoleBinding{Identity: resource.NewRoot(), Role: custom.UID},
		)
		must(t, err)
		want(t, "deleting a bound role", w.DeleteRole(w.owner, custom.UID), fault.FailedPrecondition)
	})
}

func TestOwnIdentity(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		uid, worker := w.worker(w.acme.UID, "groups.list")
		if i, err := w.GetIdentity(worker, uid); err != nil || i.UID != uid {
			t.Errorf("oneself: %v, %v", i, err)
		}
		i, err := w.UpdateMetadata(worker, func(i *resource.Identity) error {
			i.Name, i.Metadata = "somebody else", map[string]any{"jobTitle": "smith"}
			return nil
		})
		if err != nil || i.Name == "somebody else" || i.Metadata["jobTitle"] != "smith" {
			t.Errorf("metadata: %+v, %v", i, err)
		}
		looked, err := w.LookupIdentity(worker, "https://issuer.example", "acme", "")
		if c, _ := authz.CallerFrom(w.owner); err != nil || looked != c.Identity {
			t.Errorf("lookup = %s, %v, want the owner", looked, err)
		}
		_, err = w.LookupIdentity(worker, "", "", "")
		want(t, "looking nobody up", err, fault.InvalidArgument)
	})
}

func TestJoiningByDomain(t *testing.T) {
	story(t, iam.Config{CreateOrganizations: iam.Owners}, func(t *testing.T, w *world) {
		uid, worker := w.worker(w.acme.UID, "groups.list")
		_, err := w.LookupGroup(worker)
		want(t, "without an address", err, fault.NotFound)
		_, err = store.Edit(t.Context(), uid, w.store.Identity, w.store.UpdateIdentity, func(i *resource.Identity) error {
			i.Email = "me@Joined.example"
			return nil
		})
		must(t, err)
		if ok, err := w.CheckEligibility(worker); err != nil || !ok {
			t.Errorf("eligible = %v, %v", ok, err)
		}
		_, err = w.LookupGroup(worker)
		want(t, "without an organization", err, fault.NotFound)
		g, err := w.CreateGroup(w.owner, "", resource.Group{Name: "joined.example"})
		must(t, err)
		_, err = w.LookupGroup(worker)
		want(t, "while it is not verified", err, fault.NotFound)
		_, err = w.Verify(t.Context(), g.UID.NewChild(), true)
		want(t, "a group below", err, fault.InvalidArgument)
		_, err = w.Verify(t.Context(), g.UID, true)
		must(t, err)
		_, err = w.LookupGroup(worker)
		want(t, "by the word of nobody", err, fault.NotFound)
		_, err = w.LookupGroup(w.vouched(t, w.acme.UID, "me@Joined.example"))
		want(t, "by the word of another organization's provider", err, fault.NotFound)
		folder, err := w.CreateGroup(w.owner, string(g.UID), resource.Group{Name: "folder"})
		must(t, err)
		_, err = w.LookupGroup(w.vouched(t, folder.UID, "me@Joined.example"))
		want(t, "by the word of a folder's provider", err, fault.NotFound)
		worker = w.vouched(t, g.UID, "me@Joined.example")
		if found, err := w.LookupGroup(worker); err != nil || found.UID != g.UID {
			t.Errorf("lookup = %+v, %v", found, err)
		}
		rename := func(name string) error {
			_, err := w.UpdateGroup(w.owner, g.UID, func(g *resource.Group) error {
				g.Name, g.Description = name, "ours"
				return nil
			})
			return err
		}
		want(t, "another name for what is verified", rename("other.example"), fault.FailedPrecondition)
		must(t, rename("joined.example"))
		want(t, "asking to join another", w.RequestGroupAccess(worker, w.acme.UID), fault.NotFound)
		must(t, w.RequestGroupAccess(worker, g.UID))
		want(t, "asking again", w.RequestGroupAccess(worker, g.UID), fault.ResourceExhausted)
	})
}

func TestListsShowTheReach(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		a, b := w.group(w.acme.UID, "a"), w.group(w.acme.UID, "b")
		sub := w.group(a.UID, "sub")
		w.group(b.UID, "hidden")
		_, worker := w.worker(a.UID, "groups.list")
		got, err := w.ListGroups(worker, resource.Filter{}, page.Params{OrderBy: "name"})
		must(t, err)
		if got.Total != 2 || len(got.Items) != 2 || got.Items[0].UID != a.UID || got.Items[1].UID != sub.UID {
			t.Errorf("reach = %+v", got)
		}
		got, err = w.ListGroups(
			worker, resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: w.acme.UID}}, page.Params{},
		)
		if err != nil || got.Total != 1 || got.Items[0].UID != a.UID {
			t.Errorf("children of a group out of reach: %+v, %v", got, err)
		}
		_, err = w.ListGroups(t.Context(), resource.Filter{}, page.Params{})
		want(t, "without a token", err, fault.Unauthenticated)
	})
}

func TestBootstrapAgain(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		for range 2 { // the second round adds the same owner again
			g, i, err := w.Bootstrap(t.Context(), "acme", resource.OrgUnspecified, person("second", "second"))
			must(t, err)
			if g.UID != w.acme.UID {
				t.Fatalf("made another organization, %s", g.UID)
			}
			_, err = w.GetGroup(w.as(i.UID), g.UID)
			must(t, err)
		}
		owners, err := w.ListBindings(w.owner, resource.Filter{Role: resource.OwnerRole}, page.Params{})
		if err != nil || owners.Total != 2 {
			t.Errorf("%d owners, %v, want 2", owners.Total, err)
		}
	})
}
