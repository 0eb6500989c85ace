package registrydb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/recount"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

var trashPromises = map[string]func(t *testing.T, s registrytest.Shelf){
	"without a time to keep it, what is deleted is gone": func(t *testing.T, s registrytest.Shelf) {
		s.KeepTrash = 0
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID)
	},
	"settings of a group say how long": func(t *testing.T, s registrytest.Shelf) {
		days := int32(0)
		set := func(r *registry.Settings) error { r.TrashDays = &days; return nil }
		_, err := s.UpdateRegistrySettings(t.Context(), s.Folder.UID, set)
		testkit.Must(t, err)
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID)
		days = 3
		_, err = s.UpdateRegistrySettings(t.Context(), s.Folder.UID, set)
		testkit.Must(t, err)
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewImage("one"), "v1")
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		e := registrytest.WantTrash(t, s.RegistryStore, s.Org.UID, "tag v1")["tag v1"]
		if got := e.ExpireTime.Sub(e.CreateTime); got != 72*time.Hour {
			t.Errorf("kept for %v", got)
		}
	},
	"a tag comes back as it was": func(t *testing.T, s registrytest.Shelf) {
		ctx := resource.WithActor(t.Context(), resource.Actor{Subject: iamtest.Alice})
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		g, err := s.PutTag(ctx, registry.Tag{UID: s.App.UID.NewChild(), Name: "v1", Digest: m.Digest, Deprecated: true,
			Bundles: []string{"b"}}, nil)
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteTag(ctx, g.UID, nil))
		e := registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "tag v1")["tag v1"]
		if e.By != iamtest.Alice || e.RepoName != "app" || e.Digest != m.Digest ||
			e.ExpireTime.Sub(e.CreateTime) != registrytest.Week {
			t.Errorf("entry = %+v", e)
		}
		testkit.WantSame(t, s.TrashEntry, e.UID, e)
		registrytest.Restore(t, s.RegistryStore, e, registrydb.Restoration{})
		back, err := s.Tag(t.Context(), g.UID)
		testkit.Must(t, err)
		if g.UpdateTime = back.UpdateTime; cmp.Diff(g, back) != "" {
			t.Error(cmp.Diff(g, back))
		}
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID)
		_, err = s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "trash entry", Name: string(e.UID)})
	},
	"a tag that stands for something else is replaced only if that is asked for": func(t *testing.T,
		s registrytest.Shelf) {
		one := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		two := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "two")
		e := registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "tag v1")["tag v1"]
		_, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		if err == nil || !strings.Contains(err.Error(), "points to "+two.Digest) ||
			!errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("error = %v", err)
		}
		_, err = s.Restore(t.Context(), e.UID, registrydb.Restoration{Replace: true, Frozen: registrytest.Always})
		if err == nil || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("error = %v", err)
		}
		registrytest.Restore(t, s.RegistryStore, e, registrydb.Restoration{Replace: true})
		g, err := s.TagNamed(t.Context(), s.App.UID, "v1")
		if err != nil || g.Digest != one.Digest {
			t.Errorf("tag = %v, %v", g, err)
		}
	},
	"a tag that was pushed again as it was is restored already": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewImage("one"), "v1")
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore, s.App.UID)["tag v1"],
			registrydb.Restoration{Frozen: registrytest.Always})
		registrytest.WantTrash(t, s.RegistryStore, s.App.UID)
	},
	"a tag that was deleted twice is in the trash once": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		for range 3 {
			registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewImage("one"), "v1")
			testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		}
		registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "tag v1")
	},
	"a manifest is gone for readers, and comes back with its tags": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		registrytest.Push(t, s.RegistryStore, s.App, m, "v2")
		before := registrytest.StoredBytes(t, s)
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		_, err := s.Manifest(t.Context(), s.App.UID, m.Digest)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "manifest", Name: m.Digest})
		if n, err := s.CountManifests(t.Context(), s.Org.UID); n != 0 || err != nil {
			t.Errorf("%d manifests, %v", n, err)
		}
		all := registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "manifest "+m.Digest, "tag v1", "tag v2")
		if got := all["manifest "+m.Digest]; got.Size != int64(len(m.Body))+3 || got.MediaType != m.MediaType {
			t.Errorf("entry = %+v", got)
		}
		registrytest.CollectAll(t, s.Store)
		if now := registrytest.StoredBytes(t, s); now != before || !registrytest.BlobExists(t, s.RegistryStore, "one") {
			t.Errorf("%d bytes, before %d", now, before)
		}
		_, err = s.Blob(t.Context(), s.App.UID,
			registrytest.Digest("one")) // the collector has removed the blob from the repo
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "blob", Name: registrytest.Digest("one")})
		if got := registrytest.Restore(t, s.RegistryStore, all["manifest "+m.Digest],
			registrydb.Restoration{}); len(got) != 3 {
			t.Errorf("restored %v", got)
		}
		for _, tag := range []string{"v1", "v2"} {
			got, err := s.Manifest(t.Context(), s.App.UID, tag)
			if err != nil || string(got.Body) != string(m.Body) {
				t.Errorf("%s = %v, %v", tag, got, err)
			}
		}
		if b, err := s.Blob(t.Context(), s.App.UID, registrytest.Digest("one")); err != nil || b.Size != 3 ||
			registrytest.StoredBytes(t, s) != before {
			t.Errorf("blob = %v, %v; %d bytes", b, err, registrytest.StoredBytes(t, s))
		}
		registrytest.CollectAll(t, s.Store)
		if _, err := s.Blob(t.Context(), s.App.UID, registrytest.Digest("one")); err != nil {
			t.Error(err)
		}
	},
	"a manifest comes back without its tags if that is asked for": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "two")
		e := registrytest.Trashed(t, s.RegistryStore, s.App.UID)["manifest "+m.Digest]
		_, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("error = %v", err)
		}
		registrytest.Restore(t, s.RegistryStore, e, registrydb.Restoration{WithoutTags: true})
		if _, err := s.Manifest(t.Context(), s.App.UID, m.Digest); err != nil {
			t.Error(err)
		}
		registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "tag v1")
	},
	"a tag comes back with its manifest": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		registrytest.Push(t, s.RegistryStore, s.App, m, "v2")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore, s.App.UID)["tag v1"],
			registrydb.Restoration{})
		if got, err := s.Manifest(t.Context(), s.App.UID, "v1"); err != nil || got.Digest != m.Digest {
			t.Errorf("v1 = %v, %v", got, err)
		}
		registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "tag v2")
	},
	"an index comes back with its children and what is about them": func(t *testing.T, s registrytest.Shelf) {
		image := registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		index := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "one"), "v1")
		early := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("early", image))
		late := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("late", image))
		about := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("about", late))
		before := registrytest.StoredBytes(t, s)
		registrytest.MoveClock(s, time.Second)
		// deleted by itself, not together with the index
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, early.Digest, nil))
		for _, m := range []registry.Manifest{index, image, late, about} {
			registrytest.MoveClock(s, time.Second)
			testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		}
		registrytest.CollectAll(t, s.Store)
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore,
			s.App.UID)["manifest "+index.Digest], registrydb.Restoration{})
		for _, m := range []registry.Manifest{index, image, late, about} {
			if _, err := s.Manifest(t.Context(), s.App.UID, m.Digest); err != nil {
				t.Error(err)
			}
		}
		registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "manifest "+early.Digest)
		if now := registrytest.StoredBytes(t, s); now != before {
			t.Errorf("%d bytes, before %d", now, before)
		}
		testkit.WantFault(t, s.DeleteManifest(t.Context(), s.App.UID, image.Digest, nil), fault.FailedPrecondition,
			fault.Resource{})
	},
	"a manifest that is pushed again and deleted again is in the trash once": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		before := registrytest.StoredBytes(t, s)
		for range 3 {
			testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
			registrytest.Push(t, s.RegistryStore, s.App, m, "v1")
		}
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "manifest "+m.Digest, "tag v1")
		if now := registrytest.StoredBytes(t, s); now != before {
			t.Errorf("%d bytes, before %d", now, before)
		}
	},
	"a manifest that was pushed again is restored already": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		registrytest.Push(t, s.RegistryStore, s.App, m)
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore, s.App.UID)["manifest "+m.Digest],
			registrydb.Restoration{})
		if _, err := s.Manifest(t.Context(), s.App.UID, "v1"); err != nil {
			t.Error(err)
		}
		registrytest.WantTrash(t, s.RegistryStore, s.App.UID)
	},
	"a blob that is deleted stays for what is in the trash": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		testkit.Must(t, s.DeleteBlob(t.Context(), s.App.UID, registrytest.Digest("one")))
		_, err := s.Blob(t.Context(), s.App.UID, registrytest.Digest("one"))
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "blob", Name: registrytest.Digest("one")})
		registrytest.AddBlob(t, s.RegistryStore, s.App, "one")
		testkit.Must(t, s.DeleteBlob(t.Context(), s.App.UID, registrytest.Digest("one")))
		registrytest.CollectAll(t, s.Store)
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore, s.App.UID)["manifest "+m.Digest],
			registrydb.Restoration{})
		if _, err := s.Blob(t.Context(), s.App.UID, registrytest.Digest("one")); err != nil {
			t.Error(err)
		}
	},
	"what the trash needs and is lost is named": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		_, err := s.Exec(t.Context(), `DELETE FROM repo_blobs`)
		testkit.Must(t, err)
		_, err = s.Restore(t.Context(), registrytest.Trashed(t, s.RegistryStore, s.App.UID)["tag v1"].UID,
			registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(),
			registrytest.Digest("one")+" is gone") {
			t.Errorf("error = %v", err)
		}
		testkit.Must(t, recount.CorrectBytes(t.Context(), s.DB))
	},
	"a repo comes back whole": func(t *testing.T, s registrytest.Shelf) {
		ctx := t.Context()
		image := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		index := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "one"), "v2", "sha256-x.sig")
		gone := registrytest.AddImage(t, s.RegistryStore, s.App, "old", "two")
		testkit.Must(t, s.DeleteManifest(ctx, s.App.UID, gone.Digest, nil))
		testkit.Must(t, s.InsertDeployment(ctx, registrytest.NewDeployment(s.App.UID)))
		testkit.Must(t, s.UpdateRepoReadme(ctx, registry.RepoReadme{UID: s.App.UID, Content: "# hi"}))
		registrytest.AddBlob(t, s.RegistryStore, s.App, "unneeded")
		before, tags := registrytest.StoredBytes(t, s), names(t, s, resource.Filter{}, "name")
		moves, err := s.TagHistory(ctx, s.App.UID, "", page.Request{Size: 10})
		testkit.Must(t, err)
		testkit.Must(t, s.DeleteRepo(ctx, s.App.UID))
		if got := names(t, s, resource.Filter{}, "name"); got != nil {
			t.Errorf("tags = %v", got)
		}
		registrytest.CollectAll(t, s.Store)
		all := registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "repo app", "manifest "+gone.Digest, "tag old")
		if now := registrytest.StoredBytes(t, s); now != before-int64(len("unneeded")) {
			t.Errorf("%d bytes, before %d", now, before)
		}
		_, err = s.Restore(ctx, all["tag old"].UID, registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "restore it first") {
			t.Errorf("error = %v", err)
		}
		registrytest.Restore(t, s.RegistryStore, all["repo app"], registrydb.Restoration{})
		back, err := s.Repo(ctx, s.App.UID)
		testkit.Must(t, err)
		if back.Name != "app" || !back.CreateTime.Equal(s.App.CreateTime) {
			t.Errorf("repo = %v", back)
		}
		for tag, m := range map[string]registry.Manifest{"v1": image, "v2": index} {
			if got, err := s.Manifest(ctx, s.App.UID, tag); err != nil || got.Digest != m.Digest {
				t.Errorf("%s = %v, %v", tag, got, err)
			}
		}
		if diff := cmp.Diff(tags, names(t, s, resource.Filter{}, "name")); diff != "" {
			t.Error(diff)
		}
		again, err := s.TagHistory(ctx, s.App.UID, "", page.Request{Size: 10})
		testkit.Must(t, err)
		for i := range again.Items {
			again.Items[i].Seq, moves.Items[i].Seq = 0, 0
		}
		if diff := cmp.Diff(moves.Items, again.Items); diff != "" {
			t.Error(diff)
		}
		readme, err := s.RepoReadme(ctx, s.App.UID)
		if err != nil || readme.Content != "# hi" {
			t.Errorf("readme = %v, %v", readme, err)
		}
		testkit.WantSame(t, s.Deployment, s.App.UID, registrytest.NewDeployment(s.App.UID))
		registrytest.Restore(t, s.RegistryStore, all["tag old"], registrydb.Restoration{})
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID)
		if uid, err := s.RepoAt(ctx, []string{"org", "folder", "app"}); uid != s.App.UID || err != nil {
			t.Errorf("repo at its path = %s, %v", uid, err)
		}
	},
	"a repo does not come back in the place of another": func(t *testing.T, s registrytest.Shelf) {
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		registrytest.AddRepo(t, s.RegistryStore, s.Folder.UID, "app")
		_, err := s.Restore(t.Context(), registrytest.Trashed(t, s.RegistryStore, s.Org.UID)["repo app"].UID,
			registrydb.Restoration{Replace: true})
		testkit.WantFault(t, err, fault.AlreadyExists, fault.Resource{Type: "repo", Name: "app"})
	},
	"a repo is restored within the budget": func(t *testing.T, s registrytest.Shelf) {
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		_, err := s.UpdateBudget(t.Context(), resource.Budget{UID: s.Org.UID},
			resource.Budget{UID: s.Org.UID, Limits: map[resource.Metric]int64{resource.BudgetRepos: 0},
				CreateTime: iamtest.Epoch})
		testkit.Must(t, err)
		_, err = s.Restore(t.Context(), registrytest.Trashed(t, s.RegistryStore, s.Org.UID)["repo app"].UID,
			registrydb.Restoration{})
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("error = %v", err)
		}
	},
	"the trash keeps no group, and goes with it": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		registrytest.AddImage(t, s.RegistryStore, s.App, "v2", "two")
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		testkit.Must(t, s.DeleteGroup(t.Context(), s.Folder.UID, ""))
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID)
		if n := registrytest.StoredBytes(t, s); n != 0 {
			t.Errorf("%d bytes", n)
		}
		registrytest.CollectAll(t, s.Store)
		if registrytest.BlobExists(t, s.RegistryStore, "one") || registrytest.BlobExists(t, s.RegistryStore, "two") {
			t.Error("its blobs are stored")
		}
	},
	"what has expired is gone for good": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		registrytest.MoveClock(s, time.Hour)
		registrytest.AddImage(t, s.RegistryStore, s.App, "v2", "two")
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		if n, err := s.ExpireTrash(t.Context(), s.Now().Add(registrytest.Week-time.Minute), 100); n != 2 || err != nil {
			t.Errorf("%d expired, %v", n, err)
		}
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID, "repo app")
		registrytest.CollectAll(t, s.Store)
		if registrytest.BlobExists(t, s.RegistryStore, "one") || !registrytest.BlobExists(t, s.RegistryStore, "two") {
			t.Error("not the blobs of what has expired are gone")
		}
		if n, err := s.ExpireTrash(t.Context(), s.Now().Add(registrytest.Week), 100); n != 1 || err != nil {
			t.Errorf("%d expired, %v", n, err)
		}
		registrytest.CollectAll(t, s.Store)
		if n := registrytest.StoredBytes(t, s); n != 0 || registrytest.BlobExists(t, s.RegistryStore, "two") {
			t.Errorf("%d bytes", n)
		}
	},
	"emptying takes what is below a place": func(t *testing.T, s registrytest.Shelf) {
		other := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		for _, r := range []registry.Repo{s.App, other} {
			registrytest.AddImage(t, s.RegistryStore, r, "v1", "one")
			testkit.Must(t, s.DeleteManifest(t.Context(), r.UID, registrytest.NewImage("one").Digest, nil))
		}
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		if n, bytes, err := s.MeasureTrash(t.Context(), s.Folder.UID, s.Now().Add(time.Hour)); n != 3 || bytes != 6+3 ||
			err != nil {
			t.Errorf("%d entries, %d bytes, %v", n, bytes, err)
		}
		_, _, err := s.MeasureTrash(t.Context(), s.Org.UID.NewChild(), s.Now())
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		if n, err := s.EmptyTrash(t.Context(), s.Folder.UID, s.Now().Add(time.Hour), 100); n != 3 || err != nil {
			t.Errorf("%d entries, %v", n, err)
		}
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID, "tag v1", "manifest "+registrytest.NewImage("one").Digest)
		if n, err := s.EmptyTrash(t.Context(), s.Org.UID, s.Now().Add(-time.Hour), 100); n != 0 || err != nil {
			t.Errorf("%d entries older than an hour, %v", n, err)
		}
		testkit.Must(t, s.DeleteTrash(t.Context(), registrytest.Trashed(t, s.RegistryStore, s.Org.UID)["tag v1"].UID))
		registrytest.WantTrash(t, s.RegistryStore, s.Org.UID, "manifest "+registrytest.NewImage("one").Digest)
		testkit.WantFault(t, s.DeleteTrash(t.Context(), s.App.UID.NewChild()), fault.NotFound, fault.Resource{})
	},
	"every change of the trash has its event": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore, s.Org.UID)["tag v1"],
			registrydb.Restoration{})
		testkit.Must(t, s.DeleteTagNamed(t.Context(), s.App.UID, "v1", nil))
		testkit.Must(t, s.DeleteTrash(t.Context(), registrytest.Trashed(t, s.RegistryStore, s.Org.UID)["tag v1"].UID))
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		testkit.Must(t, s.DeleteTrash(t.Context(), registrytest.Trashed(t, s.RegistryStore, s.Org.UID)["repo app"].UID))
		var got []string
		for _, e := range dbtest.Events(t, s.DB) {
			if strings.Contains(string(e.Type), "trash") {
				got = append(got, fmt.Sprint(e.Type, " ", e.Group == s.Folder.UID))
			}
		}
		want := []string{"platform.registry.trash.restored.v1 true", "platform.registry.trash.deleted.v1 true",
			"platform.registry.trash.deleted.v1 true"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
	"an image that comes back is inspected": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.NewImage("one")
		m.ArtifactType = registry.ImageConfigs[0]
		registrytest.AddBlob(t, s.RegistryStore, s.App, "one")
		registrytest.Push(t, s.RegistryStore, s.App, m, "v1")
		testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil))
		for _, delete := range []func() error{
			func() error { return s.DeleteManifest(t.Context(), s.App.UID, m.Digest, nil) },
			func() error { return s.DeleteRepo(t.Context(), s.App.UID) },
		} {
			if n, err := s.QueueLength(t.Context()); n != 0 || err != nil {
				t.Errorf("%d images in the queue, %v", n, err)
			}
			for _, e := range registrytest.Trashed(t, s.RegistryStore, s.Org.UID) {
				if e.Kind != registry.TrashTag {
					registrytest.Restore(t, s.RegistryStore, e, registrydb.Restoration{})
				}
			}
			if n, err := s.QueueLength(t.Context()); n != 1 || err != nil {
				t.Errorf("%d images in the queue, %v", n, err)
			}
			testkit.Must(t, delete())
		}
	},
}

