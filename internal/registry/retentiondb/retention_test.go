package retentiondb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const day = 24 * time.Hour

// keep sets the retention rules of the shelf's repo.
func keep(t *testing.T, s registrytest.Shelf, r registry.Retention) registry.Retention {
	t.Helper()
	if r.UID == "" {
		r.UID = s.App.UID
	}
	testkit.Must(t, r.Validate())
	r, err := s.SetRetention(t.Context(), r)
	testkit.Must(t, err)
	return r
}

// preview returns the plan of a dry run, and the plan in a few words. It checks that the dry run
// changes nothing.
func preview(t *testing.T, s registrytest.Shelf) (retentiondb.RetentionPlan, []string) {
	t.Helper()
	before := dbtest.Everything(t, s.DB)
	plan, err := s.ApplyRetention(resource.WithDryRun(t.Context()), s.App.UID, retentiondb.RetentionOrder{})
	testkit.Must(t, err)
	after := dbtest.Everything(t, s.DB)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a preview has changed something:\n%s", diff)
	}
	return plan, words(plan)
}

// words returns the tags that a plan deletes, and the digests of untagged manifests.
func words(plan retentiondb.RetentionPlan) (all []string) {
	for _, g := range plan.Going {
		name := strings.Join(g.Tags, "+")
		if name == "" {
			name = g.Digest
		}
		all = append(all, name)
	}
	return all
}

// run applies the rules of the repo and checks that exactly the images in plan are deleted.
func run(t *testing.T, s registrytest.Shelf, plan retentiondb.RetentionPlan) retentiondb.RetentionPlan {
	t.Helper()
	before := digests(t, s)
	done, err := s.ApplyRetention(t.Context(), s.App.UID, retentiondb.RetentionOrder{Fingerprint: plan.Fingerprint})
	testkit.Must(t, err)
	if diff := cmp.Diff(plan.Going, done.Going); diff != "" || plan.Bytes != done.Bytes || plan.Tags != done.Tags {
		t.Errorf("the run has not done what was planned:\n%s", diff)
	}
	for _, g := range done.Going {
		for _, digest := range append(g.With, g.Digest) {
			if !before[digest] {
				t.Errorf("%s was not there, or went twice", digest)
			}
			delete(before, digest)
		}
	}
	if diff := cmp.Diff(before, digests(t, s)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	return done
}

// digests returns the digests of the manifests in the repo.
func digests(t *testing.T, s registrytest.Shelf) map[string]bool {
	t.Helper()
	all, err := store.ReadColumn[string](t.Context(), s.Rows, `SELECT digest FROM manifests WHERE repo = $1`,
		store.Segment(s.App.UID))
	testkit.Must(t, err)
	there := map[string]bool{}
	for _, digest := range all {
		there[digest] = true
	}
	return there
}

// wantGoing checks that the rules would delete the images want, in any order, and then applies the
// rules.
func wantGoing(t *testing.T, s registrytest.Shelf, want ...string) retentiondb.RetentionPlan {
	t.Helper()
	plan, got := preview(t, s)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("going = %v, want %v; kept %v", got, want, plan.Kept)
	}
	return run(t, s, plan)
}

