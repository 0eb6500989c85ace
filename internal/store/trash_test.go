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
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const week = 7 * 24 * time.Hour

// what describes an entry in a few words.
func what(e registry.TrashEntry) string {
	switch e.Kind {
	case registry.TrashTag:
		return "tag " + e.Tag
	case registry.TrashManifest:
		return "manifest " + e.Digest
	}
	return "repo " + e.RepoName
}

// trashed returns the trash entries below a group or repo, and checks the total.
func trashed(t *testing.T, s *storetest.Store, place resource.UID) map[string]registry.TrashEntry {
	t.Helper()
	all := map[string]registry.TrashEntry{}
	p := page.Request{Size: 2, Order: page.Order{Field: "create_time", Desc: true}}
	for {
		got, err := s.Trash(t.Context(), store.Reach{Under: []resource.UID{place.Root()}},
			resource.Filter{UIDs: resource.UIDFilter{DescendantsOf: place}}, p)
		must(t, err)
		for _, e := range got.Items {
			all[what(e)] = e
		}
		if p.After = got.Last; got.Last == nil {
			if got.Total != int64(len(all)) {
				t.Errorf("total = %d of %v", got.Total, all)
			}
			return all
		}
	}
}

func wantTrash(t *testing.T, s *storetest.Store, place resource.UID, want ...string) map[string]registry.TrashEntry {
	t.Helper()
	got := trashed(t, s, place)
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("trash (-want +got):\n%s", diff)
	}
	return got
}

func restore(t *testing.T, s *storetest.Store, e registry.TrashEntry,
	how registrydb.Restoration) []registry.TrashEntry {
	t.Helper()
	all, err := s.Restore(t.Context(), e.UID, how)
	must(t, err)
	if len(all) == 0 || all[0].UID != e.UID {
		t.Fatalf("restored %v", all)
	}
	return all
}

// collectAll runs the steps of the garbage collector as if much time had passed.
func collectAll(t *testing.T, s *storetest.Store) {
	t.Helper()
	later := s.Now().Add(time.Hour)
	for {
		n, err := s.SweepTrashBlobs(t.Context(), 100)
		must(t, err)
		if n == 0 {
			break
		}
	}
	idle, _, err := s.IdleBlobs(t.Context(), nil, later, 1000)
	must(t, err)
	must(t, s.MarkIdle(t.Context(), idle, later))
	_, _, err = s.UnlinkIdle(t.Context(), later, 1000)
	must(t, err)
	unheld, err := s.UnheldBlobs(t.Context(), "", 1000)
	must(t, err)
	_, err = s.PurgeUnheld(t.Context(), unheld)
	must(t, err)
}

// blobExists reports whether the blob with the digest of a word is stored.
func blobExists(t *testing.T, s *storetest.Store, word string) bool {
	t.Helper()
	all, err := s.BlobsAfter(t.Context(), "", 1000)
	must(t, err)
	return slices.ContainsFunc(all, func(b registry.Blob) bool { return b.Digest == digest(word) })
}

func stored(t *testing.T, s shelf) int64 {
	t.Helper()
	used, err := s.Usage(t.Context(), s.org.UID)
	must(t, err)
	return used[resource.StoredBytes]
}

// referrer returns a manifest whose subject is about.
func referrer(word string, about registry.Manifest) registry.Manifest {
	return registry.Manifest{Digest: digest("referrer " + word), MediaType: "application/vnd.oci.image.manifest.v1+json",
		ArtifactType: "application/x", Subject: about.Digest, Body: []byte(word)}
}

