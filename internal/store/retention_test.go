package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const day = 24 * time.Hour

// keep sets the retention rules of the shelf's repo.
func (s shelf) keep(t *testing.T, r registry.Retention) registry.Retention {
	t.Helper()
	if r.UID == "" {
		r.UID = s.repo.UID
	}
	must(t, r.Validate())
	r, err := s.SetRetention(t.Context(), r)
	must(t, err)
	return r
}

// preview returns the plan of a dry run, and the plan in a few words. It checks that the dry run
// changes nothing.
func (s shelf) preview(t *testing.T) (retentiondb.RetentionPlan, []string) {
	t.Helper()
	before, err := s.Everything(t.Context())
	must(t, err)
	plan, err := s.ApplyRetention(resource.WithDryRun(t.Context()), s.repo.UID, retentiondb.RetentionOrder{})
	must(t, err)
	after, err := s.Everything(t.Context())
	must(t, err)
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
func (s shelf) run(t *testing.T, plan retentiondb.RetentionPlan) retentiondb.RetentionPlan {
	t.Helper()
	before := s.digests(t)
	done, err := s.ApplyRetention(t.Context(), s.repo.UID, retentiondb.RetentionOrder{Fingerprint: plan.Fingerprint})
	must(t, err)
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
	if diff := cmp.Diff(before, s.digests(t)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	return done
}

// digests returns the digests of the manifests in the repo.
func (s shelf) digests(t *testing.T) map[string]bool {
	t.Helper()
	all, err := store.ReadColumn[string](t.Context(), s.Rows, `SELECT digest FROM manifests WHERE repo = $1`,
		store.Segment(s.repo.UID))
	must(t, err)
	there := map[string]bool{}
	for _, digest := range all {
		there[digest] = true
	}
	return there
}

// wantGoing checks that the rules would delete the images want, in any order, and then applies the
// rules.
func (s shelf) wantGoing(t *testing.T, want ...string) retentiondb.RetentionPlan {
	t.Helper()
	plan, got := s.preview(t)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("going = %v, want %v; kept %v", got, want, plan.Kept)
	}
	return s.run(t, plan)
}

// wantKept checks how many images each rule keeps.
func wantKept(t *testing.T, plan retentiondb.RetentionPlan, want map[registry.KeepReason]int) {
	t.Helper()
	if diff := cmp.Diff(want, plan.Kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// images pushes an image for each tag, each a day after the previous one.
func (s shelf) images(t *testing.T, tags ...string) {
	t.Helper()
	for _, tag := range tags {
		addImage(t, s.Store, s.repo, tag, tag)
		clock(s, day)
	}
}

func record(t *testing.T, s shelf, push bool, digest string) {
	t.Helper()
	must(t, s.InsertPulls(t.Context(), []registry.Pull{{UID: s.repo.UID.NewChild(), Digest: digest, Push: push,
		Identity: alice, Time: s.Now()}}))
}

// annotated returns an image with an annotation that names its base image.
func annotated(word, base string) registry.Manifest {
	m := newImage(word)
	m.Annotations = fmt.Sprintf(`{"org.opencontainers.image.base.digest":%q}`, base)
	return m
}

var retentionPromises = map[string]func(t *testing.T, s shelf){
	"the newest are kept, and the others go to the trash with their tags": func(t *testing.T, s shelf) {
		s.images(t, "a", "b", "c", "d")
		must(t, ignore(s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "b-too",
			Digest: newImage("b").Digest}, nil)))
		s.keep(t, registry.Retention{KeepNewest: 2})
		plan := s.wantGoing(t, "a", "c") // b stays, because it was tagged again
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptNewest: 2})
		if plan.Images != 4 || plan.More || plan.Life != week {
			t.Errorf("plan = %+v", plan)
		}
		all := wantTrash(t, s.Store, s.repo.UID, "tag a", "tag c", "manifest "+newImage("a").Digest,
			"manifest "+newImage("c").Digest)
		restore(t, s.Store, all["manifest "+newImage("a").Digest], registrydb.Restoration{})
		if _, err := s.Manifest(t.Context(), s.repo.UID, "a"); err != nil {
			t.Error(err)
		}
		s.wantGoing(t, "d") // the restored image is newer than d
	},
	"what matches is kept": func(t *testing.T, s shelf) {
		s.images(t, "v1", "v2", "nightly")
		s.keep(t, registry.Retention{KeepMatching: []string{"v[0-9]"}})
		s.wantGoing(t, "nightly")
	},
	"rules that match everything delete nothing that has a tag, and with others nothing at all": func(t *testing.T,
		s shelf) {
		s.images(t, "v1", "v2")
		addImage(t, s.Store, s.repo, "", "untagged")
		s.keep(t, registry.Retention{KeepMatching: []string{"*"}})
		s.wantGoing(t, newImage("untagged").Digest)
		s.keep(t, registry.Retention{KeepMatching: []string{"*", "v1", "[a-z]*"}, KeepYoungerDays: 365, KeepNewest: 1000})
		addImage(t, s.Store, s.repo, "", "young")
		s.wantGoing(t)
	},
	"rules that nothing matches delete everything, and all of it can be restored": func(t *testing.T, s shelf) {
		s.images(t, "v1", "v2")
		addImage(t, s.Store, s.repo, "", "untagged")
		s.keep(t, registry.Retention{KeepMatching: []string{"nothing"}})
		s.wantGoing(t, newImage("untagged").Digest, "v1", "v2")
		for _, e := range trashed(t, s.Store, s.repo.UID) {
			if e.Tag == "" {
				restore(t, s.Store, e, registrydb.Restoration{})
			}
		}
		for _, reference := range []string{"v1", "v2", newImage("untagged").Digest} {
			if _, err := s.Manifest(t.Context(), s.repo.UID, reference); err != nil {
				t.Errorf("%s: %v", reference, err)
			}
		}
	},
	"what was pushed or tagged since is kept": func(t *testing.T, s shelf) {
		s.images(t, "a", "b", "c")
		must(t, ignore(s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "a-too",
			Digest: newImage("a").Digest}, nil)))
		s.keep(t, registry.Retention{KeepYoungerDays: 2})
		s.wantGoing(t, "b")
	},
	"what was pushed again is as young as that": func(t *testing.T, s shelf) {
		s.images(t, "a", "b", "c", "d")
		record(t, s, true, newImage("a").Digest)
		record(t, s, false, newImage("b").Digest)
		s.keep(t, registry.Retention{KeepYoungerDays: 2})
		s.wantGoing(t, "b", "c")
	},
	"what was pulled since is kept, and an index of which an image was": func(t *testing.T, s shelf) {
		s.images(t, "a", "b")
		addImage(t, s.Store, s.repo, "", "c")
		push(t, s.Store, s.repo, newIndex("i", "c"), "i")
		record(t, s, false, newImage("a").Digest)
		clock(s, 10*day)
		record(t, s, false, newImage("c").Digest)
		record(t, s, true, newImage("b").Digest)
		clock(s, day)
		s.keep(t, registry.Retention{KeepPulledDays: 5})
		plan := s.wantGoing(t, "a", "b")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptPulled: 1})
		if g := plan.Going[0]; g.LastPull == nil || g.LastPull.Identity != alice ||
			g.LastPull.Digest != newImage("a").Digest || plan.Going[1].LastPull != nil {
			t.Errorf("going = %+v", plan.Going)
		}
	},
	"it is not judged by pulls that are not recorded for so long": func(t *testing.T, s shelf) {
		s.KeepPulls = 3 * day
		defer func() { s.KeepPulls = 0 }()
		s.keep(t, registry.Retention{KeepPulledDays: 4})
		_, err := s.ApplyRetention(t.Context(), s.repo.UID, retentiondb.RetentionOrder{})
		wantUnmet(t, err, "PULLS_NOT_KEPT")
		s.keep(t, registry.Retention{KeepPulledDays: 3})
		s.wantGoing(t)
	},
	"what runs is kept, by its digest or by a tag, and an index of which an image does": func(t *testing.T, s shelf) {
		s.images(t, "a", "b", "c", "d", "e")
		addImage(t, s.Store, s.repo, "", "f")
		push(t, s.Store, s.repo, newIndex("i", "f"), "i")
		path, err := s.RepoPath(t.Context(), s.repo.UID)
		must(t, err)
		entry := func(digest, image string) vuln.InventoryEntry {
			return vuln.InventoryEntry{Digest: digest, Image: image, Namespace: "n", Workload: "w", Container: "c", Copies: 1}
		}
		place := vuln.InventoryPlace{Group: s.org.UID, Name: "cluster", PushTime: s.Now(), ExpireTime: s.Now().Add(time.Hour)}
		must(t, s.ReplaceInventory(t.Context(), place, []vuln.InventoryEntry{
			entry(newImage("a").Digest, "x"), entry(newImage("f").Digest, "y"), entry("",
				"registry.test:5000/"+path+":b"), entry("", "registry.test/other/"+path+"-x:c"),
		}))
		other := addGroup(t, s.Store, "", "other")
		place.Group = other.UID
		must(t, s.ReplaceInventory(t.Context(), place, []vuln.InventoryEntry{entry(newImage("d").Digest, "z")}))
		clock(s, 30*day) // the last inventory of a place counts, even if the place sent none for a long time
		s.keep(t, registry.Retention{KeepDeployed: true})
		plan := s.wantGoing(t, "c", "d", "e")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptDeployed: 3})
	},
	"what is signed is kept, by a referrer or a tag": func(t *testing.T, s shelf) {
		s.images(t, "a", "b", "c", "d")
		signature := referrer("signature", newImage("a"))
		signature.ArtifactType = "application/vnd.cncf.notary.signature"
		push(t, s.Store, s.repo, signature)
		push(t, s.Store, s.repo, referrer("sbom", newImage("b")))
		addImage(t, s.Store, s.repo, strings.Replace(newImage("c").Digest, ":", "-", 1)+".sig", "cosign")
		addImage(t, s.Store, s.repo, strings.Replace(newImage("d").Digest, ":", "-", 1)+".att", "attestation")
		s.keep(t, registry.Retention{KeepSigned: true})
		plan := s.wantGoing(t, "b", "d")
		if n := len(plan.Going[0].With) + len(plan.Going[1].With); n != 2 {
			t.Errorf("%d attached manifests have gone", n)
		}
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptSigned: 2})
	},
	"what another image of the organization is built on is kept": func(t *testing.T, s shelf) {
		s.images(t, "base", "other", "own", "foreign")
		apps := addRepo(t, s.Store, addGroup(t, s.Store, s.org.UID, "apps").UID, "app")
		addBlob(t, s.Store, apps, "app")
		push(t, s.Store, apps, annotated("app", newImage("base").Digest), "v1")
		foreign := addRepo(t, s.Store, addGroup(t, s.Store, "", "elsewhere").UID, "app")
		addBlob(t, s.Store, foreign, "app")
		push(t, s.Store, foreign, annotated("app", newImage("foreign").Digest), "v1")
		addBlob(t, s.Store, s.repo, "self")
		self := annotated("self", newImage("self").Digest)
		push(t, s.Store, s.repo, self, "self")
		s.keep(t, registry.Retention{KeepNeeded: true})
		plan := s.wantGoing(t, "other", "own", "foreign", "self")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptNeeded: 1})
	},
	"the last minor versions are kept, and pre-releases with theirs": func(t *testing.T, s shelf) {
		s.images(t, "v1.9.0", "1.10.1", "1.10.2", "1.11", "v2.0.0-rc.1", "2.0.0", "2.1.0-beta", "1.10.0-rc1", "1.9.1",
			"latest", "2", "2024")
		s.keep(t, registry.Retention{KeepMinors: 3})
		s.wantGoing(t, "v1.9.0", "1.9.1", "latest", "2", "2024")
	},
	"an image with an immutable tag is not touched": func(t *testing.T, s shelf) {
		s.images(t, "release", "nightly-1", "nightly-2")
		_, err := s.UpdateRegistrySettings(t.Context(), s.folder.UID, func(r *registry.Settings) error {
			r.ImmutableTags, r.ImmutableExcept = true, []string{"nightly-*"}
			return nil
		})
		must(t, err)
		s.keep(t, registry.Retention{KeepNewest: 1})
		plan := s.wantGoing(t, "nightly-1")
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptImmutable: 1, registry.KeptNewest: 1})
	},
	"what an index lists that stays, and what is attached to what stays, stays": func(t *testing.T, s shelf) {
		for _, word := range []string{"a", "b", "c"} {
			addImage(t, s.Store, s.repo, "", word)
		}
		old := push(t, s.Store, s.repo, newIndex("old", "a", "b"), "old")
		clock(s, day)
		kept := push(t, s.Store, s.repo, newIndex("kept", "b", "c"), "v1")
		addImage(t, s.Store, s.repo, "amd64", "a") // images in an index can have tags, too
		push(t, s.Store, s.repo, referrer("of old", old))
		about := push(t, s.Store, s.repo, referrer("of kept", kept))
		push(t, s.Store, s.repo, referrer("of that", about))
		push(t, s.Store, s.repo, referrer("of nothing", newImage("nothing")))
		s.keep(t, registry.Retention{KeepMatching: []string{"v*", "amd64"}})
		plan := s.wantGoing(t, "old")
		if len(plan.Going[0].With) != 1 {
			t.Errorf("going = %+v", plan.Going)
		}
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptMatching: 2})
	},
	"an index goes with its images and what is attached to them, and comes back with them": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "", "a")
		i := push(t, s.Store, s.repo, newIndex("i", "a"), "i")
		about := push(t, s.Store, s.repo, referrer("x", newImage("a")))
		push(t, s.Store, s.repo, referrer("y", about))
		clock(s, day)
		s.images(t, "v1")
		s.keep(t, registry.Retention{KeepNewest: 1})
		plan := s.wantGoing(t, "i")
		if len(plan.Going[0].With) != 3 || plan.Tags != 1 {
			t.Errorf("plan = %+v", plan)
		}
		restore(t, s.Store, trashed(t, s.Store, s.repo.UID)["manifest "+i.Digest], registrydb.Restoration{})
		if got := len(s.digests(t)); got != 5 {
			t.Errorf("%d manifests are there", got)
		}
	},
	"an image of an index that was tagged itself goes on its own": func(t *testing.T, s shelf) {
		addImage(t, s.Store, s.repo, "amd64", "a")
		push(t, s.Store, s.repo, newIndex("i", "a"), "i")
		clock(s, day)
		s.images(t, "v1")
		s.keep(t, registry.Retention{KeepNewest: 1})
		s.wantGoing(t, "i", "amd64")
	},
	"what has no tag goes, and does not count as one of the newest": func(t *testing.T, s shelf) {
		s.images(t, "v1", "v2")
		addImage(t, s.Store, s.repo, "", "dangling")
		s.keep(t, registry.Retention{KeepNewest: 2})
		s.wantGoing(t, newImage("dangling").Digest)
	},
	"bytes are those that only what goes needs": func(t *testing.T, s shelf) {
		s.images(t, "a", "v1")
		both := newImage("both")
		both.Needs = append(newImage("a").Needs, newImage("v1").Needs...)
		addBlob(t, s.Store, s.repo, "only")
		both.Needs = append(both.Needs, newImage("only").Needs...)
		push(t, s.Store, s.repo, both, "both")
		s.keep(t, registry.Retention{KeepMatching: []string{"v1", "a"}})
		plan := s.wantGoing(t, "both")
		if plan.Bytes != int64(len("both")+len("only")) ||
			plan.Going[0].Size != int64(len("both")+len("only")+len("a")+len("v1")) {
			t.Errorf("%d bytes of %+v", plan.Bytes, plan.Going)
		}
		before := stored(t, s)
		must(t, ignore(s.EmptyTrash(t.Context(), s.repo.UID, s.Now().Add(time.Hour), 100)))
		collectAll(t, s.Store)
		if got := before - stored(t, s); got != plan.Bytes {
			t.Errorf("%d bytes were freed, and %d were promised", got, plan.Bytes)
		}
	},
	"the nearest rules hold, and are not merged": func(t *testing.T, s shelf) {
		s.images(t, "a", "b", "c")
		_, err := s.Retention(t.Context(), s.repo.UID)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "retention rules", Name: string(s.repo.UID)})
		_, err = s.ApplyRetention(t.Context(), s.repo.UID, retentiondb.RetentionOrder{})
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "retention rules", Name: string(s.repo.UID)})
		s.keep(t, registry.Retention{UID: s.org.UID, KeepNewest: 1})
		folder := s.keep(t, registry.Retention{UID: s.folder.UID, KeepMatching: []string{"a", "b"}})
		got, err := s.Retention(t.Context(), s.repo.UID)
		if diff := cmp.Diff(folder, got); err != nil || diff != "" {
			t.Errorf("%v, rules (-want +got):\n%s", err, diff)
		}
		s.keep(t, registry.Retention{KeepMatching: []string{"*"}})
		s.wantGoing(t)
		must(t, s.DeleteRetention(t.Context(), s.repo.UID))
		s.wantGoing(t, "c")
		must(t, s.DeleteRetention(t.Context(), s.folder.UID))
		s.wantGoing(t, "a")
		wantFault(t, s.DeleteRetention(t.Context(), s.folder.UID), fault.NotFound,
			fault.Resource{Type: "retention rules", Name: string(s.folder.UID)})
		_, err = s.SetRetention(t.Context(), registry.Retention{UID: s.org.UID.NewChild(), KeepNewest: 1})
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"rules that are set again as they are make no event": func(t *testing.T, s shelf) {
		first := s.keep(t, registry.Retention{KeepNewest: 1})
		n := len(events(t, s.Store))
		clock(s, day)
		again := s.keep(t, registry.Retention{KeepNewest: 1})
		if len(events(t, s.Store)) != n || !cmp.Equal(again, first) {
			t.Errorf("rules = %+v, then %+v", first, again)
		}
		s.keep(t, registry.Retention{KeepNewest: 2})
		must(t, s.DeleteRetention(t.Context(), s.repo.UID))
		var types []resource.EventType
		for _, e := range events(t, s.Store)[n:] {
			types = append(types, e.Type)
		}
		if !slices.Equal(types, []resource.EventType{resource.RetentionUpdated, resource.RetentionDeleted}) {
			t.Errorf("events = %v", types)
		}
	},
	"a run does what its preview has, and leaves what came since": func(t *testing.T, s shelf) {
		s.images(t, "a", "b", "v1")
		s.keep(t, registry.Retention{KeepMatching: []string{"v*"}})
		plan, _ := s.preview(t)
		s.images(t, "new")
		s.run(t, plan)
		s.wantGoing(t, "new")
	},
	"a run says what has changed since its preview, and does nothing": func(t *testing.T, s shelf) {
		for name, tt := range map[string]struct {
			change func(a string)
			text   string
		}{
			"tagged so that it is kept": {func(a string) {
				must(t, ignore(s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "v-" + a[7:17], Digest: a},
					nil)))
			}, "is kept now: one of its tags matches a pattern"},
			"tagged otherwise": {func(a string) {
				must(t, ignore(s.PutTag(t.Context(), registry.Tag{UID: s.repo.UID.NewChild(), Name: "other", Digest: a}, nil)))
			}, "has other tags or attached manifests now"},
			"signed": {func(a string) {
				m := referrer("s-"+a, registry.Manifest{Digest: a})
				m.ArtifactType = "application/vnd.cncf.notary.signature"
				push(t, s.Store, s.repo, m)
			}, "is kept now: it is signed"},
			"attached to": {func(a string) {
				push(t, s.Store, s.repo, referrer("x-"+a, registry.Manifest{Digest: a}))
			}, "has other tags or attached manifests now"},
			"deleted": {func(a string) {
				must(t, s.DeleteManifest(t.Context(), s.repo.UID, a, nil))
			}, "1 images of the preview are gone"},
			"other rules": {func(string) {
				s.keep(t, registry.Retention{KeepMatching: []string{"*"}})
			}, "is kept now: one of its tags matches"},
		} {
			s.keep(t, registry.Retention{KeepMatching: []string{"v*"}, KeepSigned: true})
			word := strings.ReplaceAll(name, " ", "-")
			a := addImage(t, s.Store, s.repo, word, word)
			addImage(t, s.Store, s.repo, "still-"+word, "still "+word)
			plan, err := s.ApplyRetention(resource.WithDryRun(t.Context()), s.repo.UID, retentiondb.RetentionOrder{})
			must(t, err)
			tt.change(a.Digest)
			before := s.digests(t)
			_, err = s.ApplyRetention(t.Context(), s.repo.UID, retentiondb.RetentionOrder{Fingerprint: plan.Fingerprint})
			wantUnmet(t, err, "PREVIEW_OUTDATED")
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(before, s.digests(t)); diff != "" {
				t.Errorf("%s: something has gone:\n%s", name, diff)
			}
			s.keep(t, registry.Retention{KeepMatching: []string{"v*"}, KeepSigned: true})
			_, err = s.ApplyRetention(t.Context(), s.repo.UID, retentiondb.RetentionOrder{})
			must(t, err)
		}
	},
	"what is no fingerprint is refused": func(t *testing.T, s shelf) {
		s.keep(t, registry.Retention{KeepNewest: 1})
		for _, text := range []string{"x", "AQ==", "Ag", "AQI", strings.Repeat("A", 10_000)} {
			_, err := s.ApplyRetention(t.Context(), s.repo.UID, retentiondb.RetentionOrder{Fingerprint: text})
			if !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("%.20q: %v", text, err)
			}
		}
		plan, _ := s.preview(t)
		s.run(t, plan) // the plan is empty
	},
	"one run deletes no more than 200 images, the oldest first": func(t *testing.T, s shelf) {
		for i := range 203 {
			addImage(t, s.Store, s.repo, "", fmt.Sprint(i))
			clock(s, time.Second)
		}
		s.images(t, "v1")
		s.keep(t, registry.Retention{KeepNewest: 1})
		plan, _ := s.preview(t)
		if len(plan.Going) != 200 || !plan.More || plan.Going[0].Digest != newImage("0").Digest {
			t.Errorf("%d images would go, and more: %v", len(plan.Going), plan.More)
		}
		s.run(t, plan)
		plan, _ = s.preview(t)
		if len(plan.Going) != 3 || plan.More {
			t.Errorf("%d images would go, and more: %v", len(plan.Going), plan.More)
		}
	},
	"an image that has too much to go at once stays": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		for i := range 10 {
			var tags []string
			for k := range 100 {
				tags = append(tags, fmt.Sprintf("t-%d-%d", i, k))
			}
			push(t, s.Store, s.repo, m, tags...)
		}
		s.keep(t, registry.Retention{KeepMatching: []string{"none"}})
		plan := s.wantGoing(t)
		wantKept(t, plan, map[registry.KeepReason]int{registry.KeptTooLarge: 1})
	},
	"rules go with their group, and those of a repo come back with it": func(t *testing.T, s shelf) {
		s.keep(t, registry.Retention{KeepNewest: 1})
		s.keep(t, registry.Retention{UID: s.folder.UID, KeepNewest: 2})
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		restore(t, s.Store, trashed(t, s.Store, s.repo.UID)["repo app"], registrydb.Restoration{})
		if got, err := s.Retention(t.Context(), s.repo.UID); err != nil || got.KeepNewest != 1 {
			t.Errorf("rules = %+v, %v", got, err)
		}
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		must(t, s.DeleteGroup(t.Context(), s.folder.UID, ""))
		var n int
		must(t, s.Row(t.Context(), `SELECT count(*) FROM retention`, nil, &n))
		if n != 0 {
			t.Errorf("%d rules are left", n)
		}
	},
	"a run is one event, and one that deletes nothing is none": func(t *testing.T, s shelf) {
		s.images(t, "a", "v1")
		s.keep(t, registry.Retention{KeepNewest: 1})
		s.wantGoing(t, "a")
		n := len(events(t, s.Store))
		s.wantGoing(t)
		all := events(t, s.Store)
		if len(all) != n || all[n-1].Type != resource.RetentionApplied || all[n-1].Subject != s.repo.UID ||
			all[n-1].Group != s.folder.UID {
			t.Errorf("events = %v", all[n-1:])
		}
	},
}

