package iam_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// TestResolvePath checks that callers find resources that they may get, whether or not they see the groups along the
// path. Other resources do not exist for them.
func TestResolvePath(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		web := w.group(w.acme.UID, "web")
		deep := w.group(web.UID, "deep")
		beside := w.group(w.acme.UID, "beside")
		rivalWeb, err := w.CreateGroup(w.rival, string(w.other.UID), resource.Group{Name: "web"})
		must(t, err)
		repo := registry.Repo{UID: web.UID.NewChild(), Name: "app", CreateTime: web.CreateTime, UpdateTime: web.CreateTime}
		must(t, w.store.InsertRepo(t.Context(), repo))
		ci, err := w.CreateIdentity(w.owner, web.UID, person("ci", "ci"))
		must(t, err)
		role, err := w.CreateRole(w.owner, web.UID,
			resource.Role{Name: "puller", Capabilities: resource.CapabilitySet("repo.list")})
		must(t, err)
		idp, err := w.CreateProvider(w.owner, web.UID, provider(func(p *resource.IdentityProvider) { p.Name = "okta" }))
		must(t, err)

		_, editor := w.worker(web.UID, "groups.list", "repo.list", "identity.list", "roles.list", "identity_providers.list")
		_, grouper := w.worker(web.UID, "groups.list")
		_, lister := w.worker(web.UID, "repo.list")
		stranger := w.as(resource.UserUID("https://issuer.example", "nobody"))
		narrow := func(ctx context.Context, n resource.Narrowing) context.Context {
			c, _ := authz.CallerFrom(ctx)
			c.Caps, c.Scopes = n.Caps, n.Scopes
			return authz.WithCaller(t.Context(), c)
		}
		repos := resource.CapabilitySet("repo.list")
		labels := map[string]string{"groups": "group", "repos": "repo", "identities": "identity", "roles": "role"}
		tests := map[string]struct {
			as         context.Context
			kind, path string
			want       resource.UID // "" if nothing may be found
		}{
			"a folder below a hidden organization":  {editor, "groups", "acme/web", web.UID},
			"with a slash before it":                {editor, "groups", "/acme/web", web.UID},
			"below the folder":                      {editor, "groups", "acme/web/deep", deep.UID},
			"a repo":                                {editor, "repos", "acme/web/app", repo.UID},
			"an identity":                           {editor, "identities", "acme/web/ci", ci.UID},
			"a role":                                {editor, "roles", "acme/web/puller", role.UID},
			"a provider":                            {editor, "identity_providers", "acme/web/okta", idp.UID},
			"a managed role":                        {editor, "roles", "viewer", resource.ManagedRoleUID("viewer")},
			"the organization itself":               {editor, "groups", "acme", ""},
			"a folder beside":                       {editor, "groups", "acme/beside", ""},
			"nothing":                               {editor, "groups", "acme/nothing", ""},
			"a repo where there is a folder":        {editor, "repos", "acme/web", ""},
			"another organization's folder":         {editor, "groups", "other/web", ""},
			"a name in capitals":                    {editor, "groups", "acme/Web", ""},
			"a quote":                               {editor, "groups", "acme/web' OR '1'='1", ""},
			"a pattern":                             {editor, "groups", "acme/%", ""},
			"the owner of the organization":         {w.owner, "groups", "acme/web/deep", deep.UID},
			"the owner, elsewhere":                  {w.owner, "groups", "other/web", ""},
			"another organization's owner":          {w.rival, "groups", "acme/web", ""},
			"another organization's owner, a repo":  {w.rival, "repos", "acme/web/app", ""},
			"another organization's owner, at home": {w.rival, "groups", "other/web", rivalWeb.UID},
			"with another kind's capability":        {grouper, "repos", "acme/web/app", ""},
			"with another kind's, a managed role":   {grouper, "roles", "viewer", ""},
			"with the kind's own":                   {lister, "repos", "acme/web/app", repo.UID},
			"a group with the capability for repos": {lister, "groups", "acme/web", ""},
			"a workload, itself":                    {w.as(ci.UID), "identities", "acme/web/ci", ci.UID},
			"a workload, its folder":                {w.as(ci.UID), "groups", "acme/web", ""},
			"a workload, itself, narrowed": {
				narrow(w.as(ci.UID), resource.Narrowing{Caps: &repos}), "identities", "acme/web/ci", "",
			},
			"a stranger": {stranger, "groups", "acme/web", ""},
			"narrowed to a capability that helps": {
				narrow(editor, resource.Narrowing{Caps: &repos}), "repos", "acme/web/app", repo.UID,
			},
			"narrowed to a capability that does not": {
				narrow(editor, resource.Narrowing{Caps: &repos}), "groups", "acme/web", "",
			},
			"narrowed to a folder below": {
				narrow(editor, resource.Narrowing{Scopes: []resource.UID{deep.UID}}), "groups", "acme/web", "",
			},
			"narrowed to a folder below, and asks there": {
				narrow(editor, resource.Narrowing{Scopes: []resource.UID{deep.UID}}), "groups", "acme/web/deep", deep.UID,
			},
			"an owner narrowed to a folder": {
				narrow(w.owner, resource.Narrowing{Scopes: []resource.UID{beside.UID}}), "groups", "acme/web", "",
			},
		}
		for name, tt := range tests {
			got, err := w.ResolvePath(tt.as, tt.kind, tt.path)
			if tt.want != "" {
				if !slices.Equal(got, []resource.UID{tt.want}) || err != nil {
					t.Errorf("%s: %v, %v, want %s", name, got, err, tt.want)
				}
				continue
			}
			// The error for a hidden resource is the error for a resource that does not exist.
			missing := fault.Missing(labels[tt.kind], strings.TrimPrefix(tt.path, "/"))
			if diff := cmp.Diff(missing, err, cmp.AllowUnexported(fault.Error{})); got != nil || diff != "" {
				t.Errorf("%s: %v, %s", name, got, diff)
			}
		}
	})
}