var trashPromises = map[string]func(t *testing.T, s shelf){
	"without a time to keep it, what is deleted is gone": func(t *testing.T, s shelf) {
		s.KeepTrash = 0
		m := addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		wantTrash(t, s.Store, s.org.UID)
	},
	"settings of a group say how long": func(t *testing.T, s shelf) {
		days := int32(0)
		set := func(r *registry.Settings) error { r.TrashDays = &days; return nil }
		_, err := s.UpdateRegistrySettings(t.Context(), s.folder.UID, set)
		must(t, err)
		addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		wantTrash(t, s.Store, s.org.UID)
		days = 3
		_, err = s.UpdateRegistrySettings(t.Context(), s.folder.UID, set)
		must(t, err)
		push(t, s.Store, s.repo, newImage("one"), "v1")
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		e := wantTrash(t, s.Store, s.org.UID, "tag v1")["tag v1"]
		if got := e.ExpireTime.Sub(e.CreateTime); got != 72*time.Hour {
			t.Errorf("kept for %v", got)
		}
	},
	"a tag comes back as it was": func(t *testing.T, s shelf) {
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: alice})
		m := addImage(t, s.Store, s.repo, "", "one")
		g, err := s.PutTag(ctx, registry.Tag{UID: s.repo.UID.NewChild(), Name: "v1", Digest: m.Digest, Deprecated: true,
			Bundles: []string{"b"}}, nil)
		must(t, err)
		must(t, s.DeleteTag(ctx, g.UID, nil))
		e := wantTrash(t, s.Store, s.repo.UID, "tag v1")["tag v1"]
		if e.By != alice || e.RepoName != "app" || e.Digest != m.Digest || e.ExpireTime.Sub(e.CreateTime) != week {
			t.Errorf("entry = %+v", e)
		}
		wantSame(t, s.TrashEntry, e.UID, e)
		restore(t, s.Store, e, registrydb.Restoration{})
		back, err := s.Tag(t.Context(), g.UID)
		must(t, err)
		if g.UpdateTime = back.UpdateTime; cmp.Diff(g, back) != "" {
			t.Error(cmp.Diff(g, back))
		}
		wantTrash(t, s.Store, s.org.UID)
		_, err = s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "trash entry", Name: string(e.UID)})
	},
	"a tag that stands for something else is replaced only if that is asked for": func(t *testing.T, s shelf) {
		one := addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		two := addImage(t, s.Store, s.repo, "v1", "two")
		e := wantTrash(t, s.Store, s.repo.UID, "tag v1")["tag v1"]
		_, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		if err == nil || !strings.Contains(err.Error(), "points to "+two.Digest) ||
			!errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("error = %v", err)
		}
		_, err = s.Restore(t.Context(), e.UID, registrydb.Restoration{Replace: true, Frozen: always})
		if err == nil || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("error = %v", err)
		}
		restore(t, s.Store, e, registrydb.Restoration{Replace: true})
		g, err := s.TagNamed(t.Context(), s.repo.UID, "v1")
		if err != nil || g.Digest != one.Digest {
			t.Errorf("tag = %v, %v", g, err)
		}
	},
	"a tag that was pushed again as it was is restored already": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		push(t, s.Store, s.repo, newImage("one"), "v1")
		restore(t, s.Store, trashed(t, s.Store, s.repo.UID)["tag v1"], registrydb.Restoration{Frozen: always})
		wantTrash(t, s.Store, s.repo.UID)
	},
	"a tag that was deleted twice is in the trash once": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "v1", "one")
		for range 3 {
			push(t, s.Store, s.repo, newImage("one"), "v1")
			must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		}
		wantTrash(t, s.Store, s.repo.UID, "tag v1")
	},
	"a manifest is gone for readers, and comes back with its tags": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		push(t, s.Store, s.repo, m, "v2")
		before := stored(t, s)
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		_, err := s.Manifest(t.Context(), s.repo.UID, m.Digest)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: m.Digest})
		if n, err := s.CountManifests(t.Context(), s.org.UID); n != 0 || err != nil {
			t.Errorf("%d manifests, %v", n, err)
		}
		all := wantTrash(t, s.Store, s.repo.UID, "manifest "+m.Digest, "tag v1", "tag v2")
		if got := all["manifest "+m.Digest]; got.Size != int64(len(m.Body))+3 || got.MediaType != m.MediaType {
			t.Errorf("entry = %+v", got)
		}
		collectAll(t, s.Store)
		if now := stored(t, s); now != before || !blobExists(t, s.Store, "one") {
			t.Errorf("%d bytes, before %d", now, before)
		}
		_, err = s.Blob(t.Context(), s.repo.UID, digest("one")) // the collector has removed the blob from the repo
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "blob", Name: digest("one")})
		if got := restore(t, s.Store, all["manifest "+m.Digest], registrydb.Restoration{}); len(got) != 3 {
			t.Errorf("restored %v", got)
		}
		for _, tag := range []string{"v1", "v2"} {
			got, err := s.Manifest(t.Context(), s.repo.UID, tag)
			if err != nil || string(got.Body) != string(m.Body) {
				t.Errorf("%s = %v, %v", tag, got, err)
			}
		}
		if b, err := s.Blob(t.Context(), s.repo.UID, digest("one")); err != nil || b.Size != 3 || stored(t, s) != before {
			t.Errorf("blob = %v, %v; %d bytes", b, err, stored(t, s))
		}
		collectAll(t, s.Store)
		if _, err := s.Blob(t.Context(), s.repo.UID, digest("one")); err != nil {
			t.Error(err)
		}
	},
	"a manifest comes back without its tags if that is asked for": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		addImage(t, s.Store, s.repo, "v1", "two")
		e := trashed(t, s.Store, s.repo.UID)["manifest "+m.Digest]
		_, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("error = %v", err)
		}
		restore(t, s.Store, e, registrydb.Restoration{WithoutTags: true})
		if _, err := s.Manifest(t.Context(), s.repo.UID, m.Digest); err != nil {
			t.Error(err)
		}
		wantTrash(t, s.Store, s.repo.UID, "tag v1")
	},
	"a tag comes back with its manifest": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		push(t, s.Store, s.repo, m, "v2")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		restore(t, s.Store, trashed(t, s.Store, s.repo.UID)["tag v1"], registrydb.Restoration{})
		if got, err := s.Manifest(t.Context(), s.repo.UID, "v1"); err != nil || got.Digest != m.Digest {
			t.Errorf("v1 = %v, %v", got, err)
		}
		wantTrash(t, s.Store, s.repo.UID, "tag v2")
	},
	"an index comes back with its children and what is about them": func(t *testing.T, s shelf) {
		image := addImage(t, s.Store, s.repo, "", "one")
		index := push(t, s.Store, s.repo, newIndex("i", "one"), "v1")
		early := push(t, s.Store, s.repo, referrer("early", image))
		late := push(t, s.Store, s.repo, referrer("late", image))
		about := push(t, s.Store, s.repo, referrer("about", late))
		before := stored(t, s)
		clock(s, time.Second)
		// deleted by itself, not together with the index
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, early.Digest, nil))
		for _, m := range []registry.Manifest{index, image, late, about} {
			clock(s, time.Second)
			must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		}
		collectAll(t, s.Store)
		restore(t, s.Store, trashed(t, s.Store, s.repo.UID)["manifest "+index.Digest], registrydb.Restoration{})
		for _, m := range []registry.Manifest{index, image, late, about} {
			if _, err := s.Manifest(t.Context(), s.repo.UID, m.Digest); err != nil {
				t.Error(err)
			}
		}
		wantTrash(t, s.Store, s.repo.UID, "manifest "+early.Digest)
		if now := stored(t, s); now != before {
			t.Errorf("%d bytes, before %d", now, before)
		}
		wantFault(t, s.DeleteManifest(t.Context(), s.repo.UID, image.Digest, nil), fault.FailedPrecondition, fault.Resource{})
	},
	"a manifest that is pushed again and deleted again is in the trash once": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		before := stored(t, s)
		for range 3 {
			must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
			push(t, s.Store, s.repo, m, "v1")
		}
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		wantTrash(t, s.Store, s.repo.UID, "manifest "+m.Digest, "tag v1")
		if now := stored(t, s); now != before {
			t.Errorf("%d bytes, before %d", now, before)
		}
	},
	"a manifest that was pushed again is restored already": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		push(t, s.Store, s.repo, m)
		restore(t, s.Store, trashed(t, s.Store, s.repo.UID)["manifest "+m.Digest], registrydb.Restoration{})
		if _, err := s.Manifest(t.Context(), s.repo.UID, "v1"); err != nil {
			t.Error(err)
		}
		wantTrash(t, s.Store, s.repo.UID)
	},
	"a blob that is deleted stays for what is in the trash": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		must(t, s.DeleteBlob(t.Context(), s.repo.UID, digest("one")))
		_, err := s.Blob(t.Context(), s.repo.UID, digest("one"))
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "blob", Name: digest("one")})
		addBlob(t, s.Store, s.repo, "one")
		must(t, s.DeleteBlob(t.Context(), s.repo.UID, digest("one")))
		collectAll(t, s.Store)
		restore(t, s.Store, trashed(t, s.Store, s.repo.UID)["manifest "+m.Digest], registrydb.Restoration{})
		if _, err := s.Blob(t.Context(), s.repo.UID, digest("one")); err != nil {
			t.Error(err)
		}
	},
	"what the trash needs and is lost is named": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		_, err := s.Exec(t.Context(), `DELETE FROM repo_blobs`)
		must(t, err)
		_, err = s.Restore(t.Context(), trashed(t, s.Store, s.repo.UID)["tag v1"].UID, registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), digest("one")+" is gone") {
			t.Errorf("error = %v", err)
		}
		must(t, recount.CorrectBytes(t.Context(), s.DB))
	},
	"a repo comes back whole": func(t *testing.T, s shelf) {
		ctx := t.Context()
		image := addImage(t, s.Store, s.repo, "v1", "one")
		index := push(t, s.Store, s.repo, newIndex("i", "one"), "v2", "sha256-x.sig")
		gone := addImage(t, s.Store, s.repo, "old", "two")
		must(t, s.DeleteManifest(ctx, s.repo.UID, gone.Digest, nil))
		must(t, s.InsertDeployment(ctx, newDeployment(s.repo.UID)))
		must(t, s.UpdateRepoReadme(ctx, registry.RepoReadme{UID: s.repo.UID, Content: "# hi"}))
		addBlob(t, s.Store, s.repo, "unneeded")
		before, tags := stored(t, s), s.names(t, resource.Filter{}, "name")
		moves, err := s.TagHistory(ctx, s.repo.UID, "", page.Request{Size: 10})
		must(t, err)
		must(t, s.DeleteRepo(ctx, s.repo.UID))
		if got := s.names(t, resource.Filter{}, "name"); got != nil {
			t.Errorf("tags = %v", got)
		}
		collectAll(t, s.Store)
		all := wantTrash(t, s.Store, s.repo.UID, "repo app", "manifest "+gone.Digest, "tag old")
		if now := stored(t, s); now != before-int64(len("unneeded")) {
			t.Errorf("%d bytes, before %d", now, before)
		}
		_, err = s.Restore(ctx, all["tag old"].UID, registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "restore it first") {
			t.Errorf("error = %v", err)
		}
		restore(t, s.Store, all["repo app"], registrydb.Restoration{})
		back, err := s.Repo(ctx, s.repo.UID)
		must(t, err)
		if back.Name != "app" || !back.CreateTime.Equal(s.repo.CreateTime) {
			t.Errorf("repo = %v", back)
		}
		for tag, m := range map[string]registry.Manifest{"v1": image, "v2": index} {
			if got, err := s.Manifest(ctx, s.repo.UID, tag); err != nil || got.Digest != m.Digest {
				t.Errorf("%s = %v, %v", tag, got, err)
			}
		}
		if diff := cmp.Diff(tags, s.names(t, resource.Filter{}, "name")); diff != "" {
			t.Error(diff)
		}
		again, err := s.TagHistory(ctx, s.repo.UID, "", page.Request{Size: 10})
		must(t, err)
		for i := range again.Items {
			again.Items[i].Seq, moves.Items[i].Seq = 0, 0
		}
		if diff := cmp.Diff(moves.Items, again.Items); diff != "" {
			t.Error(diff)
		}
		readme, err := s.RepoReadme(ctx, s.repo.UID)
		if err != nil || readme.Content != "# hi" {
			t.Errorf("readme = %v, %v", readme, err)
		}
		wantSame(t, s.Deployment, s.repo.UID, newDeployment(s.repo.UID))
		restore(t, s.Store, all["tag old"], registrydb.Restoration{})
		wantTrash(t, s.Store, s.org.UID)
		if uid, err := s.RepoAt(ctx, []string{"org", "folder", "app"}); uid != s.repo.UID || err != nil {
			t.Errorf("repo at its path = %s, %v", uid, err)
		}
	},
	"a repo does not come back in the place of another": func(t *testing.T, s shelf) {
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		addRepo(t, s.Store, s.folder.UID, "app")
		_, err := s.Restore(t.Context(), trashed(t, s.Store, s.org.UID)["repo app"].UID,
			registrydb.Restoration{Replace: true})
		wantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "repo", Name: "app"})
	},
	"a repo is restored within the budget": func(t *testing.T, s shelf) {
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		_, err := s.UpdateBudget(t.Context(), resource.Budget{UID: s.org.UID},
			resource.Budget{UID: s.org.UID, Limits: map[resource.Metric]int64{resource.BudgetRepos: 0}, CreateTime: epoch})
		must(t, err)
		_, err = s.Restore(t.Context(), trashed(t, s.Store, s.org.UID)["repo app"].UID, registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("error = %v", err)
		}
	},
	"the trash keeps no group, and goes with it": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		addImage(t, s.Store, s.repo, "v2", "two")
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		must(t, s.DeleteGroup(t.Context(), s.folder.UID, ""))
		wantTrash(t, s.Store, s.org.UID)
		if n := stored(t, s); n != 0 {
			t.Errorf("%d bytes", n)
		}
		collectAll(t, s.Store)
		if blobExists(t, s.Store, "one") || blobExists(t, s.Store, "two") {
			t.Error("its blobs are stored")
		}
	},
	"what has expired is gone for good": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		clock(s, time.Hour)
		addImage(t, s.Store, s.repo, "v2", "two")
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		if n, err := s.ExpireTrash(t.Context(), s.Now().Add(week-time.Minute), 100); n != 2 || err != nil {
			t.Errorf("%d expired, %v", n, err)
		}
		wantTrash(t, s.Store, s.org.UID, "repo app")
		collectAll(t, s.Store)
		if blobExists(t, s.Store, "one") || !blobExists(t, s.Store, "two") {
			t.Error("not the blobs of what has expired are gone")
		}
		if n, err := s.ExpireTrash(t.Context(), s.Now().Add(week), 100); n != 1 || err != nil {
			t.Errorf("%d expired, %v", n, err)
		}
		collectAll(t, s.Store)
		if n := stored(t, s); n != 0 || blobExists(t, s.Store, "two") {
			t.Errorf("%d bytes", n)
		}
	},
	"emptying takes what is below a place": func(t *testing.T, s shelf) {
		other := addRepo(t, s.Store, s.org.UID, "other")
		for _, r := range []registry.Repo{s.repo, other} {
			addImage(t, s.Store, r, "v1", "one")
			must(t, s.DeleteManifest(t.Context(), r.UID, newImage("one").Digest, nil))
		}
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		if n, bytes, err := s.MeasureTrash(t.Context(), s.folder.UID, s.Now().Add(time.Hour)); n != 3 || bytes != 6+3 ||
			err != nil {
			t.Errorf("%d entries, %d bytes, %v", n, bytes, err)
		}
		_, _, err := s.MeasureTrash(t.Context(), s.org.UID.NewChild(), s.Now())
		wantFault(t, err, fault.NotFound, fault.Resource{})
		if n, err := s.EmptyTrash(t.Context(), s.folder.UID, s.Now().Add(time.Hour), 100); n != 3 || err != nil {
			t.Errorf("%d entries, %v", n, err)
		}
		wantTrash(t, s.Store, s.org.UID, "tag v1", "manifest "+newImage("one").Digest)
		if n, err := s.EmptyTrash(t.Context(), s.org.UID, s.Now().Add(-time.Hour), 100); n != 0 || err != nil {
			t.Errorf("%d entries older than an hour, %v", n, err)
		}
		must(t, s.DeleteTrash(t.Context(), trashed(t, s.Store, s.org.UID)["tag v1"].UID))
		wantTrash(t, s.Store, s.org.UID, "manifest "+newImage("one").Digest)
		wantFault(t, s.DeleteTrash(t.Context(), s.repo.UID.NewChild()), fault.NotFound, fault.Resource{})
	},
	"every change of the trash has its event": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "v1", "one")
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		restore(t, s.Store, trashed(t, s.Store, s.org.UID)["tag v1"], registrydb.Restoration{})
		must(t, s.DeleteTagNamed(t.Context(), s.repo.UID, "v1", nil))
		must(t, s.DeleteTrash(t.Context(), trashed(t, s.Store, s.org.UID)["tag v1"].UID))
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		must(t, s.DeleteTrash(t.Context(), trashed(t, s.Store, s.org.UID)["repo app"].UID))
		var got []string
		for _, e := range events(t, s.Store) {
			if strings.Contains(string(e.Type), "trash") {
				got = append(got, fmt.Sprint(e.Type, " ", e.Group == s.folder.UID))
			}
		}
		want := []string{"platform.registry.trash.restored.v1 true", "platform.registry.trash.deleted.v1 true",
			"platform.registry.trash.deleted.v1 true"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
	"an image that comes back is inspected": func(t *testing.T, s shelf) {
		m := newImage("one")
		m.ArtifactType = registry.ImageConfigs[0]
		addBlob(t, s.Store, s.repo, "one")
		push(t, s.Store, s.repo, m, "v1")
		must(t, s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil))
		for _, delete := range []func() error{
			func() error { return s.DeleteManifest(t.Context(), s.repo.UID, m.Digest, nil) },
			func() error { return s.DeleteRepo(t.Context(), s.repo.UID) },
		} {
			if n, err := s.QueueLength(t.Context()); n != 0 || err != nil {
				t.Errorf("%d images in the queue, %v", n, err)
			}
			for _, e := range trashed(t, s.Store, s.org.UID) {
				if e.Kind != registry.TrashTag {
					restore(t, s.Store, e, registrydb.Restoration{})
				}
			}
			if n, err := s.QueueLength(t.Context()); n != 1 || err != nil {
				t.Errorf("%d images in the queue, %v", n, err)
			}
			must(t, delete())
		}
	},
}

