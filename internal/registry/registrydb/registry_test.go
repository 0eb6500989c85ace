package registrydb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/gcdb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

func everywhere(s registrytest.Shelf) store.Reach {
	return store.Reach{Under: []resource.UID{s.Org.UID}}
}

// names returns the names of the tags that a filter selects, and checks the total.
func names(t *testing.T, s registrytest.Shelf, f resource.Filter, order string) []string {
	t.Helper()
	var names []string
	p := page.Request{Size: 2, Order: page.Order{Field: order}} // small pages, so that the list needs cursors
	for {
		got, err := s.Tags(t.Context(), everywhere(s), f, p)
		testkit.Must(t, err)
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

var registryPromises = map[string]func(t *testing.T, s registrytest.Shelf){
	"a repo keeps what it was given": func(t *testing.T, s registrytest.Shelf) {
		r := registry.Repo{
			UID: s.Org.UID.NewChild(), Name: "full", Description: "ünï", Tier: 3, Bundles: []string{"fips"},
			Aliases:    []string{"a:b"},
			ActiveTags: []string{"latest"}, Sync: &registry.SyncConfig{Source: "x",
				ExpirationTime: iamtest.Epoch}, CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch.Add(time.Second),
		}
		testkit.Must(t, s.InsertRepo(t.Context(), r))
		testkit.WantSame(t, s.Repo, r.UID, r)
		changed, err := store.Edit(t.Context(), r.UID, s.Repo, s.UpdateRepo, func(r *registry.Repo) error {
			r.Tier, r.Sync = 1, nil
			return nil
		})
		testkit.Must(t, err)
		testkit.WantSame(t, s.Repo, r.UID, changed)
		testkit.Must(t, s.UpdateRepoReadme(t.Context(), registry.RepoReadme{UID: r.UID, Content: "# hi"}))
		readme, err := s.RepoReadme(t.Context(), r.UID)
		if err != nil || readme.Content != "# hi" {
			t.Errorf("readme = %v, %v", readme, err)
		}
	},
	"repos of a group have different names": func(t *testing.T, s registrytest.Shelf) {
		testkit.WantFault(t, s.InsertRepo(t.Context(), registrytest.NewRepo(s.Folder.UID, "app")), fault.AlreadyExists,
			fault.Resource{Type: "repo", Name: "app"})
		other := registrytest.AddRepo(t, s.RegistryStore, s.Folder.UID, "other")
		_, err := store.Edit(t.Context(), other.UID, s.Repo, s.UpdateRepo, func(r *registry.Repo) error {
			r.Name = "app"
			return nil
		})
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "repo", Name: "app"})
		registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "app")
	},
	"a repo's group must be there": func(t *testing.T, s registrytest.Shelf) {
		testkit.WantFault(t, s.InsertRepo(t.Context(), registrytest.NewRepo(s.Org.UID.NewChild(), "x")), fault.NotFound,
			fault.Resource{})
		_, err := s.PutManifest(t.Context(), registrydb.RepoRef{Group: s.Org.UID.NewChild(), Name: "x", Create: true},
			registrytest.NewIndex("i"), nil)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a deployment is noted once, changes, and goes with its repo": func(t *testing.T, s registrytest.Shelf) {
		d := registrytest.NewDeployment(s.App.UID)
		testkit.Must(t, s.InsertDeployment(t.Context(), d))
		testkit.WantSame(t, s.Deployment, d.UID, d)
		testkit.WantFault(t, s.InsertDeployment(t.Context(), d), fault.AlreadyExists,
			fault.Resource{Type: "deployment", Name: string(d.UID)})
		testkit.WantFault(t, s.InsertDeployment(t.Context(), registrytest.NewDeployment(s.Org.UID.NewChild())),
			fault.NotFound,
			fault.Resource{})
		changed, err := s.UpdateDeployment(t.Context(), d.UID, func(d *registry.Deployment) error {
			d.Charts[0].Repo = "oci://x.test"
			return nil
		})
		testkit.Must(t, err)
		testkit.WantSame(t, s.Deployment, d.UID, changed)
		no := errors.New("no")
		if _, err := s.UpdateDeployment(t.Context(), d.UID, func(d *registry.Deployment) error {
			d.Charts = nil
			return no
		}); !errors.Is(err, no) {
			t.Errorf("error = %v", err)
		}
		testkit.WantSame(t, s.Deployment, d.UID, changed)
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		_, err = s.Deployment(t.Context(), d.UID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		_, err = s.UpdateDeployment(t.Context(), d.UID, func(*registry.Deployment) error { return nil })
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a change of nothing writes nothing": func(t *testing.T, s registrytest.Shelf) {
		ctx := t.Context()
		d := registrytest.NewDeployment(s.App.UID)
		testkit.Must(t, s.InsertDeployment(ctx, d))
		testkit.Must(t, s.UpdateRepoReadme(ctx, registry.RepoReadme{UID: s.App.UID, Content: "# hi"}))
		open := func(r *registry.Settings) error { r.Public = true; return nil }
		set, err := s.UpdateRegistrySettings(ctx, s.Org.UID, open)
		testkit.Must(t, err)
		repo, err := s.Repo(ctx, s.App.UID)
		testkit.Must(t, err)
		before := len(dbtest.Events(t, s.DB))
		_, de := s.UpdateDeployment(ctx, d.UID, func(d *registry.Deployment) error {
			d.Charts = slices.Clone(d.Charts)
			return nil
		})
		_, re := store.Edit(ctx, repo.UID, s.Repo, s.UpdateRepo, func(r *registry.Repo) error { r.Name = "app"; return nil })
		same, se := s.UpdateRegistrySettings(ctx, s.Org.UID, open)
		testkit.Must(t, errors.Join(de, re, se, s.UpdateRepoReadme(ctx,
			registry.RepoReadme{UID: s.App.UID, Content: "# hi"})))
		testkit.WantSame(t, s.Deployment, d.UID, d)
		testkit.WantSame(t, s.Repo, repo.UID, repo)
		if diff := cmp.Diff(set, same); diff != "" {
			t.Error(diff)
		}
		if n := len(dbtest.Events(t, s.DB)); n != before {
			t.Errorf("%d events more", n-before)
		}
		// the folder inherits the same settings, and now has its own
		_, err = s.UpdateRegistrySettings(ctx, s.Folder.UID, open)
		testkit.Must(t, err)
		if n := len(dbtest.Events(t, s.DB)); n != before+1 {
			t.Errorf("%d events more for settings of its own", n-before)
		}
	},
	"a list of tags at their end has no others": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "new", "one")
		for _, name := range []string{"old", "older-20200101"} {
			_, err := s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: name, Digest: m.Digest,
				Deprecated: true}, nil)
			testkit.Must(t, err)
		}
		if got := names(t, s, resource.Filter{Deprecated: true}, "name"); !slices.Equal(got, []string{"old"}) {
			t.Errorf("tags = %v", got)
		}
		both := names(t, s, resource.Filter{Deprecated: true, Classes: []resource.TagClass{resource.DateTag}}, "update_time")
		slices.Sort(both) // both tags may have the same update time
		if !slices.Equal(both, []string{"old", "older-20200101"}) {
			t.Errorf("tags = %v", both)
		}
	},
	"what is about a manifest is found, the newest first": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		var want []string
		for _, word := range []string{"a", "b", "c"} {
			about := registrytest.NewIndex(word)
			about.Subject = m.Digest
			registrytest.Push(t, s.RegistryStore, s.App, about)
			want = append([]string{about.Digest}, want...)
		}
		got, err := s.ManifestsAbout(t.Context(), s.App.UID, m.Digest, 1<<20, 2)
		testkit.Must(t, err)
		if len(got) != 2 || got[0].PushTime.Before(got[1].PushTime) || len(got[0].Body) == 0 {
			t.Errorf("about = %v", got)
		}
		all, err := s.ManifestsAbout(t.Context(), s.App.UID, m.Digest, 1<<20, 9)
		testkit.Must(t, err)
		for _, a := range all {
			if !slices.Contains(want, a.Digest) {
				t.Errorf("%s is about it", a.Digest)
			}
		}
		if none, err := s.ManifestsAbout(t.Context(), s.App.UID, "", 1<<20, 9); err != nil || len(none) != 0 ||
			len(all) != 3 {
			t.Errorf("about nothing: %v, %v; about it %d", none, err, len(all))
		}
		digests, err := s.ManifestDigests(t.Context(), s.App.UID, "", 9)
		if err != nil || !slices.Equal(digests, []string{m.Digest}) {
			t.Errorf("what is about nothing: %v, %v", digests, err)
		}
		if rest, err := s.ManifestDigests(t.Context(), s.App.UID, m.Digest, 9); err != nil || len(rest) != 0 {
			t.Errorf("after the last: %v, %v", rest, err)
		}
	},
	"a manifest in two repos is one, and is found in those in reach": func(t *testing.T, s registrytest.Shelf) {
		other := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		registrytest.AddImage(t, s.RegistryStore, other, "v1", "one")
		registrytest.AddImage(t, s.RegistryStore, other, "v2", "two")
		for place, want := range map[resource.UID]int64{s.Org.UID: 2, s.Folder.UID: 1, s.App.UID: 1, other.UID: 2,
			s.Org.UID.NewChild(): 0} {
			if n, err := s.CountManifests(t.Context(), place); err != nil || n != want {
				t.Errorf("manifests in %s: %d, %v, want %d", place, n, err, want)
			}
		}
		want := []resource.UID{s.App.UID, other.UID}
		slices.Sort(want)
		if got, err := s.ReposWith(t.Context(), everywhere(s), m.Digest, 9); err != nil || !slices.Equal(got, want) {
			t.Errorf("repos = %v, %v", got, err)
		}
		if got, err := s.ReposWith(t.Context(), store.Reach{Under: []resource.UID{s.Folder.UID}}, m.Digest, 9); err != nil ||
			!slices.Equal(got, []resource.UID{s.App.UID}) {
			t.Errorf("repos below the folder = %v, %v", got, err)
		}
		if got, err := s.ReposWith(t.Context(), everywhere(s), m.Digest, 1); err != nil || len(got) != 1 {
			t.Errorf("one repo = %v, %v", got, err)
		}
	},
	"followers are counted in reach": func(t *testing.T, s registrytest.Shelf) {
		for i, group := range []resource.UID{s.Org.UID, s.Folder.UID} {
			r := registrytest.NewRepo(group, fmt.Sprintf("follower%d", i))
			r.Sync = &registry.SyncConfig{Source: string(s.App.UID)}
			testkit.Must(t, s.InsertRepo(t.Context(), r))
		}
		for root, want := range map[resource.UID]int64{s.Org.UID: 2, s.Folder.UID: 1} {
			if n, err := s.Followers(t.Context(), store.Reach{Under: []resource.UID{root}}, s.App.UID); err != nil ||
				n != want {
				t.Errorf("followers below %s: %d, %v, want %d", root, n, err, want)
			}
		}
		if n, err := s.Followers(t.Context(), everywhere(s), s.Folder.UID); err != nil || n != 0 {
			t.Errorf("followers of another: %d, %v", n, err)
		}
	},
	"a group with repos stays, and says so": func(t *testing.T, s registrytest.Shelf) {
		err := s.DeleteGroup(t.Context(), s.Folder.UID, "")
		testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		if want := "Precondition failed: cannot delete group with child repos"; err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		testkit.Must(t, s.DeleteGroup(t.Context(), s.Folder.UID, ""))
	},
	"a repo is found by the names above it": func(t *testing.T, s registrytest.Shelf) {
		at, err := s.RepoAt(t.Context(), []string{"org", "folder", "app"})
		if err != nil || at != s.App.UID {
			t.Errorf("repo = %s, %v", at, err)
		}
		name, err := s.RepoPath(t.Context(), s.App.UID)
		if err != nil || name != "org/folder/app" {
			t.Errorf("path = %s, %v", name, err)
		}
		group, err := s.GroupAt(t.Context(), []string{"org", "folder"})
		if err != nil || group != s.Folder.UID {
			t.Errorf("group = %s, %v", group, err)
		}
		for _, names := range [][]string{{"app"}, {"org", "app"}, {"folder", "app"}, {"org", "folder", "x"},
			{"org", "folder", "app", "app"}, {}, slices.Repeat([]string{"org"}, 900)} {
			_, err := s.RepoAt(t.Context(), names)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
			_, err = s.UncachedRepo(t.Context(), names)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		}
		for path, want := range map[string][2]resource.UID{
			"org/folder/app": {s.App.UID, s.Folder.UID}, "org/folder/x": {"", s.Folder.UID},
			"org/folder/app/x": {"", s.Folder.UID}, "org/x/app": {"", s.Org.UID}, "org/folder": {"", s.Org.UID},
			"x/folder/app": {}, "org": {}, "org" + strings.Repeat("/folder", 900): {"", s.Folder.UID},
		} {
			repo, group, err := s.FindRepo(t.Context(), strings.Split(path, "/"))
			if repo != want[0] || group != want[1] || err != nil {
				t.Errorf("at %.30s are %q and %q, %v, want %q", path, repo, group, err, want)
			}
		}
	},
	"a push makes the repo if it may": func(t *testing.T, s registrytest.Shelf) {
		to := registrydb.RepoRef{Group: s.Org.UID, Name: "fresh"}
		_, err := s.PutManifest(t.Context(), to, registrytest.NewIndex("i"), []string{"v1"})
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		to.Create = true
		uid, err := s.PutManifest(t.Context(), to, registrytest.NewIndex("i"), []string{"v1"})
		testkit.Must(t, err)
		r, err := s.Repo(t.Context(), uid)
		if err != nil || r.Name != "fresh" || uid.Parent() != s.Org.UID {
			t.Errorf("repo = %v, %v", r, err)
		}
	},
	"a push is all or nothing": func(t *testing.T, s registrytest.Shelf) {
		before := dbtest.Everything(t, s.DB)
		_, err := s.PutManifest(t.Context(), registrydb.RepoRef{Group: s.Org.UID, Name: "fresh", Create: true},
			registrytest.NewImage("one"), []string{"v1"})
		lacking, ok := errors.AsType[*registrydb.MissingError](err)
		if !ok || len(lacking.Needs) != 1 || lacking.Needs[0].Digest != registrytest.Digest("one") {
			t.Errorf("error = %v", err)
		}
		if diff := cmp.Diff(before, dbtest.Everything(t, s.DB)); diff != "" {
			t.Error(diff)
		}
	},
	"a manifest names all that its repo lacks, and may need a thing twice": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		need := func(word string, manifest bool) registry.Need {
			return registry.Need{Digest: registrytest.Digest(word), Manifest: manifest}
		}
		m := registrytest.NewIndex("many", "one")
		m.Needs = append(m.Needs, need("one", false), need("x", false), need("one", false), need("y", true),
			need("one", true))
		_, err := s.PutManifest(t.Context(), registrytest.Ref(s.App), m, nil)
		lacking, ok := errors.AsType[*registrydb.MissingError](err)
		if want := []registry.Need{need("x", false), need("y", true), need("one", true)}; !ok ||
			!cmp.Equal(lacking.Needs, want) {
			t.Errorf("error = %v, want one of %v", err, want)
		}
		m.Needs = slices.DeleteFunc(m.Needs, func(n registry.Need) bool { return slices.Contains(lacking.Needs, n) })
		registrytest.Push(t, s.RegistryStore, s.App, m)
		testkit.WantFault(t, s.DeleteManifest(t.Context(), s.App.UID, registrytest.NewImage("one").Digest, nil),
			fault.FailedPrecondition,
			fault.Resource{})
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, registrytest.NewImage("one").Digest, nil))
	},
	"what a manifest may lack it may lack": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.NewImage("elsewhere")
		m.Needs[0].Optional = true
		registrytest.Push(t, s.RegistryStore, s.App, m)
	},
	"a manifest is found by digest and by tag": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		for _, by := range []string{"v1", m.Digest} {
			got, err := s.Manifest(t.Context(), s.App.UID, by)
			testkit.Must(t, err)
			stat, err := s.StatManifest(t.Context(), s.App.UID, by)
			testkit.Must(t, err)
			if got.Digest != m.Digest || string(got.Body) != "one" || got.MediaType != m.MediaType || stat.Digest != m.Digest ||
				stat.Size != 3 || stat.Body != nil {
				t.Errorf("%s is %v, %v", by, got, stat)
			}
		}
		for _, by := range []string{"v2", registrytest.Digest("x")} {
			_, err := s.Manifest(t.Context(), s.App.UID, by)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: by})
		}
	},
	"a tag that has moved, or gone, is read so at once": func(t *testing.T, s registrytest.Shelf) {
		at := func() (string, error) {
			m, err := s.Manifest(t.Context(), s.App.UID, "v1")
			return string(m.Body), err
		}
		for _, word := range []string{"one", "two", "one"} {
			registrytest.AddImage(t, s.RegistryStore, s.App, "v1", word)
			if got, err := at(); err != nil || got != word {
				t.Errorf("v1 is %q, %v, want %q", got, err, word)
			}
		}
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		_, err := at()
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a tag has a history, and one that stays leaves no trace": func(t *testing.T, s registrytest.Shelf) {
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: iamtest.Alice})
		one, two := registrytest.AddImage(t, s.RegistryStore, s.App, "", "one"), registrytest.AddImage(t, s.RegistryStore,
			s.App, "", "two")
		for _, m := range []registry.Manifest{one, one, two} {
			_, err := s.PutManifest(ctx, registrytest.Ref(s.App), m, []string{"v1"})
			testkit.Must(t, err)
		}
		g, err := s.TagNamed(ctx, s.App.UID, "v1")
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteTag(ctx, g.UID, nil))
		got, err := s.TagHistory(ctx, s.App.UID, "v1", page.Request{Size: 2})
		testkit.Must(t, err)
		if got.Total != 3 || got.Last == nil || len(got.Items) != 2 {
			t.Fatalf("history = %+v", got)
		}
		rest, err := s.TagHistory(ctx, s.App.UID, "", page.Request{Size: 2, After: got.Last})
		testkit.Must(t, err)
		var digests []string
		for _, m := range append(got.Items, rest.Items...) {
			digests = append(digests, m.Digest)
			if m.Actor.Subject != iamtest.Alice || m.Repo != s.App.UID || m.Name != "v1" {
				t.Errorf("move = %+v", m)
			}
		}
		if want := []string{"", two.Digest, one.Digest}; !slices.Equal(digests, want) {
			t.Errorf("digests = %v, want %v", digests, want)
		}
	},
	"old moves of tags are deleted, except what a tag was then": func(t *testing.T, s registrytest.Shelf) {
		one := registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		two := registrytest.AddImage(t, s.RegistryStore, s.App, "", "two")
		for tag, images := range map[string][]registry.Manifest{"moved": {one, two, one}, "still": {one}, "gone": {one}} {
			for _, m := range images {
				_, err := s.PutManifest(t.Context(), registrytest.Ref(s.App), m, []string{tag})
				testkit.Must(t, err)
			}
		}
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "gone", nil))
		_, err := s.Exec(t.Context(), `UPDATE tag_history SET at_ms = 1000 WHERE seq <>
			(SELECT max(seq) FROM tag_history WHERE name = 'moved')`)
		testkit.Must(t, err)
		history := func(tag string) (digests []string) {
			got, err := s.TagHistory(t.Context(), s.App.UID, tag, page.Request{Size: 5})
			testkit.Must(t, err)
			for _, m := range got.Items {
				digests = append(digests, m.Digest)
			}
			return digests
		}
		prune := func(before time.Time) (deleted int) {
			for last := int64(0); ; {
				next, n, err := s.PruneTagHistory(t.Context(), before, last, 2)
				testkit.Must(t, err)
				if deleted += n; next == 0 {
					return deleted
				}
				last = next
			}
		}
		if n := prune(time.UnixMilli(1000)); n != 0 {
			t.Errorf("%d moves were deleted that are not older", n)
		}
		// A deletion may need a second run, because it must remain while an older move does.
		if n := prune(time.UnixMilli(1001)) + prune(time.UnixMilli(1001)); n != 3 {
			t.Errorf("deleted %d moves, want 3", n)
		}
		for tag, want := range map[string][]string{"moved": {one.Digest, two.Digest}, "still": {one.Digest}, "gone": nil} {
			if got := history(tag); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", tag, got, want)
			}
		}
	},
	"a tag is put where a manifest is": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		g := registry.Tag{UID: s.App.UID.NewChild(), Name: "v1", Digest: m.Digest, Deprecated: true,
			Bundles: []string{"base"}}
		put, err := s.PutTag(t.Context(), g, registrytest.Always)
		testkit.Must(t, err)
		if put.UID != g.UID {
			t.Errorf("uid = %s", put.UID)
		}
		testkit.WantSame(t, s.Tag, g.UID, put)
		again, err := s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: "v1", Digest: m.Digest},
			registrytest.Always)
		if err != nil || again.UID != g.UID || again.Deprecated {
			t.Errorf("tag = %v, %v", again, err)
		}
		_, err = s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: "v2",
			Digest: registrytest.Digest("x")}, nil)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: registrytest.Digest("x")})
		_, err = s.PutTag(t.Context(), registry.Tag{UID: s.Org.UID.NewChild().NewChild(), Name: "v2", Digest: m.Digest}, nil)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a tag without a digest stays where it points": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		before, err := s.TagNamed(t.Context(), s.App.UID, "v1")
		testkit.Must(t, err)
		put, err := s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: "v1", Bundles: []string{"base"}},
			registrytest.Always)
		if err != nil || put.UID != before.UID || put.Digest != m.Digest || len(put.Bundles) != 1 {
			t.Errorf("tag = %+v, %v", put, err)
		}
		testkit.WantSame(t, s.Tag, put.UID, put)
		history, err := s.TagHistory(t.Context(), s.App.UID, "v1", page.Request{Size: 5})
		if err != nil || len(history.Items) != 1 {
			t.Errorf("history = %+v, %v", history.Items, err)
		}
		_, err = s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: "v2"}, nil)
		testkit.WantFault(t, err, fault.InvalidArgument, fault.Resource{})
	},
	"a frozen tag neither moves nor goes": func(t *testing.T, s registrytest.Shelf) {
		one := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		registrytest.AddBlob(t, s.RegistryStore, s.App, "two")
		g, err := s.TagNamed(t.Context(), s.App.UID, "v1")
		testkit.Must(t, err)
		_, err = s.UpdateRegistrySettings(t.Context(), s.Org.UID, func(set *registry.Settings) error {
			set.ImmutableTags = true
			return nil
		})
		testkit.Must(t, err)
		_, moved := s.PutManifest(t.Context(), registrytest.Ref(s.App), registrytest.NewImage("two"), []string{"v1"})
		for _, err := range []error{
			moved, s.DeleteTag(t.Context(), g.UID, registrytest.Always), s.DeleteTagNamed(t.Context(), s.App.UID, "v1",
				registrytest.Always),
			s.DeleteManifest(t.Context(), s.App.UID, one.Digest, registrytest.Always),
		} {
			testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
			if fault.From(err).Unmet[0].Subject != "TAG_IMMUTABLE" {
				t.Errorf("error = %v", err)
			}
		}
		_, err = s.PutManifest(t.Context(), registrytest.Ref(s.App), one, []string{"v1", "v2"})
		testkit.Must(t, err)
	},
	"a list hides the tags that tools make": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewImage("one"), "v1", "latest", "sha256-abc",
			"1.2-20240506", "1.2-r3", "other",
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
				"in a repo": {resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: s.App.UID}, Classes: all[:1]},
					[]string{"latest", "other", "sha256-abc", "sha512-x", "v1"}},
				"by name":    {resource.Filter{Name: "v1"}, []string{"v1"}},
				"hidden":     {resource.Filter{Name: "a-r1"}, nil},
				"by digest":  {resource.Filter{Digest: registrytest.NewImage("one").Digest}, []string{"latest", "other", "v1"}},
				"since":      {resource.Filter{UpdatedSince: time.Now().Add(time.Hour)}, nil},
				"since then": {resource.Filter{UpdatedSince: iamtest.Epoch}, []string{"latest", "other", "v1"}},
			} {
				got := names(t, s, tt.f, order)
				slices.Sort(got)
				if !slices.Equal(got, tt.want) {
					t.Errorf("%s by %s = %v, want %v", name, order, got, tt.want)
				}
			}
		}
	},
	"tags of the protocol are in the order of their bytes": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewImage("one"), "b", "B", "a", "_", "sha256-x")
		first, err := s.TagNames(t.Context(), s.App.UID, "", 3)
		testkit.Must(t, err)
		rest, err := s.TagNames(t.Context(), s.App.UID, first[2], 3)
		testkit.Must(t, err)
		if got := strings.Join(append(first, rest...), " "); got != "B _ a b sha256-x" {
			t.Errorf("tags = %s", got)
		}
	},
	"a manifest that goes takes its tags along": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		registrytest.Push(t, s.RegistryStore, s.App, m, "v1", "v1-r1")
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "one"), "index")
		testkit.WantFault(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil), fault.FailedPrecondition,
			fault.Resource{})
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, registrytest.NewIndex("i").Digest, nil))
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		testkit.WantFault(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil), fault.NotFound, fault.Resource{})
		if got := names(t, s, resource.Filter{Classes: []resource.TagClass{resource.EpochTag}}, "name"); got != nil {
			t.Errorf("tags left: %v", got)
		}
	},
	"a manifest's blob stays": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.WantFault(t, s.DeleteBlob(t.Context(), s.App.UID, registrytest.Digest("one")), fault.FailedPrecondition,
			fault.Resource{})
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, registrytest.NewImage("one").Digest, nil))
		testkit.Must(t, s.DeleteBlob(t.Context(), s.App.UID, registrytest.Digest("one")))
		testkit.WantFault(t, s.DeleteBlob(t.Context(), s.App.UID, registrytest.Digest("one")), fault.NotFound,
			fault.Resource{})
	},
	"the same bytes are stored once, and read through a repo that has them": func(t *testing.T, s registrytest.Shelf) {
		other := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		registrytest.AddBlob(t, s.RegistryStore, s.App, "one")
		_, err := s.Blob(t.Context(), other.UID, registrytest.Digest("one"))
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		kept, err := s.AddBlob(t.Context(), registrytest.Ref(other), registry.Upload{}, "",
			registry.Blob{Digest: registrytest.Digest("one"), Size: 3, Path: "/second"})
		if err != nil || kept {
			t.Errorf("kept = %v, %v", kept, err)
		}
		b, err := s.Blob(t.Context(), other.UID, registrytest.Digest("one"))
		if err != nil || b.Path == "/second" || b.Size != 3 {
			t.Errorf("blob = %v, %v", b, err)
		}
	},
	"a blob is mounted from a repo that has it": func(t *testing.T, s registrytest.Shelf) {
		other := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		registrytest.AddBlob(t, s.RegistryStore, s.App, "one")
		testkit.WantFault(t, s.MountBlob(t.Context(), s.App.UID, registrytest.Ref(other), registrytest.Digest("two")),
			fault.NotFound,
			fault.Resource{})
		testkit.WantFault(t, s.MountBlob(t.Context(), other.UID, registrytest.Ref(s.App), registrytest.Digest("one")),
			fault.NotFound,
			fault.Resource{})
		testkit.Must(t, s.MountBlob(t.Context(), s.App.UID, registrytest.Ref(other), registrytest.Digest("one")))
		holders, err := s.BlobHolders(t.Context(), registrytest.Digest("one"), 5)
		if err != nil || len(holders) != 2 {
			t.Errorf("holders = %v, %v", holders, err)
		}
	},
	"a rotten blob is hidden until it has other bytes": func(t *testing.T, s registrytest.Shelf) {
		ctx, other := t.Context(), registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		stored, err := s.StoredBlob(ctx, registrytest.Digest("one"))
		testkit.Must(t, err)
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
		_, err = s.Blob(ctx, s.App.UID, registrytest.Digest("one"))
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		testkit.WantFault(t, s.MountBlob(ctx, s.App.UID, registrytest.Ref(other), registrytest.Digest("one")),
			fault.NotFound, fault.Resource{})
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
		bigger := registry.Blob{Digest: registrytest.Digest("one"), Size: stored.Size + 1, Path: "/bigger"}
		if used, err := s.ReplaceBlob(ctx, bigger); used || err != nil {
			t.Errorf("replaced by another size: %v, %v", used, err)
		}
		again := registry.Blob{Digest: registrytest.Digest("one"), Size: stored.Size, Path: "/again"}
		if used, err := s.AddBlob(ctx, registrytest.Ref(other), registry.Upload{}, "", again); !used || err != nil {
			t.Errorf("pushed again: used = %v, %v", used, err)
		}
		for _, repo := range []resource.UID{s.App.UID, other.UID} {
			if b, err := s.Blob(ctx, repo, registrytest.Digest("one")); err != nil || b.Path != "/again" {
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
	"the uploads that have ended": func(t *testing.T, s registrytest.Shelf) {
		u := registrytest.AddUpload(t, s.RegistryStore, s.Folder.UID, "app")
		ended, err := s.EndedUploads(t.Context(), map[string]string{"/a": u.ID, "/b": "none"})
		if err != nil || !slices.Equal(ended, []string{"/b"}) {
			t.Errorf("ended = %v, %v", ended, err)
		}
	},
	"an upload has one holder at a time": func(t *testing.T, s registrytest.Shelf) {
		u := registrytest.AddUpload(t, s.RegistryStore, s.Folder.UID, "app")
		interrupted := false
		hold := func(holder string, until time.Duration) (err error) {
			_, interrupted, err = s.HoldUpload(t.Context(), u.Group, u.Repo, u.ID, holder, s.Now().Add(until))
			return err
		}
		testkit.Must(t, hold("a", time.Hour))
		testkit.WantFault(t, hold("b", time.Hour), fault.Aborted, fault.Resource{})
		if interrupted {
			t.Error("nobody was interrupted")
		}
		testkit.Must(t, s.RenewUpload(t.Context(), u.ID, "a", s.Now().Add(-time.Second))) // ends the lease of a
		testkit.Must(t, hold("b", time.Hour))
		if !interrupted {
			t.Error("a was interrupted")
		}
		testkit.WantFault(t, s.RenewUpload(t.Context(), u.ID, "a", s.Now().Add(time.Hour)), fault.NotFound, fault.Resource{})
		u.Size, u.State = 7, []byte{1}
		testkit.WantFault(t, s.SaveUpload(t.Context(), u, "a"), fault.NotFound, fault.Resource{})
		testkit.Must(t, s.SaveUpload(t.Context(), u, "b"))
		got, err := s.Upload(t.Context(), u.Group, u.Repo, u.ID)
		if diff := cmp.Diff(u, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
		testkit.Must(t, hold("c", time.Hour))
		testkit.Must(t, s.ReleaseUpload(t.Context(), u.ID, "c"))
		testkit.WantFault(t, s.RenewUpload(t.Context(), u.ID, "c", s.Now().Add(time.Hour)), fault.NotFound, fault.Resource{})
		testkit.Must(t, hold("d", time.Hour))
		if interrupted {
			t.Error("nobody was interrupted, c has let go")
		}
		_, err = s.AddBlob(t.Context(), registrytest.Ref(s.App), u, "c", registry.Blob{Digest: registrytest.Digest("x"),
			Path: "/x"})
		testkit.WantFault(t, err, fault.Aborted, fault.Resource{})
		_, err = s.AddBlob(t.Context(), registrytest.Ref(s.App), u, "d", registry.Blob{Digest: registrytest.Digest("x"),
			Path: "/x"})
		testkit.Must(t, err)
		testkit.WantFault(t, s.DeleteUpload(t.Context(), u.ID), fault.NotFound, fault.Resource{})
	},
	"an upload is found in its repo only": func(t *testing.T, s registrytest.Shelf) {
		u := registrytest.AddUpload(t, s.RegistryStore, s.Folder.UID, "app")
		_, err := s.Upload(t.Context(), s.Org.UID, "app", u.ID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		_, err = s.Upload(t.Context(), s.Folder.UID, "other", u.ID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"an upload that rests is dropped, one that is held is not": func(t *testing.T, s registrytest.Shelf) {
		u, v := registrytest.AddUpload(t, s.RegistryStore, s.Folder.UID, "app"), registrytest.AddUpload(t, s.RegistryStore,
			s.Folder.UID, "app")
		_, _, err := s.HoldUpload(t.Context(), v.Group, v.Repo, v.ID, "a", s.Now().Add(time.Hour))
		testkit.Must(t, err)
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
	"what a repo does not need is unlinked after the grace, unless somebody asks": func(t *testing.T,
		s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "needed")
		registrytest.AddBlob(t, s.RegistryStore, s.App, "idle")
		registrytest.AddBlob(t, s.RegistryStore, s.App, "asked")
		now := s.Now().Add(time.Hour)
		idle, next, err := s.IdleBlobs(t.Context(), nil, now, 10)
		if err != nil || next != nil || len(idle) != 2 {
			t.Fatalf("idle = %v, %v, %v", idle, next, err)
		}
		testkit.Must(t, s.MarkIdle(t.Context(), idle, now))
		if _, took, err := s.UnlinkIdle(t.Context(), now.Add(-time.Second), 10); err != nil || took != 0 {
			t.Errorf("took %d within the grace, %v", took, err)
		}
		_, err = s.Blob(t.Context(), s.App.UID, registrytest.Digest("asked"))
		testkit.Must(t, err)
		if _, took, err := s.UnlinkIdle(t.Context(), now, 10); err != nil || took != 1 {
			t.Errorf("took %d, %v", took, err)
		}
		_, err = s.Blob(t.Context(), s.App.UID, registrytest.Digest("idle"))
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		for _, word := range []string{"needed", "asked"} {
			_, err := s.Blob(t.Context(), s.App.UID, registrytest.Digest(word))
			testkit.Must(t, err)
		}
		unheld, err := s.UnheldBlobs(t.Context(), "", 10)
		if err != nil || len(unheld) != 1 || unheld[0].Digest != registrytest.Digest("idle") {
			t.Fatalf("unheld = %v, %v", unheld, err)
		}
		gone, err := s.PurgeUnheld(t.Context(), append(unheld, registry.Blob{Digest: registrytest.Digest("needed")}))
		if err != nil || !cmp.Equal(gone, unheld) {
			t.Errorf("gone = %v, %v", gone, err)
		}
	},
	"what came to be needed is not unlinked": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddBlob(t, s.RegistryStore, s.App, "one")
		now := s.Now().Add(time.Hour)
		idle, _, err := s.IdleBlobs(t.Context(), nil, now, 10)
		testkit.Must(t, err)
		testkit.Must(t, s.MarkIdle(t.Context(), idle, now))
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewImage("one"), "v1")
		if _, took, err := s.UnlinkIdle(t.Context(), now, 10); err != nil || took != 0 {
			t.Errorf("took %d, %v", took, err)
		}
	},
	"the walk through what repos hold goes on where it stopped": func(t *testing.T, s registrytest.Shelf) {
		for i := range 7 {
			registrytest.AddBlob(t, s.RegistryStore, s.App, fmt.Sprint(i))
		}
		n := 0
		var from *gcdb.RepoBlob
		for {
			idle, next, err := s.IdleBlobs(t.Context(), from, s.Now().Add(time.Hour), 3)
			testkit.Must(t, err)
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
	"a file is named by a blob or an upload": func(t *testing.T, s registrytest.Shelf) {
		u := registrytest.AddUpload(t, s.RegistryStore, s.Folder.UID, "app")
		registrytest.AddBlob(t, s.RegistryStore, s.App, "one")
		b, err := s.Blob(t.Context(), s.App.UID, registrytest.Digest("one"))
		testkit.Must(t, err)
		got, err := s.UnreferencedPaths(t.Context(), map[string]string{b.Path: "x", "/u": u.ID, "/lost": "lost"})
		if err != nil || !slices.Equal(got, []string{"/lost"}) {
			t.Errorf("unnamed = %v, %v", got, err)
		}
	},
	"a repo that goes takes everything along": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "one"), "index", "x-r1", "sha256-x")
		testkit.Must(t, s.InsertPulls(t.Context(), []registry.Pull{
			{UID: s.App.UID.NewChild(), Digest: registrytest.Digest("one"), Time: iamtest.Epoch}, {UID: s.App.UID.NewChild(),
				Digest: registrytest.Digest("one"), Time: iamtest.Epoch, Push: true},
		}))
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		testkit.WantFault(t, s.DeleteRepo(t.Context(), s.App.UID), fault.NotFound, fault.Resource{})
		unheld, err := s.UnheldBlobs(t.Context(), "", 10)
		if err != nil || len(unheld) != 1 {
			t.Errorf("unheld = %v, %v", unheld, err)
		}
		testkit.Must(t, s.InsertPulls(t.Context(),
			[]registry.Pull{{UID: s.App.UID.NewChild(), Digest: registrytest.Digest("one"), Time: iamtest.Epoch}}))
	},
	"referrers are listed by their subject": func(t *testing.T, s registrytest.Shelf) {
		for _, word := range []string{"a", "b", "c"} {
			m := registrytest.NewIndex(word)
			m.Subject, m.ArtifactType, m.Annotations = registrytest.Digest("subject"), "type/"+word, `{"k":"v"}`
			registrytest.Push(t, s.RegistryStore, s.App, m)
		}
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("other"))
		all, err := s.Referrers(t.Context(), s.App.UID, registrytest.Digest("subject"), "", "", 10)
		if err != nil || len(all) != 3 || all[0].Annotations != `{"k":"v"}` {
			t.Fatalf("referrers = %v, %v", all, err)
		}
		rest, err := s.Referrers(t.Context(), s.App.UID, registrytest.Digest("subject"), "", all[0].Digest, 10)
		if err != nil || len(rest) != 2 {
			t.Errorf("after the first: %v, %v", rest, err)
		}
		one, err := s.Referrers(t.Context(), s.App.UID, registrytest.Digest("subject"), "type/b", "", 10)
		if err != nil || len(one) != 1 {
			t.Errorf("of one type: %v, %v", one, err)
		}
	},
	"the settings of the nearest group count": func(t *testing.T, s registrytest.Shelf) {
		set := func(group resource.UID, change func(*registry.Settings)) {
			_, err := s.UpdateRegistrySettings(t.Context(), group, func(r *registry.Settings) error { change(r); return nil })
			testkit.Must(t, err)
		}
		want := func(group, whose resource.UID, public, frozen bool) {
			t.Helper()
			got, err := s.RegistrySettings(t.Context(), group)
			if err != nil || got.UID != whose || got.Public != public || got.Frozen("v1") != frozen || got.Frozen("nightly-1") {
				t.Errorf("settings = %+v, %v", got, err)
			}
		}
		want(s.Folder.UID, "", false, false)
		set(s.Org.UID, func(r *registry.Settings) { r.Public, r.ImmutableExcept = true, []string{"nightly-*"} })
		want(s.Folder.UID, s.Org.UID, true, false)
		set(s.Folder.UID, func(r *registry.Settings) { r.ImmutableTags = true })
		want(s.Folder.UID, s.Folder.UID, true, true)
		want(s.Org.UID, s.Org.UID, true, false)
		astray := s.Org.UID.NewChild() + s.Folder.UID[len(s.Folder.UID)-17:]
		want(astray, s.Org.UID, true, false)
		testkit.Must(t, s.DeleteRegistrySettings(t.Context(), astray))
		want(s.Folder.UID, s.Folder.UID, true, true)
		testkit.Must(t, s.DeleteRegistrySettings(t.Context(), s.Folder.UID))
		testkit.Must(t, s.DeleteRegistrySettings(t.Context(), s.Folder.UID))
		want(s.Folder.UID, s.Org.UID, true, false)
		set(s.Folder.UID, func(*registry.Settings) {})
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		testkit.Must(t, s.DeleteGroup(t.Context(), s.Folder.UID, ""))
	},
	"pulls are found by repo, digest, identity and direction, and pruned by age": func(t *testing.T,
		s registrytest.Shelf) {
		other := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		var all []registry.Pull
		for i, r := range []registry.Repo{s.App, s.App, other} {
			all = append(all, registry.Pull{
				UID: r.UID.NewChild(), Push: i == 0, Digest: registrytest.Digest(fmt.Sprint(i % 2)), Tag: "v1",
				Identity: []resource.UID{iamtest.Alice,
					iamtest.Bob, ""}[i],
				Remote: "::1", Agent: "crane", Time: iamtest.Epoch.Add(time.Duration(i) * time.Hour), More: int64(i),
			})
		}
		testkit.Must(t, s.InsertPulls(t.Context(), append(all, registry.Pull{UID: s.Org.UID.NewChild().NewChild()})))
		newest := page.Request{Size: 10, Order: page.Order{Field: "create_time", Desc: true}}
		for name, tt := range map[string]struct {
			f    resource.Filter
			want []registry.Pull
		}{
			"all":      {resource.Filter{}, []registry.Pull{all[2], all[1], all[0]}},
			"repo":     {resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: s.App.UID}}, []registry.Pull{all[1], all[0]}},
			"digest":   {resource.Filter{Digest: registrytest.Digest("0")}, []registry.Pull{all[2], all[0]}},
			"identity": {resource.Filter{Identity: iamtest.Bob}, []registry.Pull{all[1]}},
			"pulls":    {resource.Filter{Direction: resource.Pulled}, []registry.Pull{all[2], all[1]}},
			"pushes":   {resource.Filter{Direction: resource.Pushed}, []registry.Pull{all[0]}},
			"pulls of a repo": {
				resource.Filter{Direction: resource.Pulled,
					UIDs: resource.UIDFilter{ChildrenOf: s.App.UID}}, []registry.Pull{all[1]},
			},
			"pushes of a digest": {resource.Filter{Direction: resource.Pushed, Digest: registrytest.Digest("0")},
				[]registry.Pull{all[0]}},
			"pushes of another": {resource.Filter{Direction: resource.Pushed, Digest: registrytest.Digest("1")}, nil},
		} {
			got, err := s.Pulls(t.Context(), everywhere(s), tt.f, newest)
			if diff := cmp.Diff(tt.want, got.Items); err != nil || diff != "" || got.Total != int64(len(tt.want)) {
				t.Errorf("%s: %v, total %d\n%s", name, err, got.Total, diff)
			}
		}
		if n, err := s.PrunePulls(t.Context(), iamtest.Epoch.Add(time.Hour), 10); err != nil || n != 1 {
			t.Errorf("pruned %d, %v", n, err)
		}
	},
	"pulls of an image are counted, up to a hundred records": func(t *testing.T, s registrytest.Shelf) {
		other := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		var all []registry.Pull
		add := func(repo registry.Repo, of string, push bool, after time.Duration, more int64) {
			all = append(all, registry.Pull{UID: repo.UID.NewChild(), Push: push, Digest: registrytest.Digest(of),
				Time: iamtest.Epoch.Add(after),
				More: more})
		}
		add(s.App, "one", false, 0, 0)
		add(s.App, "one", false, 2*time.Hour, 3)
		add(s.App, "one", false, time.Hour, 0)
		add(s.App, "one", true, 9*time.Hour, 0)
		add(other, "one", false, 9*time.Hour, 0)
		add(s.App, "two", false, 9*time.Hour, 0)
		for i := range 120 {
			add(s.App, "many", false, time.Duration(i)*time.Minute, 0)
		}
		testkit.Must(t, s.InsertPulls(t.Context(), all))
		for _, tt := range []struct {
			of    string
			since time.Duration
			want  int64
			last  time.Time
		}{
			{"one", 0, 6, iamtest.Epoch.Add(2 * time.Hour)}, {"one", time.Hour, 5, iamtest.Epoch.Add(2 * time.Hour)}, {"one",
				3 * time.Hour, 0,
				time.Time{}},
			{"none", 0, 0, time.Time{}}, {"many", 0, 100, iamtest.Epoch.Add(119 * time.Minute)},
		} {
			if n, last, err := s.CountPulls(t.Context(), s.App.UID, registrytest.Digest(tt.of),
				iamtest.Epoch.Add(tt.since)); err != nil ||
				n != tt.want || !last.Equal(tt.last) {
				t.Errorf("%s since %s: %d, last %s, %v; want %d, %s", tt.of, tt.since, n, last, err, tt.want, tt.last)
			}
		}
	},
	"every change of the registry is an event": func(t *testing.T, s registrytest.Shelf) {
		n := len(dbtest.Events(t, s.DB))
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, registrytest.NewImage("one").Digest, nil))
		testkit.Must(t, s.InsertPulls(t.Context(),
			[]registry.Pull{{UID: s.App.UID.NewChild(), Digest: registrytest.Digest("one"), Time: iamtest.Epoch}}))
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		var got []string
		for _, e := range dbtest.Events(t, s.DB)[n:] {
			got = append(got, string(e.Type)+" "+map[resource.UID]string{s.Org.UID: "org", s.Folder.UID: "folder"}[e.Group])
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
			registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
				promise(t, registrytest.NewShelf(t, s))
				dbtest.WantExact(t, s.DB)
			})
		})
	}
}

