package iam_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestPeople checks that a person is found by every name, and only by callers who would see the person in a role
// binding. A caller cannot learn that there is a person by guessing a name or an address.
func TestPeople(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		const email = "Zoe@people.example"
		folder := w.group(w.acme.UID, "folder")
		c, err := authz.RequireCaller(w.vouched(t, w.acme.UID, email))
		must(t, err)
		_, err = w.CreateBinding(w.owner, folder.UID, resource.RoleBinding{Identity: c.Identity, Role: viewer})
		must(t, err)
		_, err = w.CreateBinding(w.rival, w.other.UID, resource.RoleBinding{Identity: c.Identity, Role: viewer})
		must(t, err)
		_, reader := w.worker(folder.UID, "identity.list", "role_bindings.list")
		_, halfReader := w.worker(folder.UID, "identity.list")
		for name, tt := range map[string]struct {
			as    context.Context
			text  string
			found bool // by exactly this text
			part  bool // by a part of a name or address
		}{
			"by address":                 {reader, email, true, true},
			"in other capitals":          {reader, "zOE@people.EXAMPLE", true, true},
			"by the part before the @":   {reader, "zoe", true, true},
			"by a part":                  {reader, "oe@peo", false, true},
			"from above":                 {w.owner, email, true, true},
			"by the UID":                 {reader, string(c.Identity), false, true},
			"without role_bindings.list": {halfReader, email, false, false},
			"of another organization":    {w.rival, email, false, false},
			"a stranger":                 {w.as(resource.NewRoot()), email, false, false},
		} {
			isZoe := func(p iam.Person) bool { return p.UID == c.Identity }
			called, err := w.PeopleCalled(tt.as, tt.text)
			must(t, err)
			if got := slices.ContainsFunc(called, isZoe); got != tt.found {
				t.Errorf("%s: found exactly: %t, want %t", name, got, tt.found)
			}
			listed, err := w.ListPeople(tt.as, tt.text, page.Params{})
			must(t, err)
			if got := slices.ContainsFunc(listed.Items, isZoe); got != tt.part {
				t.Errorf("%s: listed: %t, want %t", name, got, tt.part)
			}
			uids, err := w.ResolvePath(tt.as, "identities", tt.text)
			if tt.found && (err != nil || !slices.Contains(uids, c.Identity)) {
				t.Errorf("%s: resolved to %v (%v)", name, uids, err)
			}
			if !tt.part {
				want(t, name, err, fault.NotFound)
			}
		}
		_, err = w.ListPeople(t.Context(), "", page.Params{})
		want(t, "nobody", err, fault.Unauthenticated)
	})
}