// clock moves the clock of a store forward.
func clock(s shelf, by time.Duration) {
	now := s.Now().Add(by)
	s.DB.Now = func() time.Time { return now }
}

// keepPromises runs tests on repos whose deleted images can be restored.
func keepPromises(t *testing.T, promises map[string]func(*testing.T, shelf)) {
	t.Parallel()
	for name, promise := range promises {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, s *storetest.Store) {
				shelf := newShelf(t, s)
				s.KeepTrash = week
				promise(t, shelf)
				wantExact(t, s)
			})
		})
	}
}

func TestTrashPromises(t *testing.T) {
	keepPromises(t, trashPromises)
}

// trashDuels contains pairs of conflicting writes to the trash.
var trashDuels = map[string]func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel{
	"delete a manifest and push it": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		m := addImage(t, s, r, "t-"+word, word)
		return duel{
			func() error { return s.DeleteManifest(t.Context(), r.UID, m.Digest, nil) },
			func() error { _, err := s.PutManifest(t.Context(), ref(r), m, []string{"t-" + word}); return err },
			func(a, b error) error { // the image exists, or it can be restored
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return thereOrRestored(t, s, r, word)
			},
		}
	},
	"delete a manifest and collect its blob": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		m := addImage(t, s, r, "t-"+word, word)
		now := s.Now().Add(time.Hour)
		must(t, markIdle(t, s, r, word))
		return duel{
			func() error { return s.DeleteManifest(t.Context(), r.UID, m.Digest, nil) },
			func() error { _, _, err := s.UnlinkIdle(t.Context(), now, 1000); return err },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return thereOrRestored(t, s, r, word)
			},
		}
	},
	"restore a manifest and collect its blob": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		e := deleted(t, s, r, word)
		must(t, markIdle(t, s, r, word))
		now := s.Now().Add(time.Hour)
		return duel{
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { _, _, err := s.UnlinkIdle(t.Context(), now, 1000); return err },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return wholeAt(t, s, r, word)
			},
		}
	},
	"restore a manifest and sweep the trash": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		e := deleted(t, s, r, word)
		must(t, s.DeleteBlob(t.Context(), r.UID, digest(word))) // moves the blob to the trash
		addBlob(t, s, r, word)                                  // the blob is in the repo again, too
		return duel{
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { _, err := s.SweepTrashBlobs(t.Context(), 100); return err },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return wholeAt(t, s, r, word)
			},
		}
	},
	"sweep a blob and delete it from the repo": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		deleted(t, s, r, word)
		must(t, s.DeleteBlob(t.Context(), r.UID, digest(word)))
		addBlob(t, s, r, word)
		return duel{
			func() error { _, err := s.SweepTrashBlobs(t.Context(), 100); return err },
			func() error { return s.DeleteBlob(t.Context(), r.UID, digest(word)) },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return thereOrRestored(t, s, r, word)
			},
		}
	},
	"restore a manifest twice": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		e := deleted(t, s, r, word)
		again := func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err }
		return duel{again, again, oneOf(fault.NotFound, fault.NotFound)}
	},
	"restore a manifest and its tag": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		e := deleted(t, s, r, word)
		tag := trashed(t, s, r.UID)["tag t-"+word]
		return duel{
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { _, err := s.Restore(t.Context(), tag.UID, registrydb.Restoration{}); return err },
			func(a, b error) error {
				if a != nil && !errors.Is(a, fault.NotFound) || b != nil && !errors.Is(b, fault.NotFound) {
					return errors.Join(a, b)
				}
				return wholeAt(t, s, r, word)
			},
		}
	},
	"restore a manifest and push it": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		e := deleted(t, s, r, word)
		return duel{
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			pushing(t, s, r, newImage(word)),
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return wholeAt(t, s, r, word)
			},
		}
	},
	"restore a manifest and remove it for good": func(t *testing.T, s *storetest.Store, r registry.Repo,
		word string) duel {
		e := deleted(t, s, r, word)
		return duel{
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { return s.DeleteTrash(t.Context(), e.UID) },
			oneOf(fault.NotFound, fault.NotFound),
		}
	},
	"restore a repo and delete its group": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		g := addGroup(t, s, r.UID.Parent(), "g-"+word)
		own := addRepo(t, s, g.UID, "own")
		must(t, s.DeleteRepo(t.Context(), own.UID))
		e := trashed(t, s, own.UID)["repo own"]
		return duel{
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	// Recording the history of a tag would lock the repo. Without a tag, only binOf prevents both writes from
	// copying the manifest to the trash.
	"delete a repo and a manifest of it that has no tag": func(t *testing.T, s *storetest.Store, r registry.Repo,
		word string) duel {
		own := addRepo(t, s, r.UID.Parent(), "own-"+word)
		m := addImage(t, s, own, "", word)
		return duel{
			func() error { return s.DeleteManifest(t.Context(), own.UID, m.Digest, nil) },
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			func(a, b error) error {
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				all := trashed(t, s, own.UID)
				if _, alone := all["manifest "+m.Digest]; alone != (a == nil) {
					return fmt.Errorf("deleting the manifest returned %v, and in the trash is %v", a, all)
				}
				if _, err := s.Restore(t.Context(), all["repo "+own.Name].UID, registrydb.Restoration{}); err != nil {
					return err
				}
				if _, err := s.Manifest(t.Context(), own.UID, m.Digest); errors.Is(err, fault.NotFound) != (a == nil) {
					return fmt.Errorf("deleting the manifest returned %v, and with the repo it came back: %v", a, err)
				}
				return nil
			},
		}
	},
	"delete a repo and a manifest of it": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		own := addRepo(t, s, r.UID.Parent(), "own-"+word)
		m := addImage(t, s, own, "t-"+word, word)
		return duel{
			func() error { return s.DeleteManifest(t.Context(), own.UID, m.Digest, nil) },
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			func(a, b error) error {
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				if _, err := s.Restore(t.Context(), trashed(t, s, own.UID)["repo "+own.Name].UID,
					registrydb.Restoration{}); err != nil {
					return err
				}
				return thereOrRestored(t, s, own, word)
			},
		}
	},
}