// registryDuels contains pairs of conflicting writes to a repo.
var registryDuels = map[string]func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel{
	"note a deployment and delete its repo": func(t *testing.T, s *registrytest.Store, repo registry.Repo,
		word string) dbtest.Duel {
		r := registrytest.AddRepo(t, s.RegistryStore, repo.UID.Parent(), "r-"+word)
		return dbtest.NewDuel(
			func() error { return s.InsertDeployment(t.Context(), registrytest.NewDeployment(r.UID)) },
			func() error { return s.DeleteRepo(t.Context(), r.UID) },
			func(a, b error) error { // in both orders, no deployment is left
				_, err := s.Deployment(t.Context(), r.UID)
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) || !errors.Is(err, fault.NotFound) {
					return fmt.Errorf("note: %v, delete: %v, then: %v", a, b, err)
				}
				return nil
			},
		)
	},
	"push what a blob is needed for and delete the blob": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddBlob(t, s.RegistryStore, r, word)
		return dbtest.NewDuel(pushing(t, s, r, registrytest.NewImage(word)), func() error {
			return s.DeleteBlob(t.Context(), r.UID, registrytest.Digest(word))
		}, oneOrLacking)
	},
	"push what a blob is needed for and collect the blob": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddBlob(t, s.RegistryStore, r, word)
		now := s.Now().Add(time.Hour)
		idle, _, err := s.IdleBlobs(t.Context(), nil, now, 1000)
		testkit.Must(t, err)
		testkit.Must(t, s.MarkIdle(t.Context(), idle, now))
		return dbtest.NewDuel(
			pushing(t, s, r, registrytest.NewImage(word)),
			func() error { _, _, err := s.UnlinkIdle(t.Context(), now, 1000); return err },
			func(a, b error) error { // if the push succeeded, its blob exists
				_, lacking := errors.AsType[*registrydb.MissingError](a)
				_, err := s.Blob(t.Context(), r.UID, registrytest.Digest(word))
				if b != nil || a == nil && err != nil || a != nil && !lacking {
					return fmt.Errorf("errors = %v, %v and %v", a, b, err)
				}
				return nil
			},
		)
	},
	"push an index and delete a child": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddImage(t, s.RegistryStore, r, "", word)
		return dbtest.NewDuel(pushing(t, s, r, registrytest.NewIndex(word, word)), func() error {
			return s.DeleteManifest(t.Context(), r.UID, registrytest.NewImage(word).Digest, nil)
		}, oneOrLacking)
	},
	"tag and delete the manifest": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		m := registrytest.AddImage(t, s.RegistryStore, r, "", word)
		return dbtest.NewDuel(
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
		)
	},
	"push a blob again and forget it": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddBlob(t, s.RegistryStore, r, word)
		testkit.Must(t, s.DeleteBlob(t.Context(), r.UID, registrytest.Digest(word)))
		unheld, err := s.UnheldBlobs(t.Context(), "", 1000)
		testkit.Must(t, err)
		var gone []registry.Blob
		return dbtest.NewDuel(
			func() error {
				_, err := s.AddBlob(t.Context(), registrytest.Ref(r), registry.Upload{}, "",
					registry.Blob{Digest: registrytest.Digest(word), Path: "/again/" + word})
				return err
			},
			func() (err error) { gone, err = s.PurgeUnheld(t.Context(), unheld); return err },
			func(a, b error) error { // in both orders, the repo has a file that was not removed
				got, err := s.Blob(t.Context(), r.UID, registrytest.Digest(word))
				removed := slices.ContainsFunc(gone, func(g registry.Blob) bool { return g.Path == got.Path })
				if a != nil || b != nil || err != nil || removed {
					return fmt.Errorf("errors = %v, %v, %v; removed: %v", a, b, err, removed)
				}
				return nil
			},
		)
	},
	"two first pushes": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		to := registrydb.RepoRef{Group: r.UID.Parent(), Name: "new-" + word, Create: true}
		first := func(word string) func() error {
			return func() error {
				_, err := s.PutManifest(t.Context(), to, registrytest.NewIndex(word), []string{"v1"})
				return err
			}
		}
		return dbtest.NewDuel(first("a"), first("b"), bothWell)
	},
	"a first push and the end of the group": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		g := iamtest.AddGroup(t, s.IAMStore, r.UID.Parent(), "g-"+word)
		return dbtest.NewDuel(
			func() error {
				_, err := s.PutManifest(t.Context(), registrydb.RepoRef{Group: g.UID, Name: "new", Create: true},
					registrytest.NewIndex(word),
					nil)
				return err
			},
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"save an upload and the end of the group": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		g := iamtest.AddGroup(t, s.IAMStore, r.UID.Parent(), "g-"+word)
		u := registrytest.AddUpload(t, s.RegistryStore, g.UID, "app")
		u.Size = 100
		return dbtest.NewDuel(
			func() error { return s.SaveUpload(t.Context(), u, "") },
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			func(a, b error) error { // in both orders, the bytes of the upload are no longer counted
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				return nil
			},
		)
	},
	"end an upload and the end of the group": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		g := iamtest.AddGroup(t, s.IAMStore, r.UID.Parent(), "g-"+word)
		u := registrytest.AddUpload(t, s.RegistryStore, g.UID, "app")
		u.Size = 100
		testkit.Must(t, s.SaveUpload(t.Context(), u, ""))
		return dbtest.NewDuel(
			func() error {
				b := registry.Blob{Digest: registrytest.Digest(word), Size: 100, Path: "/" + word}
				_, err := s.AddBlob(t.Context(), registrydb.RepoRef{Group: g.UID, Name: "app", Create: true}, u, "", b)
				return err
			},
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"push a tag that is there and delete it": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddImage(t, s.RegistryStore, r, word, word)
		return dbtest.NewDuel(
			func() error {
				_, err := s.PutManifest(t.Context(), registrytest.Ref(r), registrytest.NewIndex("of "+word), []string{word})
				return err
			},
			func() error { return s.DeleteTagNamed(t.Context(), r.UID, word, nil) },
			bothWell,
		)
	},
	"two pushes of one tag": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		to := func(m registry.Manifest) func() error {
			return func() error { _, err := s.PutManifest(t.Context(), registrytest.Ref(r), m, []string{word}); return err }
		}
		return dbtest.NewDuel(to(registrytest.NewIndex("a "+word)), to(registrytest.NewIndex("b "+word)), func(a,
			b error) error {
			moves, err := s.TagHistory(t.Context(), r.UID, word, page.Request{Size: 10})
			if a != nil || b != nil || err != nil || moves.Total != 2 {
				return fmt.Errorf("errors = %v, %v and %v; %d moves", a, b, err, moves.Total)
			}
			return nil
		})
	},
	"push and delete the repo": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		own := registrytest.AddRepo(t, s.RegistryStore, r.UID.Parent(), "own-"+word)
		return dbtest.NewDuel(
			pushing(t, s, own, registrytest.NewIndex(word)),
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			func(a, b error) error {
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				return nil
			},
		)
	},
}

func pushing(t *testing.T, s *registrytest.Store, r registry.Repo, m registry.Manifest) func() error {
	return func() error {
		_, err := s.PutManifest(t.Context(), registrytest.Ref(r), m, []string{"v1"})
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
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		for name, prepare := range registryDuels {
			t.Run(name, func(t *testing.T) {
				r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, org.UID,
					strings.ReplaceAll(name, " ", "-")).UID, "app")
				for i := range rounds {
					d := prepare(t, s, r, fmt.Sprintf("%d-%s", i, strings.ReplaceAll(name, " ", "-")))
					a, b := dbtest.AtOnce(d.A, d.B)
					if err := d.OK(a, b); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		dbtest.WantExact(t, s.DB)
	})
}
