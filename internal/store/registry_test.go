package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/gcdb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A shelf is an organization with a repo in a folder.
type shelf struct {
	*storetest.Store
	org, folder resource.Group
	repo        registry.Repo
}

func newShelf(t *testing.T, s *storetest.Store) shelf {
	t.Helper()
	org := addGroup(t, s, "", "org")
	folder := addGroup(t, s, org.UID, "folder")
	return shelf{s, org, folder, addRepo(t, s, folder.UID, "app")}
}

func (s shelf) everywhere() store.Reach { return store.Reach{Under: []resource.UID{s.org.UID}} }

// names returns the names of the tags that a filter selects, and checks the total.
func (s shelf) names(t *testing.T, f resource.Filter, order string) []string {
	t.Helper()
	var names []string
	p := page.Request{Size: 2, Order: page.Order{Field: order}} // small pages, so that the list needs cursors
	for {
		got, err := s.Tags(t.Context(), s.everywhere(), f, p)
		must(t, err)
		for _, g := range got.Items {
			names = append(names, g.Name)
		}
		if got.Last == nil {
			if got.Total != int64(len(names)) {
				t.Errorf("total = %d, tags %v", got.Total, names)
			}
			return names
		}
		p.After = got.Last
	}
}

var registryPromises = map[string]func(t *testing.T, s shelf){
	"a repo keeps what it was given": func(t *testing.T, s shelf) {
		r := registry.Repo{
			UID: s.org.UID.NewChild(), Name: "full", Description: "ünï", Tier: 3, Bundles: []string{"fips"},
			Aliases:    []string{"a:b"},
			ActiveTags: []string{"latest"}, Sync: &registry.SyncConfig{Source: "x",
				ExpirationTime: epoch}, CreateTime: epoch, UpdateTime: epoch.Add(time.Second),
		}
		must(t, s.InsertRepo(t.Context(), r))
		wantSame(t, s.Repo, r.UID, r)
		changed, err := store.Edit(t.Context(), r.UID, s.Repo, s.UpdateRepo, func(r *registry.Repo) error {
			r.Tier, r.Sync = 1, nil
			return nil
		})
		must(t, err)
		wantSame(t, s.Repo, r.UID, changed)
		must(t, s.UpdateRepoReadme(t.Context(), registry.RepoReadme{UID: r.UID, Content: "# hi"}))
		readme, err := s.RepoReadme(t.Context(), r.UID)
		if err != nil || readme.Content != "# hi" {
			t.Errorf("readme = %v, %v", readme, err)
		}
	},
	"repos of a group have different names": func(t *testing.T, s shelf) {
		wantFault(t, s.InsertRepo(t.Context(), newRepo(s.folder.UID, "app")), fault.AlreadyExists,
			fault.Resource{Type: "repo", Name: "app"})
		other := addRepo(t, s.Store, s.folder.UID, "other")
		_, err := store.Edit(t.Context(), other.UID, s.Repo, s.UpdateRepo, func(r *registry.Repo) error {
			r.Name = "app"
			return nil
		})
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "repo", Name: "app"})
		addRepo(t, s.Store, s.org.UID, "app")
	},
	"a repo's group must be there": func(t *testing.T, s shelf) {
		wantFault(t, s.InsertRepo(t.Context(), newRepo(s.org.UID.NewChild(), "x")), fault.NotFound, fault.Resource{})
		_, err := s.PutManifest(t.Context(), registrydb.RepoRef{Group: s.org.UID.NewChild(), Name: "x", Create: true},
			newIndex("i"), nil)
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a deployment is noted once, changes, and goes with its repo": func(t *testing.T, s shelf) {
		d := newDeployment(s.repo.UID)
		must(t, s.InsertDeployment(t.Context(), d))
		wantSame(t, s.Deployment, d.UID, d)
		wantFault(t, s.InsertDeployment(t.Context(), d), fault.AlreadyExists,
			fault.Resource{Type: "deployment", Name: string(d.UID)})
		wantFault(t, s.InsertDeployment(t.Context(), newDeployment(s.org.UID.NewChild())), fault.NotFound, fault.Resource{})
		changed, err := s.UpdateDeployment(t.Context(), d.UID, func(d *registry.Deployment) error {
			d.Charts[0].Repo = "oci://x.test"
			return nil
		})
		must(t, err)
		wantSame(t, s.Deployment, d.UID, changed)
		no := errors.New("no")
		if _, err := s.UpdateDeployment(t.Context(), d.UID, func(d *registry.Deployment) error {
			d.Charts = nil
			return no
		}); !errors.Is(err, no) {
			t.Errorf("error = %v", err)
		}
		wantSame(t, s.Deployment, d.UID, changed)
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		_, err = s.Deployment(t.Context(), d.UID)
		wantFault(t, err, fault.NotFound, fault.Resource{})
		_, err = s.UpdateDeployment(t.Context(), d.UID, func(*registry.Deployment) error { return nil })
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a change of nothing writes nothing": func(t *testing.T, s shelf) {
		ctx := t.Context()
		d := newDeployment(s.repo.UID)
		must(t, s.InsertDeployment(ctx, d))
		must(t, s.UpdateRepoReadme(ctx, registry.RepoReadme{UID: s.repo.UID, Content: "# hi"}))
		open := func(r *registry.Settings) error { r.Public = true; return nil }
		set, err := s.UpdateRegistrySettings(ctx, s.org.UID, open)
		must(t, err)
		repo, err := s.Repo(ctx, s.repo.UID)
		must(t, err)
		before := len(events(t, s.Store))
		_, de := s.UpdateDeployment(ctx, d.UID, func(d *registry.Deployment) error {
			d.Charts = slices.Clone(d.Charts)
			return nil
		})
		_, re := store.Edit(ctx, repo.UID, s.Repo, s.UpdateRepo, func(r *registry.Repo) error { r.Name = "app"; return nil })
		same, se := s.UpdateRegistrySettings(ctx, s.org.UID, open)
		must(t, errors.Join(de, re, se, s.UpdateRepoReadme(ctx, registry.RepoReadme{UID: s.repo.UID, Content: "# hi"})))
		wantSame(t, s.Deployment, d.UID, d)
		wantSame(t, s.Repo, repo.UID, repo)
		if diff := cmp.Diff(set, same); diff != "" {
			t.Error(diff)
		}
		if n := len(events(t, s.Store)); n != before {
			t.Errorf("%d events more", n-before)
		}
		// the folder inherits the same settings, and now has its own
		_, err = s.UpdateRegistrySettings(ctx, s.folder.UID, open)
		must(t, err)
		if n := len(events(t, s.Store)); n != before+1 {
			t.Errorf("%d events more for settings of its own", n-before)
		}
	},
	"a list of tags at their end has no others": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "new", "one")
		for _, name := range []string{"old", "older-20200101"} {
			_, err := s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: name, Digest: m.Digest,
				Deprecated: true}, nil)
			must(t, err)
		}
		if got := s.names(t, resource.Filter{Deprecated: true}, "name"); !slices.Equal(got, []string{"old"}) {
			t.Errorf("tags = %v", got)
		}
		both := s.names(t, resource.Filter{Deprecated: true, Classes: []resource.TagClass{resource.DateTag}}, "update_time")
		slices.Sort(both) // both tags may have the same update time
		if !slices.Equal(both, []string{"old", "older-20200101"}) {
			t.Errorf("tags = %v", both)
		}
	},
	"what is about a manifest is found, the newest first": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		var want []string
		for _, word := range []string{"a", "b", "c"} {
			about := newIndex(word)
			about.Subject = m.Digest
			push(t, s.Store, s.repo, about)
			want = append([]string{about.Digest}, want...)
		}
		got, err := s.ManifestsAbout(t.Context(), s.repo.UID, m.Digest, 1<<20, 2)
		must(t, err)
		if len(got) != 2 || got[0].PushTime.Before(got[1].PushTime) || len(got[0].Body) == 0 {
			t.Errorf("about = %v", got)
		}
		all, err := s.ManifestsAbout(t.Context(), s.repo.UID, m.Digest, 1<<20, 9)
		must(t, err)
		for _, a := range all {
			if !slices.Contains(want, a.Digest) {
				t.Errorf("%s is about it", a.Digest)
			}
		}
		if none, err := s.ManifestsAbout(t.Context(), s.repo.UID, "", 1<<20, 9); err != nil || len(none) != 0 ||
			len(all) != 3 {
			t.Errorf("about nothing: %v, %v; about it %d", none, err, len(all))
		}
		digests, err := s.ManifestDigests(t.Context(), s.repo.UID, "", 9)
		if err != nil || !slices.Equal(digests, []string{m.Digest}) {
			t.Errorf("what is about nothing: %v, %v", digests, err)
		}
		if rest, err := s.ManifestDigests(t.Context(), s.repo.UID, m.Digest, 9); err != nil || len(rest) != 0 {
			t.Errorf("after the last: %v, %v", rest, err)
		}
	},
	"a manifest in two repos is one, and is found in those in reach": func(t *testing.T, s shelf) {
		other := addRepo(t, s.Store, s.org.UID, "other")
		m := addImage(t, s.Store, s.repo, "v1", "one")
		addImage(t, s.Store, other, "v1", "one")
		addImage(t, s.Store, other, "v2", "two")
		for place, want := range map[resource.UID]int64{s.org.UID: 2, s.folder.UID: 1, s.repo.UID: 1, other.UID: 2,
			s.org.UID.NewChild(): 0} {
			if n, err := s.CountManifests(t.Context(), place); err != nil || n != want {
				t.Errorf("manifests in %s: %d, %v, want %d", place, n, err, want)
			}
		}
		want := []resource.UID{s.repo.UID, other.UID}
		slices.Sort(want)
		if got, err := s.ReposWith(t.Context(), s.everywhere(), m.Digest, 9); err != nil || !slices.Equal(got, want) {
			t.Errorf("repos = %v, %v", got, err)
		}
		if got, err := s.ReposWith(t.Context(), store.Reach{Under: []resource.UID{s.folder.UID}}, m.Digest, 9); err != nil ||
			!slices.Equal(got, []resource.UID{s.repo.UID}) {
			t.Errorf("repos below the folder = %v, %v", got, err)
		}
		if got, err := s.ReposWith(t.Context(), s.everywhere(), m.Digest, 1); err != nil || len(got) != 1 {
			t.Errorf("one repo = %v, %v", got, err)
		}
	},
	"followers are counted in reach": func(t *testing.T, s shelf) {
		for i, group := range []resource.UID{s.org.UID, s.folder.UID} {
			r := newRepo(group, fmt.Sprintf("follower%d", i))
			r.Sync = &registry.SyncConfig{Source: string(s.repo.UID)}
			must(t, s.InsertRepo(t.Context(), r))
		}
		for root, want := range map[resource.UID]int64{s.org.UID: 2, s.folder.UID: 1} {
			if n, err := s.Followers(t.Context(), store.Reach{Under: []resource.UID{root}}, s.repo.UID); err != nil ||
				n != want {
				t.Errorf("followers below %s: %d, %v, want %d", root, n, err, want)
			}
		}
		if n, err := s.Followers(t.Context(), s.everywhere(), s.folder.UID); err != nil || n != 0 {
			t.Errorf("followers of another: %d, %v", n, err)
		}
	},
	"a group with repos stays, and says so": func(t *testing.T, s shelf) {
		err := s.DeleteGroup(t.Context(), s.folder.UID, "")
		wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		if want := "Precondition failed: cannot delete group with child repos"; err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		must(t, s.DeleteGroup(t.Context(), s.folder.UID, ""))
	},
	"a repo is found by the names above it": func(t *testing.T, s shelf) {
		at, err := s.RepoAt(t.Context(), []string{"org", "folder", "app"})
		if err != nil || at != s.repo.UID {
			t.Errorf("repo = %s, %v", at, err)
		}
		name, err := s.RepoPath(t.Context(), s.repo.UID)
		if err != nil || name != "org/folder/app" {
			t.Errorf("path = %s, %v", name, err)
		}
		group, err := s.GroupAt(t.Context(), []string{"org", "folder"})
		if err != nil || group != s.folder.UID {
			t.Errorf("group = %s, %v", group, err)
		}
		for _, names := range [][]string{{"app"}, {"org", "app"}, {"folder", "app"}, {"org", "folder", "x"},
			{"org", "folder", "app", "app"}, {}, slices.Repeat([]string{"org"}, 900)} {
			_, err := s.RepoAt(t.Context(), names)
			wantFault(t, err, fault.NotFound, fault.Resource{})
		}
	},
	"a push makes the repo if it may": func(t *testing.T, s shelf) {
		to := registrydb.RepoRef{Group: s.org.UID, Name: "fresh"}
		_, err := s.PutManifest(t.Context(), to, newIndex("i"), []string{"v1"})
		wantFault(t, err, fault.NotFound, fault.Resource{})
		to.Create = true
		uid, err := s.PutManifest(t.Context(), to, newIndex("i"), []string{"v1"})
		must(t, err)
		r, err := s.Repo(t.Context(), uid)
		if err != nil || r.Name != "fresh" || uid.Parent() != s.org.UID {
			t.Errorf("repo = %v, %v", r, err)
		}
	},
	"a push is all or nothing": func(t *testing.T, s shelf) {
		before := everything(t, s.Store)
		_, err := s.PutManifest(t.Context(), registrydb.RepoRef{Group: s.org.UID, Name: "fresh", Create: true},
			newImage("one"), []string{"v1"})
		lacking, ok := errors.AsType[*registrydb.MissingError](err)
		if !ok || len(lacking.Needs) != 1 || lacking.Needs[0].Digest != digest("one") {
			t.Errorf("error = %v", err)
		}
		if diff := cmp.Diff(before, everything(t, s.Store)); diff != "" {
			t.Error(diff)
		}
	},
	"a manifest names all that its repo lacks, and may need a thing twice": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "", "one")
		need := func(word string, manifest bool) registry.Need {
			return registry.Need{Digest: digest(word), Manifest: manifest}
		}
		m := newIndex("many", "one")
		m.Needs = append(m.Needs, need("one", false), need("x", false), need("one", false), need("y", true),
			need("one", true))
		_, err := s.PutManifest(t.Context(), ref(s.repo), m, nil)
		lacking, ok := errors.AsType[*registrydb.MissingError](err)
		if want := []registry.Need{need("x", false), need("y", true), need("one", true)}; !ok ||
			!cmp.Equal(lacking.Needs, want) {
			t.Errorf("error = %v, want one of %v", err, want)
		}
		m.Needs = slices.DeleteFunc(m.Needs, func(n registry.Need) bool { return slices.Contains(lacking.Needs, n) })
		push(t, s.Store, s.repo, m)
		wantFault(t, s.DeleteManifest(t.Context(), s.repo.UID, newImage("one").Digest, nil), fault.FailedPrecondition,
			fault.Resource{})
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, newImage("one").Digest, nil))
	},
	"what a manifest may lack it may lack": func(t *testing.T, s shelf) {
		m := newImage("elsewhere")
		m.Needs[0].Optional = true
		push(t, s.Store, s.repo, m)
	},
	"a manifest is found by digest and by tag": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		for _, by := range []string{"v1", m.Digest} {
			got, err := s.Manifest(t.Context(), s.repo.UID, by)
			must(t, err)
			stat, err := s.StatManifest(t.Context(), s.repo.UID, by)
			must(t, err)
			if got.Digest != m.Digest || string(got.Body) != "one" || got.MediaType != m.MediaType || stat.Digest != m.Digest ||
				stat.Size != 3 || stat.Body != nil {
				t.Errorf("%s is %v, %v", by, got, stat)
			}
		}
		for _, by := range []string{"v2", digest("x")} {
			_, err := s.Manifest(t.Context(), s.repo.UID, by)
			wantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: by})
		}
	},
	"a manifest is found by the names of its repo": func(t *testing.T, s shelf) {
		m, names := addImage(t, s.Store, s.repo, "v1", "one"), []string{"org", "folder", "app"}
		for _, by := range []string{"v1", m.Digest} {
			repo, got, err := s.ManifestAt(t.Context(), names, by, true)
			must(t, err)
			at, stat, err := s.ManifestAt(t.Context(), names, by, false)
			must(t, err)
			if want, err := s.Manifest(t.Context(), s.repo.UID, by); err != nil || repo != s.repo.UID || !cmp.Equal(got, want) {
				t.Errorf("%s is %v in %s, want %v, %v", by, got, repo, want, err)
			}
			if want, err := s.StatManifest(t.Context(), s.repo.UID, by); err != nil || at != s.repo.UID ||
				!cmp.Equal(stat, want) {
				t.Errorf("%s is %v in %s, want %v, %v", by, stat, at, want, err)
			}
		}
		for _, by := range []string{"v2", digest("x")} {
			repo, _, err := s.ManifestAt(t.Context(), names, by, true)
			wantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: by})
			if repo != s.repo.UID {
				t.Errorf("repo of %s = %q", by, repo)
			}
		}
		for _, names := range [][]string{{"app"}, {"org", "app"}, {"org", "folder", "x"}, {},
			slices.Repeat([]string{"org"}, 900)} {
			repo, _, err := s.ManifestAt(t.Context(), names, "v1", true)
			wantFault(t, err, fault.NotFound, fault.Resource{Type: "repo", Name: strings.Join(names, "/")})
			if repo != "" {
				t.Errorf("repo at %q = %q", names, repo)
			}
		}
	},
	"a tag that has moved, or gone, is read so at once": func(t *testing.T, s shelf) {
		names := []string{"org", "folder", "app"}
		at := func() (string, error) {
			_, m, err := s.ManifestAt(t.Context(), names, "v1", true)
			return string(m.Body), err
		}
		for _, word := range []string{"one", "two", "one"} {
			addImage(t, s.Store, s.repo, "v1", word)
			if got, err := at(); err != nil || got != word {
				t.Errorf("v1 is %q, %v, want %q", got, err, word)
			}
		}
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		_, err := at()
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a tag has a history, and one that stays leaves no trace": func(t *testing.T, s shelf) {
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: alice})
		one, two := addImage(t, s.Store, s.repo, "", "one"), addImage(t, s.Store, s.repo, "", "two")
		for _, m := range []registry.Manifest{one, one, two} {
			_, err := s.PutManifest(ctx, ref(s.repo), m, []string{"v1"})
			must(t, err)
		}
		g, err := s.TagNamed(ctx, s.repo.UID, "v1")
		must(t, err)
		must(t, s.DeleteTag(ctx, g.UID, nil))
		got, err := s.TagHistory(ctx, s.repo.UID, "v1", page.Request{Size: 2})
		must(t, err)
		if got.Total != 3 || got.Last == nil || len(got.Items) != 2 {
			t.Fatalf("history = %+v", got)
		}
		rest, err := s.TagHistory(ctx, s.repo.UID, "", page.Request{Size: 2, After: got.Last})
		must(t, err)
		var digests []string
		for _, m := range append(got.Items, rest.Items...) {
			digests = append(digests, m.Digest)
			if m.Actor.Subject != alice || m.Repo != s.repo.UID || m.Name != "v1" {
				t.Errorf("move = %+v", m)
			}
		}
		if want := []string{"", two.Digest, one.Digest}; !slices.Equal(digests, want) {
			t.Errorf("digests = %v, want %v", digests, want)
		}
	},
	"a tag is put where a manifest is": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "", "one")
		g := registry.Tag{UID: s.repo.UID.NewChild(), Name: "v1", Digest: m.Digest, Deprecated: true,
			Bundles: []string{"base"}}
		put, err := s.PutTag(t.Context(), g, always)
		must(t, err)
		if put.UID != g.UID {
			t.Errorf("uid = %s", put.UID)
		}
		wantSame(t, s.Tag, g.UID, put)
		again, err := s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "v1", Digest: m.Digest}, always)
		if err != nil || again.UID != g.UID || again.Deprecated {
			t.Errorf("tag = %v, %v", again, err)
		}
		_, err = s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "v2", Digest: digest("x")}, nil)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: digest("x")})
		_, err = s.PutTag(t.Context(), registry.Tag{UID: s.org.UID.NewChild().NewChild(), Name: "v2", Digest: m.Digest}, nil)
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a tag without a digest stays where it points": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		before, err := s.TagNamed(t.Context(), s.repo.UID, "v1")
		must(t, err)
		put, err := s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "v1", Bundles: []string{"base"}},
			always)
		if err != nil || put.UID != before.UID || put.Digest != m.Digest || len(put.Bundles) != 1 {
			t.Errorf("tag = %+v, %v", put, err)
		}
		wantSame(t, s.Tag, put.UID, put)
		history, err := s.TagHistory(t.Context(), s.repo.UID, "v1", page.Request{Size: 5})
		if err != nil || len(history.Items) != 1 {
			t.Errorf("history = %+v, %v", history.Items, err)
		}
		_, err = s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "v2"}, nil)
		wantFault(t, err, fault.InvalidArgument, fault.Resource{})
	},
	"a frozen tag neither moves nor goes": func(t *testing.T, s shelf) {
		one := addImage(t, s.Store, s.repo, "v1", "one")
		addBlob(t, s.Store, s.repo, "two")
		g, err := s.TagNamed(t.Context(), s.repo.UID, "v1")
		must(t, err)
		_, err = s.UpdateRegistrySettings(t.Context(), s.org.UID, func(set *registry.Settings) error {
			set.ImmutableTags = true
			return nil
		})
		must(t, err)
		_, moved := s.PutManifest(t.Context(), ref(s.repo), newImage("two"), []string{"v1"})
		for _, err := range []error{
			moved, s.DeleteTag(t.Context(), g.UID, always), s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", always),
			s.DeleteManifest(t.Context(), s.repo.UID, one.Digest, always),
		} {
			wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
			if fault.From(err).Unmet[0].Subject != "TAG_IMMUTABLE" {
				t.Errorf("error = %v", err)
			}
		}
		_, err = s.PutManifest(t.Context(), ref(s.repo), one, []string{"v1", "v2"})
		must(t, err)
	},
	"a list hides the tags that tools make": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "", "one")
		push(t, s.Store, s.repo, newImage("one"), "v1", "latest", "sha256-abc", "1.2-20240506", "1.2-r3", "other",
			"sha512-x", "a-r1")
		all := []resource.TagClass{resource.ReferrerTag, resource.DateTag, resource.EpochTag}
		for _, order := range []string{"name", "uid", "create_time", "update_time"} {
			for name, tt := range map[string]struct {
				f    resource.Filter
				want []string
			}{
				"plain": {resource.Filter{}, []string{"latest", "other", "v1"}},
				"dates": {resource.Filter{Classes: all[1:2]}, []string{"1.2-20240506", "latest", "other", "v1"}},
				"all": {resource.Filter{Classes: all},
					[]string{"1.2-20240506", "1.2-r3", "a-r1", "latest", "other", "sha256-abc", "sha512-x", "v1"}},
				"in a repo": {resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: s.repo.UID}, Classes: all[:1]},
					[]string{"latest", "other", "sha256-abc", "sha512-x", "v1"}},
				"by name":    {resource.Filter{Name: "v1"}, []string{"v1"}},
				"hidden":     {resource.Filter{Name: "a-r1"}, nil},
				"by digest":  {resource.Filter{Digest: newImage("one").Digest}, []string{"latest", "other", "v1"}},
				"since":      {resource.Filter{UpdatedSince: time.Now().Add(time.Hour)}, nil},
				"since then": {resource.Filter{UpdatedSince: epoch}, []string{"latest", "other", "v1"}},
			} {
				got := s.names(t, tt.f, order)
				slices.Sort(got)
				if !slices.Equal(got, tt.want) {
					t.Errorf("%s by %s = %v, want %v", name, order, got, tt.want)
				}
			}
		}
	},
	"tags of the protocol are in the order of their bytes": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "", "one")
		push(t, s.Store, s.repo, newImage("one"), "b", "B", "a", "_", "sha256-x")
		first, err := s.TagNames(t.Context(), s.repo.UID, "", 3)
		must(t, err)
		rest, err := s.TagNames(t.Context(), s.repo.UID, first[2], 3)
		must(t, err)
		if got := strings.Join(append(first, rest...), " "); got != "B _ a b sha256-x" {
			t.Errorf("tags = %s", got)
		}
	},
	"a manifest that goes takes its tags along": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "", "one")
		push(t, s.Store, s.repo, m, "v1", "v1-r1")
		push(t, s.Store, s.repo, newIndex("i", "one"), "index")
		wantFault(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil), fault.FailedPrecondition, fault.Resource{})
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, newIndex("i").Digest, nil))
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		wantFault(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil), fault.NotFound, fault.Resource{})
		if got := s.names(t, resource.Filter{Classes: []resource.TagClass{resource.EpochTag}}, "name"); got != nil {
			t.Errorf("tags left: %v", got)
		}
	},
	"a manifest's blob stays": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "v1", "one")
		wantFault(t, s.DeleteBlob(t.Context(), s.repo.UID, digest("one")), fault.FailedPrecondition, fault.Resource{})
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, newImage("one").Digest, nil))
		must(t, s.DeleteBlob(t.Context(), s.repo.UID, digest("one")))
		wantFault(t, s.DeleteBlob(t.Context(), s.repo.UID, digest("one")), fault.NotFound, fault.Resource{})
	},
	"the same bytes are stored once, and read through a repo that has them": func(t *testing.T, s shelf) {
		other := addRepo(t, s.Store, s.org.UID, "other")
		addBlob(t, s.Store, s.repo, "one")
		_, err := s.Blob(t.Context(), other.UID, digest("one"))
		wantFault(t, err, fault.NotFound, fault.Resource{})
		kept, err := s.AddBlob(t.Context(), ref(other), registry.Upload{}, "",
			registry.Blob{Digest: digest("one"), Size: 3, Path: "/second"})
		if err != nil || kept {
			t.Errorf("kept = %v, %v", kept, err)
		}
		b, err := s.Blob(t.Context(), other.UID, digest("one"))
		if err != nil || b.Path == "/second" || b.Size != 3 {
			t.Errorf("blob = %v, %v", b, err)
		}
	},
	"a blob is mounted from a repo that has it": func(t *testing.T, s shelf) {
		other := addRepo(t, s.Store, s.org.UID, "other")
		addBlob(t, s.Store, s.repo, "one")
		wantFault(t, s.MountBlob(t.Context(), s.repo.UID, ref(other), digest("two")), fault.NotFound, fault.Resource{})
		wantFault(t, s.MountBlob(t.Context(), other.UID, ref(s.repo), digest("one")), fault.NotFound, fault.Resource{})
		must(t, s.MountBlob(t.Context(), s.repo.UID, ref(other), digest("one")))
		holders, err := s.BlobHolders(t.Context(), digest("one"), 5)
		if err != nil || len(holders) != 2 {
			t.Errorf("holders = %v, %v", holders, err)
		}
	},
	"a rotten blob is hidden until it has other bytes": func(t *testing.T, s shelf) {
		ctx, other := t.Context(), addRepo(t, s.Store, s.org.UID, "other")
		addImage(t, s.Store, s.repo, "v1", "one")
		stored, err := s.StoredBlob(ctx, digest("one"))
		must(t, err)
		elsewhere := stored
		elsewhere.Path = "/elsewhere"
		mark := func(b registry.Blob, want bool) {
			t.Helper()
			if news, err := s.MarkRotten(ctx, b, s.Now()); news != want || err != nil {
				t.Errorf("marked: %v, %v", news, err)
			}
		}
		mark(elsewhere, false) // another file replaced this one, so the mark has no effect
		mark(stored, true)
		mark(stored, false)
		_, err = s.Blob(ctx, s.repo.UID, digest("one"))
		wantFault(t, err, fault.NotFound, fault.Resource{})
		wantFault(t, s.MountBlob(ctx, s.repo.UID, ref(other), digest("one")), fault.NotFound, fault.Resource{})
		if n, err := s.RottenBlobs(ctx); n != 1 || err != nil {
			t.Errorf("%d are rotten, %v", n, err)
		}
		if all, err := s.BlobsAfter(ctx, "", 10); err != nil || !slices.ContainsFunc(all, func(b registry.Blob) bool {
			return b.Rotten && b.Path == stored.Path
		}) {
			t.Errorf("blobs = %v, %v", all, err)
		}
		if news, err := s.MarkSound(ctx, elsewhere); news || err != nil {
			t.Errorf("sound elsewhere: %v, %v", news, err)
		}
		if news, err := s.MarkSound(ctx, stored); !news || err != nil {
			t.Errorf("sound: %v, %v", news, err)
		}
		mark(stored, true)
		bigger := registry.Blob{Digest: digest("one"), Size: stored.Size + 1, Path: "/bigger"}
		if used, err := s.ReplaceBlob(ctx, bigger); used || err != nil {
			t.Errorf("replaced by another size: %v, %v", used, err)
		}
		again := registry.Blob{Digest: digest("one"), Size: stored.Size, Path: "/again"}
		if used, err := s.AddBlob(ctx, ref(other), registry.Upload{}, "", again); !used || err != nil {
			t.Errorf("pushed again: used = %v, %v", used, err)
		}
		for _, repo := range []resource.UID{s.repo.UID, other.UID} {
			if b, err := s.Blob(ctx, repo, digest("one")); err != nil || b.Path != "/again" {
				t.Errorf("blob = %v, %v", b, err)
			}
		}
		if used, err := s.ReplaceBlob(ctx, elsewhere); used || err != nil {
			t.Errorf("a sound one was replaced: %v, %v", used, err)
		}
		unnamed, err := s.UnreferencedPaths(ctx, map[string]string{stored.Path: "x", "/again": "y"})
		if err != nil || !slices.Equal(unnamed, []string{stored.Path}) {
			t.Errorf("nothing refers to %v, %v", unnamed, err)
		}
	},
	"the uploads that have ended": func(t *testing.T, s shelf) {
		u := addUpload(t, s.Store, s.folder.UID, "app")
		ended, err := s.EndedUploads(t.Context(), map[string]string{"/a": u.ID, "/b": "none"})
		if err != nil || !slices.Equal(ended, []string{"/b"}) {
			t.Errorf("ended = %v, %v", ended, err)
		}
	},
	"an upload has one holder at a time": func(t *testing.T, s shelf) {
		u := addUpload(t, s.Store, s.folder.UID, "app")
		interrupted := false
		hold := func(holder string, until time.Duration) (err error) {
			_, interrupted, err = s.HoldUpload(t.Context(), u.Group, u.Repo, u.ID, holder, s.Now().Add(until))
			return err
		}
		must(t, hold("a", time.Hour))
		wantFault(t, hold("b", time.Hour), fault.Aborted, fault.Resource{})
		if interrupted {
			t.Error("nobody was interrupted")
		}
		must(t, s.RenewUpload(t.Context(), u.ID, "a", s.Now().Add(-time.Second))) // ends the lease of a
		must(t, hold("b", time.Hour))
		if !interrupted {
			t.Error("a was interrupted")
		}
		wantFault(t, s.RenewUpload(t.Context(), u.ID, "a", s.Now().Add(time.Hour)), fault.NotFound, fault.Resource{})
		u.Size, u.State = 7, []byte{1}
		wantFault(t, s.SaveUpload(t.Context(), u, "a"), fault.NotFound, fault.Resource{})
		must(t, s.SaveUpload(t.Context(), u, "b"))
		got, err := s.Upload(t.Context(), u.Group, u.Repo, u.ID)
		if diff := cmp.Diff(u, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
		must(t, hold("c", time.Hour))
		must(t, s.ReleaseUpload(t.Context(), u.ID, "c"))
		wantFault(t, s.RenewUpload(t.Context(), u.ID, "c", s.Now().Add(time.Hour)), fault.NotFound, fault.Resource{})
		must(t, hold("d", time.Hour))
		if interrupted {
			t.Error("nobody was interrupted, c has let go")
		}
		_, err = s.AddBlob(t.Context(), ref(s.repo), u, "c", registry.Blob{Digest: digest("x"), Path: "/x"})
		wantFault(t, err, fault.Aborted, fault.Resource{})
		_, err = s.AddBlob(t.Context(), ref(s.repo), u, "d", registry.Blob{Digest: digest("x"), Path: "/x"})
		must(t, err)
		wantFault(t, s.DeleteUpload(t.Context(), u.ID), fault.NotFound, fault.Resource{})
	},
	"an upload is found in its repo only": func(t *testing.T, s shelf) {
		u := addUpload(t, s.Store, s.folder.UID, "app")
		_, err := s.Upload(t.Context(), s.org.UID, "app", u.ID)
		wantFault(t, err, fault.NotFound, fault.Resource{})
		_, err = s.Upload(t.Context(), s.folder.UID, "other", u.ID)
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"an upload that rests is dropped, one that is held is not": func(t *testing.T, s shelf) {
		u, v := addUpload(t, s.Store, s.folder.UID, "app"), addUpload(t, s.Store, s.folder.UID, "app")
		_, _, err := s.HoldUpload(t.Context(), v.Group, v.Repo, v.ID, "a", s.Now().Add(time.Hour))
		must(t, err)
		stale, err := s.StaleUploads(t.Context(), "", s.Now().Add(-time.Hour), 10)
		if err != nil || len(stale) != 0 {
			t.Errorf("stale = %v, %v", stale, err)
		}
		later := s.Now().Add(time.Minute)
		for _, tt := range []struct {
			id   string
			want bool
		}{{u.ID, true}, {u.ID, false}, {v.ID, false}} {
			if dropped, err := s.DropUpload(t.Context(), tt.id, later); err != nil || dropped != tt.want {
				t.Errorf("dropped = %v, %v; want %v", dropped, err, tt.want)
			}
		}
	},
	"what a repo does not need is unlinked after the grace, unless somebody asks": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "v1", "needed")
		addBlob(t, s.Store, s.repo, "idle")
		addBlob(t, s.Store, s.repo, "asked")
		now := s.Now().Add(time.Hour)
		idle, next, err := s.IdleBlobs(t.Context(), nil, now, 10)
		if err != nil || next != nil || len(idle) != 2 {
			t.Fatalf("idle = %v, %v, %v", idle, next, err)
		}
		must(t, s.MarkIdle(t.Context(), idle, now))
		if _, took, err := s.UnlinkIdle(t.Context(), now.Add(-time.Second), 10); err != nil || took != 0 {
			t.Errorf("took %d within the grace, %v", took, err)
		}
		_, err = s.Blob(t.Context(), s.repo.UID, digest("asked"))
		must(t, err)
		if _, took, err := s.UnlinkIdle(t.Context(), now, 10); err != nil || took != 1 {
			t.Errorf("took %d, %v", took, err)
		}
		_, err = s.Blob(t.Context(), s.repo.UID, digest("idle"))
		wantFault(t, err, fault.NotFound, fault.Resource{})
		for _, word := range []string{"needed", "asked"} {
			_, err := s.Blob(t.Context(), s.repo.UID, digest(word))
			must(t, err)
		}
		unheld, err := s.UnheldBlobs(t.Context(), "", 10)
		if err != nil || len(unheld) != 1 || unheld[0].Digest != digest("idle") {
			t.Fatalf("unheld = %v, %v", unheld, err)
		}
		gone, err := s.PurgeUnheld(t.Context(), append(unheld, registry.Blob{Digest: digest("needed")}))
		if err != nil || !cmp.Equal(gone, unheld) {
			t.Errorf("gone = %v, %v", gone, err)
		}
	},
	"what came to be needed is not unlinked": func(t *testing.T, s shelf) {
		addBlob(t, s.Store, s.repo, "one")
		now := s.Now().Add(time.Hour)
		idle, _, err := s.IdleBlobs(t.Context(), nil, now, 10)
		must(t, err)
		must(t, s.MarkIdle(t.Context(), idle, now))
		push(t, s.Store, s.repo, newImage("one"), "v1")
		if _, took, err := s.UnlinkIdle(t.Context(), now, 10); err != nil || took != 0 {
			t.Errorf("took %d, %v", took, err)
		}
	},
	"the walk through what repos hold goes on where it stopped": func(t *testing.T, s shelf) {
		for i := range 7 {
			addBlob(t, s.Store, s.repo, fmt.Sprint(i))
		}
		n := 0
		var from *gcdb.RepoBlob
		for {
			idle, next, err := s.IdleBlobs(t.Context(), from, s.Now().Add(time.Hour), 3)
			must(t, err)
			n += len(idle)
			if next == nil {
				break
			}
			from = next
		}
		if n != 7 {
			t.Errorf("%d blobs, want 7", n)
		}
	},
	"a file is named by a blob or an upload": func(t *testing.T, s shelf) {
		u := addUpload(t, s.Store, s.folder.UID, "app")
		addBlob(t, s.Store, s.repo, "one")
		b, err := s.Blob(t.Context(), s.repo.UID, digest("one"))
		must(t, err)
		got, err := s.UnreferencedPaths(t.Context(), map[string]string{b.Path: "x", "/u": u.ID, "/lost": "lost"})
		if err != nil || !slices.Equal(got, []string{"/lost"}) {
			t.Errorf("unnamed = %v, %v", got, err)
		}
	},
	"a repo that goes takes everything along": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "v1", "one")
		push(t, s.Store, s.repo, newIndex("i", "one"), "index", "x-r1", "sha256-x")
		must(t, s.InsertPulls(t.Context(), []registry.Pull{
			{UID: s.repo.UID.NewChild(), Digest: digest("one"), Time: epoch}, {UID: s.repo.UID.NewChild(),
				Digest: digest("one"), Time: epoch, Push: true},
		}))
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		wantFault(t, s.DeleteRepo(t.Context(), s.repo.UID), fault.NotFound, fault.Resource{})
		unheld, err := s.UnheldBlobs(t.Context(), "", 10)
		if err != nil || len(unheld) != 1 {
			t.Errorf("unheld = %v, %v", unheld, err)
		}
		must(t, s.InsertPulls(t.Context(), []registry.Pull{{UID: s.repo.UID.NewChild(), Digest: digest("one"), Time: epoch}}))
	},
	"referrers are listed by their subject": func(t *testing.T, s shelf) {
		for _, word := range []string{"a", "b", "c"} {
			m := newIndex(word)
			m.Subject, m.ArtifactType, m.Annotations = digest("subject"), "type/"+word, `{"k":"v"}`
			push(t, s.Store, s.repo, m)
		}
		push(t, s.Store, s.repo, newIndex("other"))
		all, err := s.Referrers(t.Context(), s.repo.UID, digest("subject"), "", "", 10)
		if err != nil || len(all) != 3 || all[0].Annotations != `{"k":"v"}` {
			t.Fatalf("referrers = %v, %v", all, err)
		}
		rest, err := s.Referrers(t.Context(), s.repo.UID, digest("subject"), "", all[0].Digest, 10)
		if err != nil || len(rest) != 2 {
			t.Errorf("after the first: %v, %v", rest, err)
		}
		one, err := s.Referrers(t.Context(), s.repo.UID, digest("subject"), "type/b", "", 10)
		if err != nil || len(one) != 1 {
			t.Errorf("of one type: %v, %v", one, err)
		}
	},
	"the settings of the nearest group count": func(t *testing.T, s shelf) {
		set := func(group resource.UID, change func(*registry.Settings)) {
			_, err := s.UpdateRegistrySettings(t.Context(), group, func(r *registry.Settings) error { change(r); return nil })
			must(t, err)
		}
		want := func(group, whose resource.UID, public, frozen bool) {
			t.Helper()
			got, err := s.RegistrySettings(t.Context(), group)
			if err != nil || got.UID != whose || got.Public != public || got.Frozen("v1") != frozen || got.Frozen("nightly-1") {
				t.Errorf("settings = %+v, %v", got, err)
			}
		}
		want(s.folder.UID, "", false, false)
		set(s.org.UID, func(r *registry.Settings) { r.Public, r.ImmutableExcept = true, []string{"nightly-*"} })
		want(s.folder.UID, s.org.UID, true, false)
		set(s.folder.UID, func(r *registry.Settings) { r.ImmutableTags = true })
		want(s.folder.UID, s.folder.UID, true, true)
		want(s.org.UID, s.org.UID, true, false)
		astray := s.org.UID.NewChild() + s.folder.UID[len(s.folder.UID)-17:]
		want(astray, s.org.UID, true, false)
		must(t, s.DeleteRegistrySettings(t.Context(), astray))
		want(s.folder.UID, s.folder.UID, true, true)
		must(t, s.DeleteRegistrySettings(t.Context(), s.folder.UID))
		must(t, s.DeleteRegistrySettings(t.Context(), s.folder.UID))
		want(s.folder.UID, s.org.UID, true, false)
		set(s.folder.UID, func(*registry.Settings) {})
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		must(t, s.DeleteGroup(t.Context(), s.folder.UID, ""))
	},
	"pulls are found by repo, digest, identity and direction, and pruned by age": func(t *testing.T, s shelf) {
		other := addRepo(t, s.Store, s.org.UID, "other")
		var all []registry.Pull
		for i, r := range []registry.Repo{s.repo, s.repo, other} {
			all = append(all, registry.Pull{
				UID: r.UID.NewChild(), Push: i == 0, Digest: digest(fmt.Sprint(i % 2)), Tag: "v1", Identity: []resource.UID{alice,
					bob, ""}[i],
				Remote: "::1", Agent: "crane", Time: epoch.Add(time.Duration(i) * time.Hour), More: int64(i),
			})
		}
		must(t, s.InsertPulls(t.Context(), append(all, registry.Pull{UID: s.org.UID.NewChild().NewChild()})))
		newest := page.Request{Size: 10, Order: page.Order{Field: "create_time", Desc: true}}
		for name, tt := range map[string]struct {
			f    resource.Filter
			want []registry.Pull
		}{
			"all":      {resource.Filter{}, []registry.Pull{all[2], all[1], all[0]}},
			"repo":     {resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: s.repo.UID}}, []registry.Pull{all[1], all[0]}},
			"digest":   {resource.Filter{Digest: digest("0")}, []registry.Pull{all[2], all[0]}},
			"identity": {resource.Filter{Identity: bob}, []registry.Pull{all[1]}},
			"pulls":    {resource.Filter{Direction: resource.Pulled}, []registry.Pull{all[2], all[1]}},
			"pushes":   {resource.Filter{Direction: resource.Pushed}, []registry.Pull{all[0]}},
			"pulls of a repo": {
				resource.Filter{Direction: resource.Pulled,
					UIDs: resource.UIDFilter{ChildrenOf: s.repo.UID}}, []registry.Pull{all[1]},
			},
			"pushes of a digest": {resource.Filter{Direction: resource.Pushed, Digest: digest("0")}, []registry.Pull{all[0]}},
			"pushes of another":  {resource.Filter{Direction: resource.Pushed, Digest: digest("1")}, nil},
		} {
			got, err := s.Pulls(t.Context(), s.everywhere(), tt.f, newest)
			if diff := cmp.Diff(tt.want, got.Items); err != nil || diff != "" || got.Total != int64(len(tt.want)) {
				t.Errorf("%s: %v, total %d\n%s", name, err, got.Total, diff)
			}
		}
		if n, err := s.PrunePulls(t.Context(), epoch.Add(time.Hour), 10); err != nil || n != 1 {
			t.Errorf("pruned %d, %v", n, err)
		}
	},
	"pulls of an image are counted, up to a hundred records": func(t *testing.T, s shelf) {
		other := addRepo(t, s.Store, s.org.UID, "other")
		var all []registry.Pull
		add := func(repo registry.Repo, of string, push bool, after time.Duration, more int64) {
			all = append(all, registry.Pull{UID: repo.UID.NewChild(), Push: push, Digest: digest(of), Time: epoch.Add(after),
				More: more})
		}
		add(s.repo, "one", false, 0, 0)
		add(s.repo, "one", false, 2*time.Hour, 3)
		add(s.repo, "one", false, time.Hour, 0)
		add(s.repo, "one", true, 9*time.Hour, 0)
		add(other, "one", false, 9*time.Hour, 0)
		add(s.repo, "two", false, 9*time.Hour, 0)
		for i := range 120 {
			add(s.repo, "many", false, time.Duration(i)*time.Minute, 0)
		}
		must(t, s.InsertPulls(t.Context(), all))
		for _, tt := range []struct {
			of    string
			since time.Duration
			want  int64
			last  time.Time
		}{
			{"one", 0, 6, epoch.Add(2 * time.Hour)}, {"one", time.Hour, 5, epoch.Add(2 * time.Hour)}, {"one", 3 * time.Hour, 0,
				time.Time{}},
			{"none", 0, 0, time.Time{}}, {"many", 0, 100, epoch.Add(119 * time.Minute)},
		} {
			if n, last, err := s.CountPulls(t.Context(), s.repo.UID, digest(tt.of), epoch.Add(tt.since)); err != nil ||
				n != tt.want || !last.Equal(tt.last) {
				t.Errorf("%s since %s: %d, last %s, %v; want %d, %s", tt.of, tt.since, n, last, err, tt.want, tt.last)
			}
		}
	},
	"every change of the registry is an event": func(t *testing.T, s shelf) {
		n := len(events(t, s.Store))
		addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, newImage("one").Digest, nil))
		must(t, s.InsertPulls(t.Context(), []registry.Pull{{UID: s.repo.UID.NewChild(), Digest: digest("one"), Time: epoch}}))
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		var got []string
		for _, e := range events(t, s.Store)[n:] {
			got = append(got, string(e.Type)+" "+map[resource.UID]string{s.org.UID: "org", s.folder.UID: "folder"}[e.Group])
		}
		want := []string{
			"platform.registry.tag.created.v1 org", "push.v1 folder", "platform.registry.tag.deleted.v1 org",
			"pull.v1 folder", "platform.registry.repo.deleted.v1 folder",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
}