// deleted pushes an image, deletes its manifest, and returns the manifest's entry in the trash.
func deleted(t *testing.T, s *storetest.Store, r registry.Repo, word string) registry.TrashEntry {
	t.Helper()
	m := addImage(t, s, r, "t-"+word, word)
	must(t, s.DeleteManifest(t.Context(), r.UID, m.Digest, nil))
	return trashed(t, s, r.UID)["manifest "+m.Digest]
}

// markIdle marks a blob as the collector does if nothing needs the blob.
func markIdle(t *testing.T, s *storetest.Store, r registry.Repo, word string) error {
	_, err := s.Exec(t.Context(), `UPDATE repo_blobs SET idle_ms = 1 WHERE repo = $1 AND digest = $2`,
		store.Segment(r.UID), digest(word))
	return err
}

// wholeAt returns an error unless the tag for a word names its image and the repo has the blob.
func wholeAt(t *testing.T, s *storetest.Store, r registry.Repo, word string) error {
	m, err := s.Manifest(t.Context(), r.UID, "t-"+word)
	if err == nil && m.Digest != newImage(word).Digest {
		err = fmt.Errorf("the tag stands for %s", m.Digest)
	}
	_, lost := s.Blob(t.Context(), r.UID, digest(word))
	return errors.Join(err, lost)
}

// thereOrRestored restores the image for a word if it does not exist, and checks that it is
// complete.
func thereOrRestored(t *testing.T, s *storetest.Store, r registry.Repo, word string) error {
	unheld, err := s.UnheldBlobs(t.Context(), "", 1000)
	must(t, err)
	_, err = s.PurgeUnheld(t.Context(), unheld)
	must(t, err)
	if _, err := s.Manifest(t.Context(), r.UID, "t-"+word); errors.Is(err, fault.NotFound) {
		e := trashed(t, s, r.UID)["tag t-"+word]
		if _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); err != nil {
			return err
		}
	}
	return wholeAt(t, s, r, word)
}

func TestTrashDuels(t *testing.T) {
	const rounds = 20
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		s.KeepTrash = week
		org := addGroup(t, s, "", "org")
		for name, prepare := range trashDuels {
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