// wantKept checks how many images each rule keeps.
func wantKept(t *testing.T, plan retentiondb.RetentionPlan, want map[registry.KeepReason]int) {
	t.Helper()
	if diff := cmp.Diff(want, plan.Kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// images pushes an image for each tag, each a day after the previous one.
func images(t *testing.T, s registrytest.Shelf, tags ...string) {
	t.Helper()
	for _, tag := range tags {
		registrytest.AddImage(t, s.RegistryStore, s.App, tag, tag)
		registrytest.MoveClock(s, day)
	}
}

func record(t *testing.T, s registrytest.Shelf, push bool, digest string) {
	t.Helper()
	testkit.Must(t, s.InsertPulls(t.Context(), []registry.Pull{{UID: s.App.UID.NewChild(), Digest: digest, Push: push,
		Identity: iamtest.Alice, Time: s.Now()}}))
}

// annotated returns an image with an annotation that names its base image.
func annotated(word, base string) registry.Manifest {
	m := registrytest.NewImage(word)
	m.Annotations = fmt.Sprintf(`{"org.opencontainers.image.base.digest":%q}`, base)
	return m
}

var retentionPromises = map[string]func(t *testing.T, s registrytest.Shelf){
	"the newest are kept, and the others go to the trash with their tags": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "b", "c", "d")
		testkit.Must(t, testkit.Ignore(s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: "b-too",
			Digest: registrytest.NewImage("b").Digest}, nil)))
		keep(t, s, registry.Retention{KeepNewest: 2})
		plan := wantGoing(t, s, "a", "c") // b stays, because it was tagged again
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptNewest: 2})
		if plan.Images != 4 || plan.More || plan.Life != registrytest.Week {
			t.Errorf("plan = %+v", plan)
		}
		all := registrytest.WantTrash(t, s.RegistryStore, s.App.UID, "tag a", "tag c",
			"manifest "+registrytest.NewImage("a").Digest,
			"manifest "+registrytest.NewImage("c").Digest)
		registrytest.Restore(t, s.RegistryStore, all["manifest "+registrytest.NewImage("a").Digest], registrydb.Restoration{})
		if _, err := s.Manifest(t.Context(), s.App.UID, "a"); err != nil {
			t.Error(err)
		}
		wantGoing(t, s, "d") // the restored image is newer than d
	},
	"what matches is kept": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "v1", "v2", "nightly")
		keep(t, s, registry.Retention{KeepMatching: []string{"v[0-9]"}})
		wantGoing(t, s, "nightly")
	},
	"rules that match everything delete nothing that has a tag, and with others nothing at all": func(t *testing.T,
		s registrytest.Shelf) {
		images(t, s, "v1", "v2")
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "untagged")
		keep(t, s, registry.Retention{KeepMatching: []string{"*"}})
		wantGoing(t, s, registrytest.NewImage("untagged").Digest)
		keep(t, s, registry.Retention{KeepMatching: []string{"*", "v1", "[a-z]*"}, KeepYoungerDays: 365, KeepNewest: 1000})
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "young")
		wantGoing(t, s)
	},
	"rules that nothing matches delete everything, and all of it can be restored": func(t *testing.T,
		s registrytest.Shelf) {
		images(t, s, "v1", "v2")
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "untagged")
		keep(t, s, registry.Retention{KeepMatching: []string{"nothing"}})
		wantGoing(t, s, registrytest.NewImage("untagged").Digest, "v1", "v2")
		for _, e := range registrytest.Trashed(t, s.RegistryStore, s.App.UID) {
			if e.Tag == "" {
				registrytest.Restore(t, s.RegistryStore, e, registrydb.Restoration{})
			}
		}
		for _, reference := range []string{"v1", "v2", registrytest.NewImage("untagged").Digest} {
			if _, err := s.Manifest(t.Context(), s.App.UID, reference); err != nil {
				t.Errorf("%s: %v", reference, err)
			}
		}
	},
	"what was pushed or tagged since is kept": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "b", "c")
		testkit.Must(t, testkit.Ignore(s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: "a-too",
			Digest: registrytest.NewImage("a").Digest}, nil)))
		keep(t, s, registry.Retention{KeepYoungerDays: 2})
		wantGoing(t, s, "b")
	},
	"what was pushed again is as young as that": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "b", "c", "d")
		record(t, s, true, registrytest.NewImage("a").Digest)
		record(t, s, false, registrytest.NewImage("b").Digest)
		keep(t, s, registry.Retention{KeepYoungerDays: 2})
		wantGoing(t, s, "b", "c")
	},
	"what was pulled since is kept, and an index of which an image was": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "b")
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "c")
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "c"), "i")
		record(t, s, false, registrytest.NewImage("a").Digest)
		registrytest.MoveClock(s, 10*day)
		record(t, s, false, registrytest.NewImage("c").Digest)
		record(t, s, true, registrytest.NewImage("b").Digest)
		registrytest.MoveClock(s, day)
		keep(t, s, registry.Retention{KeepPulledDays: 5})
		plan := wantGoing(t, s, "a", "b")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptPulled: 1})
		if g := plan.Going[0]; g.LastPull == nil || g.LastPull.Identity != iamtest.Alice ||
			g.LastPull.Digest != registrytest.NewImage("a").Digest || plan.Going[1].LastPull != nil {
			t.Errorf("going = %+v", plan.Going)
		}
	},
	"it is not judged by pulls that are not recorded for so long": func(t *testing.T, s registrytest.Shelf) {
		s.KeepPulls = 3 * day
		defer func() { s.KeepPulls = 0 }()
		keep(t, s, registry.Retention{KeepPulledDays: 4})
		_, err := s.ApplyRetention(t.Context(), s.App.UID, retentiondb.RetentionOrder{})
		testkit.WantUnmet(t, err, "PULLS_NOT_KEPT")
		keep(t, s, registry.Retention{KeepPulledDays: 3})
		wantGoing(t, s)
	},
	"what runs is kept, by its digest or by a tag, and an index of which an image does": func(t *testing.T,
		s registrytest.Shelf) {
		images(t, s, "a", "b", "c", "d", "e")
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "f")
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "f"), "i")
		path, err := s.RepoPath(t.Context(), s.App.UID)
		testkit.Must(t, err)
		entry := func(digest, image string) vuln.InventoryEntry {
			return vuln.InventoryEntry{Digest: digest, Image: image, Namespace: "n", Workload: "w", Container: "c", Copies: 1}
		}
		place := vuln.InventoryPlace{Group: s.Org.UID, Name: "cluster", PushTime: s.Now(), ExpireTime: s.Now().Add(time.Hour)}
		testkit.Must(t, findingdb.New(s.DB).ReplaceInventory(t.Context(), place, []vuln.InventoryEntry{
			entry(registrytest.NewImage("a").Digest, "x"), entry(registrytest.NewImage("f").Digest, "y"), entry("",
				"registry.test:5000/"+path+":b"), entry("", "registry.test/other/"+path+"-x:c"),
		}))
		other := iamtest.AddGroup(t, s.IAMStore, "", "other")
		place.Group = other.UID
		testkit.Must(t, findingdb.New(s.DB).ReplaceInventory(t.Context(), place,
			[]vuln.InventoryEntry{entry(registrytest.NewImage("d").Digest, "z")}))
		registrytest.MoveClock(s, 30*day) // the last inventory of a place counts, even if the place sent none for a long time
		keep(t, s, registry.Retention{KeepDeployed: true})
		plan := wantGoing(t, s, "c", "d", "e")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptDeployed: 3})
	},
	"what is signed is kept, by a referrer or a tag": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "b", "c", "d")
		signature := registrytest.NewReferrer("signature", registrytest.NewImage("a"))
		signature.ArtifactType = "application/vnd.cncf.notary.signature"
		registrytest.Push(t, s.RegistryStore, s.App, signature)
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("sbom", registrytest.NewImage("b")))
		registrytest.AddImage(t, s.RegistryStore, s.App, strings.Replace(registrytest.NewImage("c").Digest, ":", "-",
			1)+".sig", "cosign")
		registrytest.AddImage(t, s.RegistryStore, s.App, strings.Replace(registrytest.NewImage("d").Digest, ":", "-",
			1)+".att", "attestation")
		keep(t, s, registry.Retention{KeepSigned: true})
		plan := wantGoing(t, s, "b", "d")
		if n := len(plan.Going[0].With) + len(plan.Going[1].With); n != 2 {
			t.Errorf("%d attached manifests have gone", n)
		}
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptSigned: 2})
	},
	"what another image of the organization is built on is kept": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "base", "other", "own", "foreign")
		apps := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, s.Org.UID, "apps").UID, "app")
		registrytest.AddBlob(t, s.RegistryStore, apps, "app")
		registrytest.Push(t, s.RegistryStore, apps, annotated("app", registrytest.NewImage("base").Digest), "v1")
		foreign := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "elsewhere").UID, "app")
		registrytest.AddBlob(t, s.RegistryStore, foreign, "app")
		registrytest.Push(t, s.RegistryStore, foreign, annotated("app", registrytest.NewImage("foreign").Digest), "v1")
		registrytest.AddBlob(t, s.RegistryStore, s.App, "self")
		self := annotated("self", registrytest.NewImage("self").Digest)
		registrytest.Push(t, s.RegistryStore, s.App, self, "self")
		keep(t, s, registry.Retention{KeepNeeded: true})
		plan := wantGoing(t, s, "other", "own", "foreign", "self")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptNeeded: 1})
	},
	"the last minor versions are kept, and pre-releases with theirs": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "v1.9.0", "1.10.1", "1.10.2", "1.11", "v2.0.0-rc.1", "2.0.0", "2.1.0-beta", "1.10.0-rc1", "1.9.1",
			"latest", "2", "2024")
		keep(t, s, registry.Retention{KeepMinors: 3})
		wantGoing(t, s, "v1.9.0", "1.9.1", "latest", "2", "2024")
	},
	"an image with an immutable tag is not touched": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "release", "nightly-1", "nightly-2")
		_, err := s.UpdateRegistrySettings(t.Context(), s.Folder.UID, func(r *registry.Settings) error {
			r.ImmutableTags, r.ImmutableExcept = true, []string{"nightly-*"}
			return nil
		})
		testkit.Must(t, err)
		keep(t, s, registry.Retention{KeepNewest: 1})
		plan := wantGoing(t, s, "nightly-1")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptImmutable: 1, registry.KeptNewest: 1})
	},
	"what an index lists that stays, and what is attached to what stays, stays": func(t *testing.T, s registrytest.Shelf) {
		for _, word := range []string{"a", "b", "c"} {
			registrytest.AddImage(t, s.RegistryStore, s.App, "", word)
		}
		old := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("old", "a", "b"), "old")
		registrytest.MoveClock(s, day)
		kept := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("kept", "b", "c"), "v1")
		registrytest.AddImage(t, s.RegistryStore, s.App, "amd64", "a") // images in an index can have tags, too
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("of old", old))
		about := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("of kept", kept))
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("of that", about))
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("of nothing", registrytest.NewImage("nothing")))
		keep(t, s, registry.Retention{KeepMatching: []string{"v*", "amd64"}})
		plan := wantGoing(t, s, "old")
		if len(plan.Going[0].With) != 1 {
			t.Errorf("going = %+v", plan.Going)
		}
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptMatching: 2})
	},
	"an index goes with its images and what is attached to them, and comes back with them": func(t *testing.T,
		s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "a")
		i := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "a"), "i")
		about := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("x", registrytest.NewImage("a")))
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("y", about))
		registrytest.MoveClock(s, day)
		images(t, s, "v1")
		keep(t, s, registry.Retention{KeepNewest: 1})
		plan := wantGoing(t, s, "i")
		if len(plan.Going[0].With) != 3 || plan.Tags != 1 {
			t.Errorf("plan = %+v", plan)
		}
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore, s.App.UID)["manifest "+i.Digest],
			registrydb.Restoration{})
		if got := len(digests(t, s)); got != 5 {
			t.Errorf("%d manifests are there", got)
		}
	},
	"an image of an index that was tagged itself goes on its own": func(t *testing.T, s registrytest.Shelf) {
		registrytest.AddImage(t, s.RegistryStore, s.App, "amd64", "a")
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewIndex("i", "a"), "i")
		registrytest.MoveClock(s, day)
		images(t, s, "v1")
		keep(t, s, registry.Retention{KeepNewest: 1})
		wantGoing(t, s, "i", "amd64")
	},
	"what has no tag goes, and does not count as one of the newest": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "v1", "v2")
		registrytest.AddImage(t, s.RegistryStore, s.App, "", "dangling")
		keep(t, s, registry.Retention{KeepNewest: 2})
		wantGoing(t, s, registrytest.NewImage("dangling").Digest)
	},
	"bytes are those that only what goes needs": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "v1")
		both := registrytest.NewImage("both")
		both.Needs = append(registrytest.NewImage("a").Needs, registrytest.NewImage("v1").Needs...)
		registrytest.AddBlob(t, s.RegistryStore, s.App, "only")
		both.Needs = append(both.Needs, registrytest.NewImage("only").Needs...)
		registrytest.Push(t, s.RegistryStore, s.App, both, "both")
		keep(t, s, registry.Retention{KeepMatching: []string{"v1", "a"}})
		plan := wantGoing(t, s, "both")
		if plan.Bytes != int64(len("both")+len("only")) ||
			plan.Going[0].Size != int64(len("both")+len("only")+len("a")+len("v1")) {
			t.Errorf("%d bytes of %+v", plan.Bytes, plan.Going)
		}
		before := registrytest.StoredBytes(t, s)
		testkit.Must(t, testkit.Ignore(s.EmptyTrash(t.Context(), s.App.UID, s.Now().Add(time.Hour), 100)))
		registrytest.CollectAll(t, s.Store)
		if got := before - registrytest.StoredBytes(t, s); got != plan.Bytes {
			t.Errorf("%d bytes were freed, and %d were promised", got, plan.Bytes)
		}
	},
	"the nearest rules hold, and are not merged": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "b", "c")
		_, err := s.Retention(t.Context(), s.App.UID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "retention rules", Name: string(s.App.UID)})
		_, err = s.ApplyRetention(t.Context(), s.App.UID, retentiondb.RetentionOrder{})
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "retention rules", Name: string(s.App.UID)})
		keep(t, s, registry.Retention{UID: s.Org.UID, KeepNewest: 1})
		folder := keep(t, s, registry.Retention{UID: s.Folder.UID, KeepMatching: []string{"a", "b"}})
		got, err := s.Retention(t.Context(), s.App.UID)
		if diff := cmp.Diff(folder, got); err != nil || diff != "" {
			t.Errorf("%v, rules (-want +got):\n%s", err, diff)
		}
		keep(t, s, registry.Retention{KeepMatching: []string{"*"}})
		wantGoing(t, s)
		testkit.Must(t, s.DeleteRetention(t.Context(), s.App.UID))
		wantGoing(t, s, "c")
		testkit.Must(t, s.DeleteRetention(t.Context(), s.Folder.UID))
		wantGoing(t, s, "a")
		testkit.WantFault(t, s.DeleteRetention(t.Context(), s.Folder.UID), fault.NotFound,
			fault.Resource{Type: "retention rules", Name: string(s.Folder.UID)})
		_, err = s.SetRetention(t.Context(), registry.Retention{UID: s.Org.UID.NewChild(), KeepNewest: 1})
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"rules that are set again as they are make no event": func(t *testing.T, s registrytest.Shelf) {
		first := keep(t, s, registry.Retention{KeepNewest: 1})
		n := len(dbtest.Events(t, s.DB))
		registrytest.MoveClock(s, day)
		again := keep(t, s, registry.Retention{KeepNewest: 1})
		if len(dbtest.Events(t, s.DB)) != n || !cmp.Equal(again, first) {
			t.Errorf("rules = %+v, then %+v", first, again)
		}
		keep(t, s, registry.Retention{KeepNewest: 2})
		testkit.Must(t, s.DeleteRetention(t.Context(), s.App.UID))
		var types []resource.EventType
		for _, e := range dbtest.Events(t, s.DB)[n:] {
			types = append(types, e.Type)
		}
		if !slices.Equal(types, []resource.EventType{resource.RetentionUpdated, resource.RetentionDeleted}) {
			t.Errorf("events = %v", types)
		}
	},
	"a run does what its preview has, and leaves what came since": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "b", "v1")
		keep(t, s, registry.Retention{KeepMatching: []string{"v*"}})
		plan, _ := preview(t, s)
		images(t, s, "new")
		run(t, s, plan)
		wantGoing(t, s, "new")
	},
	"a run says what has changed since its preview, and does nothing": func(t *testing.T, s registrytest.Shelf) {
		for name, tt := range map[string]struct {
			change func(a string)
			text   string
		}{
			"tagged so that it is kept": {func(a string) {
				testkit.Must(t, testkit.Ignore(s.PutTag(t.Context(), registry.Tag{UID: s.App.UID.NewChild(), Name: "v-" + a[7:17],
					Digest: a},
					nil)))
			}, "is kept now: one of its tags matches a pattern"},
			"tagged otherwise": {func(a string) {
				testkit.Must(t, testkit.Ignore(s.PutTag(t.Context(),
					registry.Tag{UID: s.App.UID.NewChild(), Name: "other", Digest: a},
					nil)))
			}, "has other tags or attached manifests now"},
			"signed": {func(a string) {
				m := registrytest.NewReferrer("s-"+a, registry.Manifest{Digest: a})
				m.ArtifactType = "application/vnd.cncf.notary.signature"
				registrytest.Push(t, s.RegistryStore, s.App, m)
			}, "is kept now: it is signed"},
			"attached to": {func(a string) {
				registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("x-"+a, registry.Manifest{Digest: a}))
			}, "has other tags or attached manifests now"},
			"deleted": {func(a string) {
				testkit.Must(t, s.DeleteManifest(t.Context(), s.App.UID, a, nil))
			}, "1 images of the preview are gone"},
			"other rules": {func(string) {
				keep(t, s, registry.Retention{KeepMatching: []string{"*"}})
			}, "is kept now: one of its tags matches"},
		} {
			keep(t, s, registry.Retention{KeepMatching: []string{"v*"}, KeepSigned: true})
			word := strings.ReplaceAll(name, " ", "-")
			a := registrytest.AddImage(t, s.RegistryStore, s.App, word, word)
			registrytest.AddImage(t, s.RegistryStore, s.App, "still-"+word, "still "+word)
			plan, err := s.ApplyRetention(resource.WithDryRun(t.Context()), s.App.UID, retentiondb.RetentionOrder{})
			testkit.Must(t, err)
			tt.change(a.Digest)
			before := digests(t, s)
			_, err = s.ApplyRetention(t.Context(), s.App.UID, retentiondb.RetentionOrder{Fingerprint: plan.Fingerprint})
			testkit.WantUnmet(t, err, "PREVIEW_OUTDATED")
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(before, digests(t, s)); diff != "" {
				t.Errorf("%s: something has gone:\n%s", name, diff)
			}
			keep(t, s, registry.Retention{KeepMatching: []string{"v*"}, KeepSigned: true})
			_, err = s.ApplyRetention(t.Context(), s.App.UID, retentiondb.RetentionOrder{})
			testkit.Must(t, err)
		}
	},
	"what is no fingerprint is refused": func(t *testing.T, s registrytest.Shelf) {
		keep(t, s, registry.Retention{KeepNewest: 1})
		for _, text := range []string{"x", "AQ==", "Ag", "AQI", strings.Repeat("A", 10_000)} {
			_, err := s.ApplyRetention(t.Context(), s.App.UID, retentiondb.RetentionOrder{Fingerprint: text})
			if !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("%.20q: %v", text, err)
			}
		}
		plan, _ := preview(t, s)
		run(t, s, plan) // the plan is empty
	},
	"one run deletes no more than 200 images, the oldest first": func(t *testing.T, s registrytest.Shelf) {
		for i := range 203 {
			registrytest.AddImage(t, s.RegistryStore, s.App, "", fmt.Sprint(i))
			registrytest.MoveClock(s, time.Second)
		}
		images(t, s, "v1")
		keep(t, s, registry.Retention{KeepNewest: 1})
		plan, _ := preview(t, s)
		if len(plan.Going) != 200 || !plan.More || plan.Going[0].Digest != registrytest.NewImage("0").Digest {
			t.Errorf("%d images would go, and more: %v", len(plan.Going), plan.More)
		}
		run(t, s, plan)
		plan, _ = preview(t, s)
		if len(plan.Going) != 3 || plan.More {
			t.Errorf("%d images would go, and more: %v", len(plan.Going), plan.More)
		}
	},
	"an image that has too much to go at once stays": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		for i := range 10 {
			var tags []string
			for k := range 100 {
				tags = append(tags, fmt.Sprintf("t-%d-%d", i, k))
			}
			registrytest.Push(t, s.RegistryStore, s.App, m, tags...)
		}
		keep(t, s, registry.Retention{KeepMatching: []string{"none"}})
		plan := wantGoing(t, s)
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptTooLarge: 1})
	},
	"rules go with their group, and those of a repo come back with it": func(t *testing.T, s registrytest.Shelf) {
		keep(t, s, registry.Retention{KeepNewest: 1})
		keep(t, s, registry.Retention{UID: s.Folder.UID, KeepNewest: 2})
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		registrytest.Restore(t, s.RegistryStore, registrytest.Trashed(t, s.RegistryStore, s.App.UID)["repo app"],
			registrydb.Restoration{})
		if got, err := s.Retention(t.Context(), s.App.UID); err != nil || got.KeepNewest != 1 {
			t.Errorf("rules = %+v, %v", got, err)
		}
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		testkit.Must(t, s.DeleteGroup(t.Context(), s.Folder.UID, ""))
		var n int
		testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM retention`, nil, &n))
		if n != 0 {
			t.Errorf("%d rules are left", n)
		}
	},
	"a run is one event, and one that deletes nothing is none": func(t *testing.T, s registrytest.Shelf) {
		images(t, s, "a", "v1")
		keep(t, s, registry.Retention{KeepNewest: 1})
		wantGoing(t, s, "a")
		n := len(dbtest.Events(t, s.DB))
		wantGoing(t, s)
		all := dbtest.Events(t, s.DB)
		if len(all) != n || all[n-1].Type != resource.RetentionApplied || all[n-1].Subject != s.App.UID ||
			all[n-1].Group != s.Folder.UID {
			t.Errorf("events = %v", all[n-1:])
		}
	},
}

func TestRetentionPromises(t *testing.T) {
	registrytest.KeepPromises(t, retentionPromises)
}

// TestRetentionTurns checks that rules are applied when they are due, to one repo in each organization after the
// other, and by only one replica.
func TestRetentionTurns(t *testing.T) {
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		s.KeepTrash = registrytest.Week
		sh := registrytest.NewShelf(t, s)
		second := registrytest.AddRepo(t, s.RegistryStore, sh.Org.UID, "second")
		other := iamtest.AddGroup(t, s.IAMStore, "", "other")
		set := func(r registry.Retention) { keep(t, sh, r) }
		set(registry.Retention{UID: sh.Org.UID, KeepNewest: 1, EveryDays: 7})
		set(registry.Retention{UID: sh.Folder.UID, KeepNewest: 1})
		set(registry.Retention{UID: other.UID, KeepNewest: 1, EveryDays: 1})
		due := func() []resource.UID {
			all, err := s.RetentionDue(t.Context(), s.Now(), 10)
			testkit.Must(t, err)
			slices.Sort(all)
			return all
		}
		take := func(place resource.UID) resource.UID {
			turn, err := s.TakeRetention(t.Context(), place, s.Now())
			testkit.Must(t, err)
			return turn.Repo
		}
		if all := due(); len(all) != 0 || take(sh.Org.UID) != "" {
			t.Errorf("rules are due at once: %v", all)
		}
		registrytest.MoveClock(sh, day)
		want := []resource.UID{sh.Org.UID, other.UID}
		slices.Sort(want)
		if all := due(); !slices.Equal(all, want) {
			t.Errorf("due are %v, want %v", all, want)
		}
		repos := []resource.UID{take(sh.Org.UID), take(sh.Org.UID)}
		slices.Sort(repos)
		if wanted := slices.Sorted(slices.Values([]resource.UID{sh.App.UID, second.UID})); !slices.Equal(repos, wanted) {
			t.Errorf("turns = %v, want %v", repos, wanted)
		}
		if take(other.UID) != "" || take(sh.Org.UID) != "" || take(sh.Org.UID) != "" || len(due()) != 0 {
			t.Errorf("there are turns without end: %v", due())
		}
		registrytest.MoveClock(sh, day)
		if all := due(); !slices.Equal(all, []resource.UID{other.UID}) {
			t.Errorf("due are %v", all)
		}
		registrytest.MoveClock(sh, 6*day)
		if all := due(); !slices.Equal(all, want) {
			t.Errorf("due are %v", all)
		}
		// the rules of the folder apply to its repo, and this run asks for the rules of the
		// organization
		images(t, sh, "a", "v1")
		plan, err := s.ApplyRetention(t.Context(), sh.App.UID, retentiondb.RetentionOrder{Planned: sh.Org.UID})
		if err != nil || len(plan.Going) != 0 || len(digests(t, sh)) != 2 {
			t.Errorf("plan = %+v, %v", plan, err)
		}
		testkit.Must(t, s.DeleteRetention(t.Context(), sh.Folder.UID))
		plan, err = s.ApplyRetention(t.Context(), sh.App.UID, retentiondb.RetentionOrder{Planned: sh.Org.UID})
		if err != nil || len(plan.Going) != 1 {
			t.Errorf("plan = %+v, %v", plan, err)
		}
		trashedRetention(t, sh)
	})
}

// trashedRetention checks that the rules of a repo in the trash are kept and postponed.
func trashedRetention(t *testing.T, s registrytest.Shelf) {
	t.Helper()
	keep(t, s, registry.Retention{UID: s.App.UID, KeepNewest: 1, EveryDays: 1})
	testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
	registrytest.MoveClock(s, day)
	if turn, err := s.TakeRetention(t.Context(), s.App.UID, s.Now()); err != nil || turn.Repo != "" {
		t.Errorf("turn = %v, %v", turn, err)
	}
	var n int
	testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM retention WHERE uid = $1 AND due_ms > $2`,
		[]any{string(s.App.UID), store.MS(s.Now())}, &n))
	if n != 1 {
		t.Error("the rules of a repo in the trash are gone, or still due")
	}
}