func ignore[T any](_ T, err error) error { return err }

func TestRetentionPromises(t *testing.T) {
	keepPromises(t, retentionPromises)
}

// TestRetentionTurns checks that rules are applied when they are due, to one repo in each organization after the
// other, and by only one replica.
func TestRetentionTurns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		s.KeepTrash = week
		sh := newShelf(t, s)
		second := addRepo(t, s, sh.org.UID, "second")
		other := addGroup(t, s, "", "other")
		set := func(r registry.Retention) { sh.keep(t, r) }
		set(registry.Retention{UID: sh.org.UID, KeepNewest: 1, EveryDays: 7})
		set(registry.Retention{UID: sh.folder.UID, KeepNewest: 1})
		set(registry.Retention{UID: other.UID, KeepNewest: 1, EveryDays: 1})
		due := func() []resource.UID {
			all, err := s.RetentionDue(t.Context(), s.Now(), 10)
			must(t, err)
			slices.Sort(all)
			return all
		}
		take := func(place resource.UID) resource.UID {
			turn, err := s.TakeRetention(t.Context(), place, s.Now())
			must(t, err)
			return turn.Repo
		}
		if all := due(); len(all) != 0 || take(sh.org.UID) != "" {
			t.Errorf("rules are due at once: %v", all)
		}
		clock(sh, day)
		want := []resource.UID{sh.org.UID, other.UID}
		slices.Sort(want)
		if all := due(); !slices.Equal(all, want) {
			t.Errorf("due are %v, want %v", all, want)
		}
		repos := []resource.UID{take(sh.org.UID), take(sh.org.UID)}
		slices.Sort(repos)
		if wanted := slices.Sorted(slices.Values([]resource.UID{sh.repo.UID, second.UID})); !slices.Equal(repos, wanted) {
			t.Errorf("turns = %v, want %v", repos, wanted)
		}
		if take(other.UID) != "" || take(sh.org.UID) != "" || take(sh.org.UID) != "" || len(due()) != 0 {
			t.Errorf("there are turns without end: %v", due())
		}
		clock(sh, day)
		if all := due(); !slices.Equal(all, []resource.UID{other.UID}) {
			t.Errorf("due are %v", all)
		}
		clock(sh, 6*day)
		if all := due(); !slices.Equal(all, want) {
			t.Errorf("due are %v", all)
		}
		// the rules of the folder apply to its repo, and this run asks for the rules of the
		// organization
		sh.images(t, "a", "v1")
		plan, err := s.ApplyRetention(t.Context(), sh.repo.UID, retentiondb.RetentionOrder{Planned: sh.org.UID})
		if err != nil || len(plan.Going) != 0 || len(sh.digests(t)) != 2 {
			t.Errorf("plan = %+v, %v", plan, err)
		}
		must(t, s.DeleteRetention(t.Context(), sh.folder.UID))
		plan, err = s.ApplyRetention(t.Context(), sh.repo.UID, retentiondb.RetentionOrder{Planned: sh.org.UID})
		if err != nil || len(plan.Going) != 1 {
			t.Errorf("plan = %+v, %v", plan, err)
		}
		trashedRetention(t, sh)
	})
}