func TestRegistryPromises(t *testing.T) {
	for name, promise := range registryPromises {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, s *storetest.Store) {
				shelf := newShelf(t, s)
				promise(t, shelf)
				wantExact(t, s)
			})
		})
	}
}

// registryDuels contains pairs of conflicting writes to a repo.
var registryDuels = map[string]func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel{
	"push what a blob is needed for and delete the blob": func(t *testing.T, s *storetest.Store, r registry.Repo,
		word string) duel {
		addBlob(t, s, r, word)
		return duel{pushing(t, s, r, newImage(word)), func() error {
			return s.DeleteBlob(t.Context(), r.UID, digest(word))
		}, oneOrLacking}
	},
	"push what a blob is needed for and collect the blob": func(t *testing.T, s *storetest.Store, r registry.Repo,
		word string) duel {
		addBlob(t, s, r, word)
		now := s.Now().Add(time.Hour)
		idle, _, err := s.IdleBlobs(t.Context(), nil, now, 1000)
		must(t, err)
		must(t, s.MarkIdle(t.Context(), idle, now))
		return duel{
			pushing(t, s, r, newImage(word)),
			func() error { _, _, err := s.UnlinkIdle(t.Context(), now, 1000); return err },
			func(a, b error) error { // if the push succeeded, its blob exists
				_, lacking := errors.AsType[*registrydb.MissingError](a)
				_, err := s.Blob(t.Context(), r.UID, digest(word))
				if b != nil || a == nil && err != nil || a != nil && !lacking {
					return fmt.Errorf("errors = %v, %v and %v", a, b, err)
				}
				return nil
			},
		}
	},
	"push an index and delete a child": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		addImage(t, s, r, "", word)
		return duel{pushing(t, s, r, newIndex(word, word)), func() error {
			return s.DeleteManifest(t.Context(), r.UID, newImage(word).Digest, nil)
		}, oneOrLacking}
	},
	"tag and delete the manifest": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		m := addImage(t, s, r, "", word)
		return duel{
			func() error {
				_, err := s.PutTag(t.Context(), registry.Tag{UID: r.UID.NewChild(), Name: word, Digest: m.Digest}, nil)
				return err
			},
			func() error { return s.DeleteManifest(t.Context(), r.UID, m.Digest, nil) },
			func(a, b error) error { // the tag is deleted with its manifest, or there is no manifest to tag
				_, err := s.TagNamed(t.Context(), r.UID, word)
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) || !errors.Is(err, fault.NotFound) {
					return fmt.Errorf("errors = %v, %v and %v", a, b, err)
				}
				return nil
			},
		}
	},
	"push a blob again and forget it": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		addBlob(t, s, r, word)
		must(t, s.DeleteBlob(t.Context(), r.UID, digest(word)))
		unheld, err := s.UnheldBlobs(t.Context(), "", 1000)
		must(t, err)
		var gone []registry.Blob
		return duel{
			func() error {
				_, err := s.AddBlob(t.Context(), ref(r), registry.Upload{}, "",
					registry.Blob{Digest: digest(word), Path: "/again/" + word})
				return err
			},
			func() (err error) { gone, err = s.PurgeUnheld(t.Context(), unheld); return err },
			func(a, b error) error { // in both orders, the repo has a file that was not removed
				got, err := s.Blob(t.Context(), r.UID, digest(word))
				removed := slices.ContainsFunc(gone, func(g registry.Blob) bool { return g.Path == got.Path })
				if a != nil || b != nil || err != nil || removed {
					return fmt.Errorf("errors = %v, %v, %v; removed: %v", a, b, err, removed)
				}
				return nil
			},
		}
	},
	"two first pushes": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		to := registrydb.RepoRef{Group: r.UID.Parent(), Name: "new-" + word, Create: true}
		first := func(word string) func() error {
			return func() error {
				_, err := s.PutManifest(t.Context(), to, newIndex(word), []string{"v1"})
				return err
			}
		}
		return duel{first("a"), first("b"), bothWell}
	},
	"a first push and the end of the group": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		g := addGroup(t, s, r.UID.Parent(), "g-"+word)
		return duel{
			func() error {
				_, err := s.PutManifest(t.Context(), registrydb.RepoRef{Group: g.UID, Name: "new", Create: true}, newIndex(word),
					nil)
				return err
			},
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"save an upload and the end of the group": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		g := addGroup(t, s, r.UID.Parent(), "g-"+word)
		u := addUpload(t, s, g.UID, "app")
		u.Size = 100
		return duel{
			func() error { return s.SaveUpload(t.Context(), u, "") },
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			func(a, b error) error { // in both orders, the bytes of the upload are no longer counted
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				return nil
			},
		}
	},
	"end an upload and the end of the group": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		g := addGroup(t, s, r.UID.Parent(), "g-"+word)
		u := addUpload(t, s, g.UID, "app")
		u.Size = 100
		must(t, s.SaveUpload(t.Context(), u, ""))
		return duel{
			func() error {
				b := registry.Blob{Digest: digest(word), Size: 100, Path: "/" + word}
				_, err := s.AddBlob(t.Context(), registrydb.RepoRef{Group: g.UID, Name: "app", Create: true}, u, "", b)
				return err
			},
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"push a tag that is there and delete it": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		addImage(t, s, r, word, word)
		return duel{
			func() error {
				_, err := s.PutManifest(t.Context(), ref(r), newIndex("of "+word), []string{word})
				return err
			},
			func() error { return s.DeleteTagNamed(t.Context(), r.UID, word, nil) },
			bothWell,
		}
	},
	"two pushes of one tag": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		to := func(m registry.Manifest) func() error {
			return func() error { _, err := s.PutManifest(t.Context(), ref(r), m, []string{word}); return err }
		}
		return duel{to(newIndex("a " + word)), to(newIndex("b " + word)), func(a, b error) error {
			moves, err := s.TagHistory(t.Context(), r.UID, word, page.Request{Size: 10})
			if a != nil || b != nil || err != nil || moves.Total != 2 {
				return fmt.Errorf("errors = %v, %v and %v; %d moves", a, b, err, moves.Total)
			}
			return nil
		}}
	},
	"push and delete the repo": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		own := addRepo(t, s, r.UID.Parent(), "own-"+word)
		return duel{
			pushing(t, s, own, newIndex(word)),
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			func(a, b error) error {
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				return nil
			},
		}
	},
}

func pushing(t *testing.T, s *storetest.Store, r registry.Repo, m registry.Manifest) func() error {
	return func() error {
		_, err := s.PutManifest(t.Context(), ref(r), m, []string{"v1"})
		return err
	}
}

func bothWell(a, b error) error { return errors.Join(a, b) }

// oneOrLacking checks that either the push came first and its references stay, or its error
// names the missing references.
func oneOrLacking(a, b error) error {
	_, lacking := errors.AsType[*registrydb.MissingError](a)
	if a == nil && errors.Is(b, fault.FailedPrecondition) || b == nil && lacking {
		return nil
	}
	return fmt.Errorf("errors = %v and %v", a, b)
}

func TestRegistryDuels(t *testing.T) {
	const rounds = 25
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		for name, prepare := range registryDuels {
			t.Run(name, func(t *testing.T) {
				r := addRepo(t, s, addGroup(t, s, org.UID, strings.ReplaceAll(name, " ", "-")).UID, "app")
				for i := range rounds {
					d := prepare(t, s, r, fmt.Sprintf("%d-%s", i, strings.ReplaceAll(name, " ", "-")))
					a, b := atOnce(d.a, d.b)
					if err := d.ok(a, b); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		wantExact(t, s)
	})
}