// sweepingAway returns a function that applies the retention rules of a repo.
func sweepingAway(ctx context.Context, s *registrytest.Store, r registry.Repo) func() error {
	return func() error {
		_, err := s.ApplyRetention(ctx, r.UID, retentiondb.RetentionOrder{})
		return err
	}
}

var retentionDuels = map[string]func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel{
	"retention and a push of the same digest": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		return dbtest.NewDuel(sweepingAway(t.Context(), s, r), func() error {
			_, err := s.PutManifest(t.Context(), registrytest.Ref(r), registrytest.NewImage(word), []string{"t-" + word})
			return err
		}, func(a, b error) error {
			if err := errors.Join(a, b); err != nil {
				return err
			}
			_, err := s.Manifest(t.Context(), r.UID, "t-"+word)
			if errors.Is(err, fault.NotFound) { // retention ran last, and the image can be restored
				return registrytest.CheckRestorable(t, s, r, word)
			}
			return errors.Join(err, registrytest.CheckWhole(t, s.RegistryStore, r, word))
		})
	},
	"retention and a push of an index": func(t *testing.T, s *registrytest.Store, r registry.Repo,
		word string) dbtest.Duel {
		registrytest.AddImage(t, s.RegistryStore, r, "", word)
		return dbtest.NewDuel(sweepingAway(t.Context(), s, r), func() error {
			_, err := s.PutManifest(t.Context(), registrytest.Ref(r), registrytest.NewIndex(word, word),
				[]string{"keep-" + word})
			return err
		}, func(a, b error) error {
			if a != nil {
				return a
			}
			missing := (*registrydb.MissingError)(nil)
			if errors.As(b, &missing) { // retention had already deleted the image
				return nil
			}
			_, err := s.Manifest(t.Context(), r.UID, registrytest.NewImage(word).Digest)
			return errors.Join(b, err)
		})
	},
	"retention and a tag that keeps": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		m := registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		return dbtest.NewDuel(sweepingAway(t.Context(), s, r), func() error {
			return testkit.Ignore(s.PutTag(t.Context(), registry.Tag{UID: r.UID.NewChild(), Name: "keep-" + word,
				Digest: m.Digest},
				nil))
		}, func(a, b error) error {
			if a != nil || b != nil && !errors.Is(b, fault.NotFound) {
				return fmt.Errorf("errors = %v and %v", a, b)
			}
			_, err := s.Manifest(t.Context(), r.UID, m.Digest)
			if (err == nil) != (b == nil) {
				return fmt.Errorf("tagging: %v, and the image: %v", b, err)
			}
			return nil
		})
	},
	"retention and an undelete": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		e := registrytest.AddDeleted(t, s.RegistryStore, r, word)
		return dbtest.NewDuel(sweepingAway(t.Context(), s, r), func() error {
			_, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{})
			return err
		}, func(a, b error) error {
			return errors.Join(a, b, registrytest.CheckRestorable(t, s, r, word))
		})
	},
	"retention and a pull": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		m := registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		return dbtest.NewDuel(sweepingAway(t.Context(), s, r), func() error {
			_, err := s.Manifest(t.Context(), r.UID, "t-"+word)
			if errors.Is(err, fault.NotFound) {
				return nil
			}
			testkit.Must(t, s.InsertPulls(t.Context(),
				[]registry.Pull{{UID: r.UID.NewChild(), Digest: m.Digest, Time: s.Now()}}))
			return err
		}, func(a, b error) error {
			return errors.Join(a, b, registrytest.CheckRestorable(t, s, r, word))
		})
	},
	"retention twice": func(t *testing.T, s *registrytest.Store, r registry.Repo, word string) dbtest.Duel {
		registrytest.AddImage(t, s.RegistryStore, r, "t-"+word, word)
		return dbtest.NewDuel(sweepingAway(t.Context(), s, r), sweepingAway(t.Context(), s, r), func(a, b error) error {
			return errors.Join(a, b, registrytest.CheckRestorable(t, s, r, word))
		})
	},
}

// TestRetentionDuels runs retention concurrently with writes that use the manifests that it
// deletes. It checks that the results are consistent.
func TestRetentionDuels(t *testing.T) {
	const rounds = 20
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		s.KeepTrash = registrytest.Week
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		for name, prepare := range retentionDuels {
			t.Run(name, func(t *testing.T) {
				r := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, org.UID,
					strings.ReplaceAll(name, " ", "-")).UID, "app")
				testkit.Must(t, testkit.Ignore(s.SetRetention(t.Context(), registry.Retention{UID: r.UID,
					KeepMatching: []string{"keep-*"}})))
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