// trashedRetention checks that the rules of a repo in the trash are kept and postponed.
func trashedRetention(t *testing.T, s shelf) {
	t.Helper()
	s.keep(t, registry.Retention{UID: s.repo.UID, KeepNewest: 1, EveryDays: 1})
	must(t, s.DeleteRepo(t.Context(), s.repo.UID))
	clock(s, day)
	if turn, err := s.TakeRetention(t.Context(), s.repo.UID, s.Now()); err != nil || turn.Repo != "" {
		t.Errorf("turn = %v, %v", turn, err)
	}
	var n int
	must(t, s.Row(t.Context(), `SELECT count(*) FROM retention WHERE uid = $1 AND due_ms > $2`,
		[]any{string(s.repo.UID), store.MS(s.Now())}, &n))
	if n != 1 {
		t.Error("the rules of a repo in the trash are gone, or still due")
	}
}

// sweepingAway returns a function that applies the retention rules of a repo.
func sweepingAway(ctx context.Context, s *storetest.Store, r registry.Repo) func() error {
	return func() error {
		_, err := s.ApplyRetention(ctx, r.UID, retentiondb.RetentionOrder{})
		return err
	}
}

var retentionDuels = map[string]func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel{
	"retention and a push of the same digest": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		addImage(t, s, r, "t-"+word, word)
		return duel{sweepingAway(t.Context(), s, r), func() error {
			_, err := s.PutManifest(t.Context(), ref(r), newImage(word), []string{"t-" + word})
			return err
		}, func(a, b error) error {
			if err := errors.Join(a, b); err != nil {
				return err
			}
			_, err := s.Manifest(t.Context(), r.UID, "t-"+word)
			if errors.Is(err, fault.NotFound) { // retention ran last, and the image can be restored
				return thereOrRestored(t, s, r, word)
			}
			return errors.Join(err, wholeAt(t, s, r, word))
		}}
	},
	"retention and a push of an index": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		addImage(t, s, r, "", word)
		return duel{sweepingAway(t.Context(), s, r), func() error {
			_, err := s.PutManifest(t.Context(), ref(r), newIndex(word, word), []string{"keep-" + word})
			return err
		}, func(a, b error) error {
			if a != nil {
				return a
			}
			missing := (*registrydb.MissingError)(nil)
			if errors.As(b, &missing) { // retention had already deleted the image
				return nil
			}
			_, err := s.Manifest(t.Context(), r.UID, newImage(word).Digest)
			return errors.Join(b, err)
		}}
	},
	"retention and a tag that keeps": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		m := addImage(t, s, r, "t-"+word, word)
		return duel{sweepingAway(t.Context(), s, r), func() error {
			return ignore(s.PutTag(t.Context(), registry.Tag{UID: r.UID.NewChild(), Name: "keep-" + word, Digest: m.Digest},
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
		}}
	},
	"retention and an undelete": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		e := deleted(t, s, r, word)
		return duel{sweepingAway(t.Context(), s, r), func() error {
			_, err := s.Restore(t.Context(), e.UID, registrydb.Restoration{})
			return err
		}, func(a, b error) error {
			return errors.Join(a, b, thereOrRestored(t, s, r, word))
		}}
	},
	"retention and a pull": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		m := addImage(t, s, r, "t-"+word, word)
		return duel{sweepingAway(t.Context(), s, r), func() error {
			_, err := s.Manifest(t.Context(), r.UID, "t-"+word)
			if errors.Is(err, fault.NotFound) {
				return nil
			}
			must(t, s.InsertPulls(t.Context(), []registry.Pull{{UID: r.UID.NewChild(), Digest: m.Digest, Time: s.Now()}}))
			return err
		}, func(a, b error) error {
			return errors.Join(a, b, thereOrRestored(t, s, r, word))
		}}
	},
	"retention twice": func(t *testing.T, s *storetest.Store, r registry.Repo, word string) duel {
		addImage(t, s, r, "t-"+word, word)
		return duel{sweepingAway(t.Context(), s, r), sweepingAway(t.Context(), s, r), func(a, b error) error {
			return errors.Join(a, b, thereOrRestored(t, s, r, word))
		}}
	},
}

// TestRetentionDuels runs retention concurrently with writes that use the manifests that it
// deletes. It checks that the results are consistent.
func TestRetentionDuels(t *testing.T) {
	const rounds = 20
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		s.KeepTrash = week
		org := addGroup(t, s, "", "org")
		for name, prepare := range retentionDuels {
			t.Run(name, func(t *testing.T) {
				r := addRepo(t, s, addGroup(t, s, org.UID, strings.ReplaceAll(name, " ", "-")).UID, "app")
				must(t, ignore(s.SetRetention(t.Context(), registry.Retention{UID: r.UID, KeepMatching: []string{"keep-*"}})))
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