func TestTrashPromises(t *testing.T) {
	registrytest.KeepPromises(t, trashPromises)
}

// trashDuels contains pairs of conflicting writes to the trash.
var trashDuels = map[string]func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel{
	"delete a manifest and push it": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		m := registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		return dbtest.NewDuel(
			func() error { return s.DeleteManifest(t.Context(), r.UID, m.Digest, nil) },
			func() error {
				_, err := s.PutManifest(t.Context(), registrytest.Ref(r), m, []string{"t-" + word})
				return err
			},
			func(a, b error) error { // the image exists, or it can be restored
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return registrytest.CheckRestorable(t, s, r, word)
			},
		)
	},
	"delete a manifest and collect its blob": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		m := registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		now := s.Now().Add(time.Hour)
		testkit.Must(t, markIdle(t, s, r, word))
		return dbtest.NewDuel(
			func() error { return s.DeleteManifest(t.Context(), r.UID, m.Digest, nil) },
			func() error { _, _, err := s.UnlinkIdle(t.Context(), now, 1000); return err },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return registrytest.CheckRestorable(t, s, r, word)
			},
		)
	},
	"restore a manifest and collect its blob": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		e := registrytest.AddDeleted(t, s.RegistryStore, r, word)
		testkit.Must(t, markIdle(t, s, r, word))
		now := s.Now().Add(time.Hour)
		return dbtest.NewDuel(
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { _, _, err := s.UnlinkIdle(t.Context(), now, 1000); return err },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return registrytest.CheckWhole(t, s.RegistryStore, r, word)
			},
		)
	},
	"restore a manifest and sweep the trash": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		e := registrytest.AddDeleted(t, s.RegistryStore, r, word)
		testkit.Must(t, s.DeleteBlob(t.Context(), r.UID, registrytest.Digest(word))) // moves the blob to the trash
		registrytest.AddBlob(t, s.RegistryStore, r, word)                            // the blob is in the repo again, too
		return dbtest.NewDuel(
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { _, err := s.SweepTrashBlobs(t.Context(), 100); return err },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return registrytest.CheckWhole(t, s.RegistryStore, r, word)
			},
		)
	},
	"sweep a blob and delete it from the repo": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddDeleted(t, s.RegistryStore, r, word)
		testkit.Must(t, s.DeleteBlob(t.Context(), r.UID, registrytest.Digest(word)))
		registrytest.AddBlob(t, s.RegistryStore, r, word)
		return dbtest.NewDuel(
			func() error { _, err := s.SweepTrashBlobs(t.Context(), 100); return err },
			func() error { return s.DeleteBlob(t.Context(), r.UID, registrytest.Digest(word)) },
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return registrytest.CheckRestorable(t, s, r, word)
			},
		)
	},
	"restore a manifest twice": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		e := registrytest.AddDeleted(t, s.RegistryStore, r, word)
		again := func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err }
		return dbtest.NewDuel(again, again, dbtest.OneOf(fault.NotFound, fault.NotFound))
	},
	"restore a manifest and its tag": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		e := registrytest.AddDeleted(t, s.RegistryStore, r, word)
		tag := registrytest.Trashed(t, s.RegistryStore, r.UID)["tag t-"+word]
		return dbtest.NewDuel(
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { _, err := s.Restore(t.Context(), tag.UID, registrydb.Restoration{}); return err },
			func(a, b error) error {
				if a != nil && !errors.Is(a, fault.NotFound) || b != nil && !errors.Is(b, fault.NotFound) {
					return errors.Join(a, b)
				}
				return registrytest.CheckWhole(t, s.RegistryStore, r, word)
			},
		)
	},
	"restore a manifest and push it": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		e := registrytest.AddDeleted(t, s.RegistryStore, r, word)
		return dbtest.NewDuel(
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			pushing(t, s, r, registrytest.NewImage(word)),
			func(a, b error) error {
				if err := errors.Join(a, b); err != nil {
					return err
				}
				return registrytest.CheckWhole(t, s.RegistryStore, r, word)
			},
		)
	},
	"restore a manifest and remove it for good": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		e := registrytest.AddDeleted(t, s.RegistryStore, r, word)
		return dbtest.NewDuel(
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { return s.DeleteTrash(t.Context(), e.UID) },
			dbtest.OneOf(fault.NotFound, fault.NotFound),
		)
	},
	"restore a repo and delete its group": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		g := iamtest.AddGroup(t, s.IAMStore, r.UID.Parent(), "g-"+word)
		own := registrytest.AddRepo(t, s.RegistryStore, g.UID, "own")
		testkit.Must(t, s.DeleteRepo(t.Context(), own.UID))
		e := registrytest.Trashed(t, s.RegistryStore, own.UID)["repo own"]
		return dbtest.NewDuel(
			func() error { _, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{}); return err },
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	// Recording the history of a tag would lock the repo. Without a tag, only binOf prevents both writes from
	// copying the manifest to the trash.
	"delete a repo and a manifest of it that has no tag": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		own := registrytest.AddRepo(t, s.RegistryStore, r.UID.Parent(), "own-"+word)
		m := registrytest.AddImage(t, s.RegistryStore, own, "", word)
		return dbtest.NewDuel(
			func() error { return s.DeleteManifest(t.Context(), own.UID, m.Digest, nil) },
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			func(a, b error) error {
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				all := registrytest.Trashed(t, s.RegistryStore, own.UID)
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
		)
	},
	"delete a repo and a manifest of it": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		own := registrytest.AddRepo(t, s.RegistryStore, r.UID.Parent(), "own-"+word)
		m := registrytest.AddImage(t, s.RegistryStore, own, "t-"+word, word)
		return dbtest.NewDuel(
			func() error { return s.DeleteManifest(t.Context(), own.UID, m.Digest, nil) },
			func() error { return s.DeleteRepo(t.Context(), own.UID) },
			func(a, b error) error {
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				if _, err := s.Restore(t.Context(), registrytest.Trashed(t, s.RegistryStore, own.UID)["repo "+own.Name].UID,
					registrydb.Restoration{}); err != nil {
					return err
				}
				return registrytest.CheckRestorable(t, s, own, word)
			},
		)
	},
}

// markIdle marks a blob as the collector does if nothing needs the blob.
func markIdle(t *testing.T, s *registrytest.Store, r registry.Repo, word string) error {
	_, err := s.Exec(t.Context(), `UPDATE repo_blobs SET idle_ms = 1 WHERE repo = $1 AND digest = $2`,
		store.Segment(r.UID), registrytest.Digest(word))
	return err
}

func TestTrashDuels(t *testing.T) {
	const rounds = 20
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		s.KeepTrash = registrytest.Week
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		for name, prepare := range trashDuels {
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