// TestResolvePathOfMany checks that a path returns the first twenty identities of a group with the same name.
func TestResolvePathOfMany(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		var all []resource.UID
		for i := range 22 {
			ci, err := w.CreateIdentity(w.owner, w.acme.UID, person("ci", fmt.Sprint(i)))
			must(t, err)
			all = append(all, ci.UID)
		}
		slices.Sort(all)
		got, err := w.ResolvePath(w.owner, "identities", "acme/ci")
		must(t, err)
		if diff := cmp.Diff(all[:20], got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestResolvePathRefuses checks that the error of an invalid request does not depend on stored resources.
func TestResolvePathRefuses(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		for name, tt := range map[string]struct {
			as         context.Context
			kind, path string
			code       fault.Code
		}{
			"no path":                 {w.owner, "groups", "", fault.InvalidArgument},
			"a slash":                 {w.owner, "groups", "/", fault.InvalidArgument},
			"an empty name":           {w.owner, "groups", "acme//web", fault.InvalidArgument},
			"a slash at the end":      {w.owner, "groups", "acme/", fault.InvalidArgument},
			"a null character":        {w.owner, "groups", "acme/\x00", fault.InvalidArgument},
			"too many names":          {w.owner, "groups", strings.Repeat("a/", store.MaxNames) + "a", fault.InvalidArgument},
			"too long":                {w.owner, "groups", strings.Repeat("a", 1<<16), fault.InvalidArgument},
			"no kind":                 {w.owner, "", "acme", fault.InvalidArgument},
			"a table that is no kind": {w.owner, "accounts", "acme/ann", fault.InvalidArgument},
			"SQL for a kind":          {w.owner, "groups WHERE 1=1 --", "acme", fault.InvalidArgument},
			"nobody":                  {t.Context(), "groups", "acme", fault.Unauthenticated},
		} {
			_, err := w.ResolvePath(tt.as, tt.kind, tt.path)
			want(t, name, err, tt.code)
		}
	})
}
