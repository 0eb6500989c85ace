package iam_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestCountChildren checks that a kind is counted only in groups in which the caller may list it.
func TestCountChildren(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		web := w.group(w.acme.UID, "web")
		deep := w.group(web.UID, "deep")
		_, err := w.CreateIdentity(w.owner, deep.UID, person("ci", "ci"))
		must(t, err)
		i, lister := w.worker(web.UID, "groups.list")
		role, err := w.CreateRole(w.owner, w.acme.UID,
			resource.Role{Name: "below", Capabilities: resource.CapabilitySet("identity.list")})
		must(t, err)
		_, err = w.CreateBinding(w.owner, deep.UID, resource.RoleBinding{Identity: i, Role: role.UID})
		must(t, err)
		in, children, err := w.CountChildren(lister, web.UID, page.Params{})
		must(t, err)
		if diff := cmp.Diff(iam.Counts{Groups: &iam.Count{Direct: 1, All: 1}}, in); diff != "" {
			t.Errorf("in the group: %s", diff)
		}
		if len(children.Items) != 1 || children.Items[0].UID != deep.UID {
			t.Fatalf("children: %+v", children.Items)
		}
		if diff := cmp.Diff(iam.Counts{Groups: &iam.Count{}, Identities: &iam.Count{Direct: 1, All: 1}},
			children.Items[0].Counts); diff != "" {
			t.Errorf("in the group below: %s", diff)
		}
		for name, tt := range map[string]struct {
			as   context.Context
			uid  resource.UID
			code fault.Code
		}{
			"nobody":                    {t.Context(), web.UID, fault.Unauthenticated},
			"above":                     {lister, w.acme.UID, fault.PermissionDenied},
			"another organization":      {w.rival, web.UID, fault.PermissionDenied},
			"nothing, elsewhere":        {w.rival, web.UID.NewChild(), fault.PermissionDenied},
			"nothing":                   {w.owner, web.UID.NewChild(), fault.NotFound},
			"another's segment at home": {w.rival, w.other.UID + web.UID[len(w.acme.UID):], fault.NotFound},
		} {
			_, _, err := w.CountChildren(tt.as, tt.uid, page.Params{})
			want(t, name, err, tt.code)
		}
	})
}

// TestPeopleByEmail checks that callers find exactly the people whom they would see in a binding.
func TestPeopleByEmail(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		const email = "zoe@people.example"
		folder := w.group(w.acme.UID, "folder")
		zoe := w.vouched(t, w.acme.UID, email)
		c, err := authz.RequireCaller(zoe)
		must(t, err)
		_, reader := w.worker(folder.UID, "identity.list", "role_bindings.list")
		_, halfReader := w.worker(folder.UID, "identity.list")
		found := func(as context.Context, text string) int {
			t.Helper()
			got, err := w.PeopleByEmail(as, text, 5)
			must(t, err)
			for _, i := range got {
				if i.UID != c.Identity {
					t.Errorf("found %+v", i)
				}
			}
			return len(got)
		}
		if n := found(reader, email); n != 0 {
			t.Errorf("before there is a binding: %d", n)
		}
		_, err = w.CreateBinding(w.owner, folder.UID, resource.RoleBinding{Identity: c.Identity, Role: viewer})
		must(t, err)
		_, err = w.CreateBinding(w.rival, w.other.UID, resource.RoleBinding{Identity: c.Identity, Role: viewer})
		must(t, err)
		for name, tt := range map[string]struct {
			as   context.Context
			text string
			n    int
		}{
			"where the binding is":       {reader, email, 1},
			"from above":                 {w.owner, email, 1},
			"without role_bindings.list": {halfReader, email, 0},
			"who bound them unasked":     {w.rival, email, 0},
			"somebody else":              {w.as(resource.NewRoot()), email, 0},
			"in capitals":                {w.owner, "ZOE@people.example", 0},
			"the beginning":              {w.owner, "zoe@", 0},
			"nothing":                    {w.owner, "", 0},
		} {
			if n := found(tt.as, tt.text); n != tt.n {
				t.Errorf("%s: %d, want %d", name, n, tt.n)
			}
		}
		_, err = w.PeopleByEmail(t.Context(), email, 5)
		want(t, "nobody", err, fault.Unauthenticated)
	})
}
