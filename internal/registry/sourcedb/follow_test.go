package sourcedb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// copyOne copies a tag from the source of a sync run.
func copyOne(ctx context.Context, s *registrytest.Store, run sourcedb.FollowRun, tag string,
	m registry.Manifest) error {
	return testkit.Ignore(s.CopyFollowed(ctx, run, registrydb.Copying{Manifests: []registry.Manifest{m},
		Images: []registry.CopiedImage{{Digest: m.Digest, Tag: tag, FromTag: tag}}}))
}

// stands checks the sync status of a repo.
func stands(t *testing.T, s *registrytest.Store, repo resource.UID, want registry.FollowState,
	why string) registry.Follow {
	t.Helper()
	f, err := s.Follow(t.Context(), repo)
	if err != nil || f.State != want || !strings.Contains(f.Error, why) {
		t.Fatalf("%s stands %+v, %v, want %d %q", repo, f, err, want, why)
	}
	return f
}

// shift moves the times in the given columns by a duration, for all synced repos.
func shift(t *testing.T, s *registrytest.Store, columns string, by time.Duration) {
	t.Helper()
	for column := range strings.FieldsSeq(columns) {
		testkit.Must(t, testkit.Ignore(s.Exec(t.Context(),
			`UPDATE follows SET `+column+` = `+column+` + $1 WHERE `+column+` <> 0`,
			by.Milliseconds())))
	}
}

var followPromises = map[string]func(t *testing.T, s registrytest.Shelf){
	"what is set is due, is done by one, and is equal until it is due again": func(t *testing.T, s registrytest.Shelf) {
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		if got := stands(t, s.Store, f.UID, registry.FollowQueued,
			""); got.Source != s.App.UID || got.Identity != iamtest.Alice ||
			got.SetTime.IsZero() {
			t.Errorf("it stands %+v", got)
		}
		due, err := s.FollowsDue(t.Context(), 1, 10)
		if err != nil || !slices.Equal(due, []resource.UID{f.UID}) {
			t.Fatalf("due = %v, %v", due, err)
		}
		run := registrytest.BeginSync(t, s.SourceStore, f.UID)
		if run.Source != s.App.UID || run.Identity != iamtest.Alice {
			t.Errorf("run = %+v", run)
		}
		stands(t, s.Store, f.UID, registry.FollowRunning, "")
		if _, ok, err := s.TakeFollow(t.Context(), f.UID, "another"); err != nil || ok {
			t.Errorf("another takes it: %t, %v", ok, err)
		}
		testkit.Must(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: true}))
		got := stands(t, s.Store, f.UID, registry.FollowEqual, "")
		if got.SuccessTime.IsZero() || got.DueTime.Sub(got.SuccessTime) != time.Hour ||
			got.ExpireTime.Sub(got.SuccessTime) != registry.FollowLife {
			t.Errorf("it stands %+v", got)
		}
		if due, err := s.FollowsDue(t.Context(), 1, 10); err != nil || len(due) != 0 {
			t.Errorf("due = %v, %v", due, err)
		}
	},
	"one that was taken and nobody speaks of is due again, and its holder can do nothing": func(t *testing.T,
		s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		old := registrytest.BeginSync(t, s.SourceStore, f.UID)
		shift(t, s.Store, "until_ms due_ms", -2*time.Minute)
		testkit.WantFault(t, copyOne(t.Context(), s.Store, old, "v1", m), fault.Aborted, fault.Resource{})
		run, ok, err := s.TakeFollow(t.Context(), f.UID, "another")
		if err != nil || !ok {
			t.Fatalf("take: %t, %v", ok, err)
		}
		testkit.WantFault(t, copyOne(t.Context(), s.Store, old, "v1", m), fault.Aborted, fault.Resource{})
		testkit.Must(t, s.EndFollow(t.Context(), old,
			sourcedb.FollowEnd{Error: "x"})) // ending an old run does not end the new one
		stands(t, s.Store, f.UID, registry.FollowRunning, "")
		testkit.Must(t, copyOne(t.Context(), s.Store, run, "v1", m))
	},
	"a source that changes meanwhile makes it due again afterwards": func(t *testing.T, s registrytest.Shelf) {
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		other := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "other", f.UID)
		for _, uid := range []resource.UID{f.UID, other.UID} {
			run := registrytest.BeginSync(t, s.SourceStore, uid)
			testkit.Must(t, s.TellFollowers(t.Context(), []resource.UID{s.App.UID}, 7))
			stands(t, s.Store, uid, registry.FollowRunning, "")
			testkit.Must(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: true}))
			stands(t, s.Store, f.UID, registry.FollowQueued, "")
		}
		if got := stands(t, s.Store, f.UID, registry.FollowQueued, ""); got.SuccessTime.IsZero() {
			t.Errorf("it stands %+v", got)
		}
		stands(t, s.Store, other.UID, registry.FollowEqual, "")
		testkit.Must(t, s.TellFollowers(t.Context(), nil, 8))
		stands(t, s.Store, other.UID, registry.FollowQueued, "")
		if seq, err := s.FollowCursor(t.Context()); err != nil || seq != 8 {
			t.Errorf("cursor = %d, %v", seq, err)
		}
	},
	"failures are told, come back later each time, and end with a success": func(t *testing.T, s registrytest.Shelf) {
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		waits := map[int]time.Duration{0: 30 * time.Second, 1: time.Minute, 8: time.Hour}
		var since time.Time
		for i := range 9 {
			begun := s.Time()
			testkit.Must(t, s.EndFollow(t.Context(), registrytest.BeginSync(t, s.SourceStore, f.UID),
				sourcedb.FollowEnd{Error: "no", Failed: []string{"a", "b"}}))
			got := stands(t, s.Store, f.UID, registry.FollowFailed, "no")
			if i == 0 {
				since = got.StateTime
			}
			if !got.StateTime.Equal(since) || !slices.Equal(got.FailedTags, []string{"a", "b"}) {
				t.Errorf("it stands %+v", got)
			}
			early, late := begun.Add(-time.Second), s.Time().Add(time.Second) // the clock of the database may differ a little
			if want, ok := waits[i]; ok && (got.DueTime.Before(early.Add(want)) || got.DueTime.After(late.Add(want))) {
				t.Errorf("it is due %s after it began, want %s", got.DueTime.Sub(begun), want)
			}
			shift(t, s.Store, "due_ms", -2*time.Hour)
		}
		testkit.Must(t, s.EndFollow(t.Context(), registrytest.BeginSync(t, s.SourceStore, f.UID),
			sourcedb.FollowEnd{Whole: true}))
		stands(t, s.Store, f.UID, registry.FollowEqual, "")
	},
	"after two weeks without a whole run it has expired, and is not due": func(t *testing.T, s registrytest.Shelf) {
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		testkit.Must(t, s.EndFollow(t.Context(), registrytest.BeginSync(t, s.SourceStore, f.UID),
			sourcedb.FollowEnd{Error: "no"}))
		shift(t, s.Store, "set_ms due_ms", -registry.FollowLife-time.Second)
		stands(t, s.Store, f.UID, registry.FollowFailed, "expired")
		if _, ok, err := s.TakeFollow(t.Context(), f.UID, "me"); ok || err != nil {
			t.Errorf("it was taken: %v", err)
		}
		testkit.Must(t, s.TellFollowers(t.Context(), nil, 1))
		if due, err := s.FollowsDue(t.Context(), 1, 10); err != nil || len(due) != 0 {
			t.Errorf("due = %v, %v", due, err)
		}
		testkit.WantUnmet(t, s.RequestFollow(t.Context(), f.UID, 0), "SYNC_EXPIRED")
	},
	"a whole run puts the end off, which is no change of the repo": func(t *testing.T, s registrytest.Shelf) {
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		n := len(dbtest.Events(t, s.DB))
		testkit.Must(t, s.EndFollow(t.Context(), registrytest.BeginSync(t, s.SourceStore, f.UID),
			sourcedb.FollowEnd{Whole: true,
				Error: "a tag failed"}))
		r, err := s.Repo(t.Context(), f.UID)
		if err != nil || !r.UpdateTime.Equal(f.UpdateTime) ||
			r.Sync.ExpirationTime.Sub(s.Time()).Round(time.Hour) != registry.FollowLife || len(dbtest.Events(t, s.DB)) != n {
			t.Errorf("repo = %+v, %v", r, err)
		}
	},
	"of each organization the one that is due for longest has its turn": func(t *testing.T, s registrytest.Shelf) {
		other := iamtest.AddGroup(t, s.IAMStore, "", "other")
		first := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "first", s.App.UID)
		shift(t, s.Store, "due_ms", -time.Minute)
		for i := range 5 {
			registrytest.AddFollower(t, s.SourceStore, s.Org.UID, fmt.Sprint("f", i), s.App.UID)
		}
		theirs := registrytest.AddFollower(t, s.SourceStore, other.UID, "theirs", s.App.UID)
		due, err := s.FollowsDue(t.Context(), 1, 10)
		if err != nil || !slices.Equal(due, []resource.UID{first.UID, theirs.UID}) {
			t.Errorf("due = %v, %v", due, err)
		}
		due, err = s.FollowsDue(t.Context(), 3, 10)
		if err != nil || len(due) != 4 || due[0] != first.UID || due[1] != theirs.UID {
			t.Errorf("due = %v, %v", due, err)
		}
	},
	"loops are refused, of any length, and chains are not": func(t *testing.T, s registrytest.Shelf) {
		a := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "a", s.App.UID)
		b := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "b", a.UID)
		for _, source := range []resource.UID{s.App.UID, a.UID, b.UID} {
			after := s.App
			after.Sync = &registry.SyncConfig{Source: string(source)}
			_, err := s.UpdateFollower(t.Context(), s.App, after, iamtest.Alice)
			testkit.WantFault(t, err, fault.InvalidArgument, fault.Resource{})
			testkit.WantSame(t, s.Repo, s.App.UID, s.App)
		}
		_, err := s.UpdateRepo(t.Context(), a, func() registry.Repo { r := a; r.Sync = nil; return r }())
		testkit.Must(t, err)
		after := s.App
		after.Sync = &registry.SyncConfig{Source: string(b.UID)}
		// possible, because a no longer follows any repo
		testkit.Must(t, testkit.Ignore(s.UpdateFollower(t.Context(), s.App, after, iamtest.Alice)))
	},
	"a repo that follows has no tags of its own, but what is attached": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		testkit.Must(t, copyOne(t.Context(), s.Store, registrytest.BeginSync(t, s.SourceStore, f.UID), "v1", m))
		tag, err := s.TagNamed(t.Context(), f.UID, "v1")
		testkit.Must(t, err)
		registrytest.AddBlob(t, s.RegistryStore, f, "two")
		for name, err := range map[string]error{
			"push": testkit.Ignore(s.PutManifest(t.Context(), registrytest.Ref(f), registrytest.NewImage("two"),
				[]string{"v2"})),
			"push again": testkit.Ignore(s.PutManifest(t.Context(), registrytest.Ref(f), m, []string{"v1"})),
			"tag": testkit.Ignore(s.PutTag(t.Context(), registry.Tag{UID: f.UID.NewChild(), Name: "v2", Digest: m.Digest},
				nil)),
			"untag":     s.DeleteTag(t.Context(), tag.UID, nil),
			"by name":   s.DeleteTagNamed(t.Context(), f.UID, "v1", nil),
			"manifest":  s.DeleteManifest(t.Context(), f.UID, m.Digest, nil),
			"copy":      testkit.Ignore(s.CopyImages(t.Context(), registrytest.NewCopy(s.App, f, "v1", m))),
			"retention": testkit.Ignore(retainIn(t, s, f.UID, "")),
		} {
			if unmet := fault.From(err).Unmet; len(unmet) != 1 || unmet[0].Subject != "FOLLOWS" {
				t.Errorf("%s: %v", name, err)
			}
		}
		if plan, err := retainIn(t, s, f.UID, f.UID); err != nil || len(plan.Going) != 0 {
			t.Errorf("rules that are due: %+v, %v", plan, err)
		}
		tag.Deprecated = true
		if got, err := s.PutTag(t.Context(), tag, nil); err != nil || !got.Deprecated {
			t.Errorf("a tag that stays: %+v, %v", got, err)
		}
		registrytest.Push(t, s.RegistryStore, f, registrytest.NewImage("two"))
		registrytest.Push(t, s.RegistryStore, f, registrytest.NewReferrer("signature", m))
		testkit.Must(t, s.DeleteManifest(t.Context(), f.UID, registrytest.NewImage("two").Digest, nil))
	},
	"what the trash has of a repo that follows stays there, and comes when it does not": func(t *testing.T,
		s registrytest.Shelf) {
		r := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "f")
		m := registrytest.AddImage(t, s.RegistryStore, r, "old", "old")
		after := r
		after.Sync = &registry.SyncConfig{Source: string(s.App.UID)}
		after, err := s.UpdateFollower(t.Context(), r, after, iamtest.Alice)
		testkit.Must(t, err)
		removed, kept, next, err := s.DropFollowed(t.Context(), registrytest.BeginSync(t, s.SourceStore, r.UID), "", 10)
		if err != nil || removed != 1 || len(kept) != 0 || next != "" {
			t.Fatalf("removed %d, kept %v, %q, %v", removed, kept, next, err)
		}
		e := registrytest.Trashed(t, s.RegistryStore, r.UID)["tag old"]
		_, err = s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		testkit.WantUnmet(t, err, "FOLLOWS")
		before, err := s.Repo(t.Context(), r.UID)
		testkit.Must(t, err)
		after = before
		after.Sync = nil
		testkit.Must(t, testkit.Ignore(s.UpdateRepo(t.Context(), before, after)))
		testkit.Must(t, testkit.Ignore(s.Restore(t.Context(), e.UID, registrydb.Restoration{})))
		if got, err := s.TagNamed(t.Context(), r.UID, "old"); err != nil || got.Digest != m.Digest {
			t.Errorf("tag = %+v, %v", got, err)
		}
	},
	"what differs is found in the order of names, and some at a time": func(t *testing.T, s registrytest.Shelf) {
		f := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "f")
		one, two := registrytest.AddImage(t, s.RegistryStore, s.App, "a", "one"), registrytest.AddImage(t, s.RegistryStore,
			s.App, "b", "two")
		registrytest.Push(t, s.RegistryStore, s.App, two, "c", "d")
		registrytest.AddImage(t, s.RegistryStore, f, "a", "one")
		registrytest.AddImage(t, s.RegistryStore, f, "c", "other")
		registrytest.AddImage(t, s.RegistryStore, f, "z", "one")
		run := sourcedb.FollowRun{Repo: f.UID, Source: s.App.UID}
		got, err := s.FollowWanted(t.Context(), run, "", 2)
		want := []sourcedb.FollowedTag{{Name: "b", Digest: two.Digest},
			{Name: "c", Digest: two.Digest, Here: registrytest.NewImage("other").Digest}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("wanted = %+v, %v", got, err)
		}
		got, err = s.FollowWanted(t.Context(), run, "c", 2)
		if err != nil || len(got) != 1 || got[0].Name != "d" {
			t.Errorf("wanted = %+v, %v", got, err)
		}
		a, b := registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("a", one)), registrytest.Push(t,
			s.RegistryStore,
			s.App, registrytest.NewReferrer("b", one))
		registrytest.Push(t, s.RegistryStore, s.App, registrytest.NewReferrer("c",
			two)) // a referrer of an image that the repo does not have
		registrytest.Push(t, s.RegistryStore, f, a)
		if got, err := s.FollowReferrers(t.Context(), run, "", 9); err != nil || !slices.Equal(got, []string{b.Digest}) {
			t.Errorf("referrers = %v, %v", got, err)
		}
	},
	"a source that goes takes nothing with it, and a repo that goes ends the run": func(t *testing.T,
		s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		run := registrytest.BeginSync(t, s.SourceStore, f.UID)
		testkit.Must(t, copyOne(t.Context(), s.Store, run, "v1", m))
		testkit.Must(t, s.DeleteRepo(t.Context(), s.App.UID))
		_, _, _, err := s.DropFollowed(t.Context(), run, "", 10)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "source", Name: string(s.App.UID)})
		if _, err := s.TagNamed(t.Context(), f.UID, "v1"); err != nil {
			t.Error(err)
		}
		testkit.Must(t, s.DeleteRepo(t.Context(), f.UID))
		testkit.WantFault(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{}), fault.NotFound, fault.Resource{})
		if has, err := s.HasFollowers(t.Context()); err != nil || has {
			t.Errorf("followers: %t, %v", has, err)
		}
	},
	"another source, or none, ends a run": func(t *testing.T, s registrytest.Shelf) {
		m := registrytest.AddImage(t, s.RegistryStore, s.App, "v1", "one")
		other := registrytest.AddRepo(t, s.RegistryStore, s.Org.UID, "other")
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		run := registrytest.BeginSync(t, s.SourceStore, f.UID)
		after := f
		after.Sync = &registry.SyncConfig{Source: string(other.UID)}
		after, err := s.UpdateFollower(t.Context(), f, after, iamtest.Bob)
		testkit.Must(t, err)
		testkit.WantFault(t, copyOne(t.Context(), s.Store, run, "v1", m), fault.Aborted, fault.Resource{})
		testkit.Must(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: true}))
		stands(t, s.Store, f.UID, registry.FollowQueued, "")
		run = registrytest.BeginSync(t, s.SourceStore, f.UID)
		none := after
		none.Sync = nil
		testkit.Must(t, testkit.Ignore(s.UpdateRepo(t.Context(), after, none)))
		_, _, _, err = s.DropFollowed(t.Context(), run, "", 10)
		testkit.WantFault(t, err, fault.Aborted, fault.Resource{})
		_, err = s.Follow(t.Context(), f.UID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a repo without a row follows nothing, until somebody sets its source again": func(t *testing.T,
		s registrytest.Shelf) {
		f := registrytest.NewFollower(s.Org.UID, "f", s.App.UID)
		testkit.Must(t, s.InsertRepo(t.Context(), f))
		stands(t, s.Store, f.UID, registry.FollowFailed, "set it again")
		testkit.WantUnmet(t, s.RequestFollow(t.Context(), f.UID, 0), "SYNC_UNSET")
		registrytest.AddImage(t, s.RegistryStore, f, "v1", "one") // callers may push to the repo, because it is not synced
		after := f
		after.Sync = &registry.SyncConfig{Source: f.Sync.Source, ExpirationTime: s.Time()}
		testkit.Must(t, testkit.Ignore(s.UpdateFollower(t.Context(), f, after, iamtest.Alice)))
		stands(t, s.Store, f.UID, registry.FollowQueued, "")
	},
	"those below a group are listed by pages": func(t *testing.T, s registrytest.Shelf) {
		var want, got []resource.UID
		for i := range 3 {
			want = append(want, registrytest.AddFollower(t, s.SourceStore, s.Folder.UID, fmt.Sprint("f", i), s.App.UID).UID)
		}
		unset := registrytest.NewFollower(s.Folder.UID, "unset", s.App.UID)
		testkit.Must(t, s.InsertRepo(t.Context(), unset))
		want = append(want, unset.UID)
		registrytest.AddRepo(t, s.RegistryStore, s.Folder.UID, "none")
		registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "above", s.App.UID)
		slices.Sort(want)
		for p := (page.Request{Size: 3}); ; {
			some, err := s.Follows(t.Context(), s.Folder.UID, p)
			if err != nil || some.Total != 4 {
				t.Fatalf("page = %+v, %v", some, err)
			}
			for _, f := range some.Items {
				got = append(got, f.Repo)
			}
			if p.After = some.Last; p.After == nil {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
	},
	"who asks twice within a moment waits for it": func(t *testing.T, s registrytest.Shelf) {
		f := registrytest.AddFollower(t, s.SourceStore, s.Org.UID, "f", s.App.UID)
		testkit.Must(t, s.EndFollow(t.Context(), registrytest.BeginSync(t, s.SourceStore, f.UID),
			sourcedb.FollowEnd{Whole: true}))
		testkit.Must(t, s.RequestFollow(t.Context(), f.UID, time.Minute))
		if got := stands(t, s.Store, f.UID, registry.FollowEqual,
			""); got.DueTime.Sub(got.SuccessTime).Round(time.Minute) != time.Minute {
			t.Errorf("it stands %+v", got)
		}
		testkit.Must(t, s.RequestFollow(t.Context(), f.UID, 0))
		stands(t, s.Store, f.UID, registry.FollowQueued, "")
	},
}

// retainIn sets rules for a repo that match none of its images, and applies them.
func retainIn(t *testing.T, s registrytest.Shelf, repo, planned resource.UID) (retentiondb.RetentionPlan, error) {
	t.Helper()
	testkit.Must(t, testkit.Ignore(s.SetRetention(t.Context(),
		registry.Retention{UID: repo, KeepMatching: []string{"none"}, EveryDays: 1})))
	return s.ApplyRetention(t.Context(), repo, retentiondb.RetentionOrder{Planned: planned})
}

func TestFollowPromises(t *testing.T) {
	registrytest.KeepPromises(t, followPromises)
}

// TestFollowDuels runs steps of a sync concurrently with changes that end the sync. It checks that
// the results are consistent.
func TestFollowDuels(t *testing.T) {
	const rounds = 10
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		for name, against := range map[string]func(source, f registry.Repo) error{
			"the source is deleted": func(source, _ registry.Repo) error { return s.DeleteRepo(t.Context(), source.UID) },
			"the repo is deleted":   func(_, f registry.Repo) error { return s.DeleteRepo(t.Context(), f.UID) },
			"it follows no longer": func(_, f registry.Repo) error {
				after := f
				after.Sync = nil
				return testkit.Ignore(s.UpdateRepo(t.Context(), f, after))
			},
			"the tag moves": func(source, _ registry.Repo) error {
				return testkit.Ignore(s.PutManifest(t.Context(), registrytest.Ref(source), registrytest.NewImage("two"),
					[]string{"v1"}))
			},
			"another replica": func(_, f registry.Repo) error {
				_, _, err := s.TakeFollow(t.Context(), f.UID, "another")
				return err
			},
			"everybody is told":  func(_, _ registry.Repo) error { return s.TellFollowers(t.Context(), nil, 1) },
			"the source follows": func(source, f registry.Repo) error { return loop(t, s, source, f) },
		} {
			t.Run(name, func(t *testing.T) {
				for i := range rounds {
					g := iamtest.AddGroup(t, s.IAMStore, org.UID, fmt.Sprint(strings.ReplaceAll(name, " ", "-"), i))
					source := registrytest.AddRepo(t, s.RegistryStore, g.UID, "source")
					m := registrytest.AddImage(t, s.RegistryStore, source, "v1", "one")
					registrytest.AddImage(t, s.RegistryStore, source, "", "two")
					f := registrytest.AddFollower(t, s.SourceStore, g.UID, "f", source.UID)
					run, _, err := s.TakeFollow(t.Context(), f.UID, "me")
					testkit.Must(t, err)
					a, b := dbtest.AtOnce(func() error {
						err := copyOne(t.Context(), s, run, "v1", m)
						return errors.Join(err, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: err == nil}))
					}, func() error { return against(source, f) })
					if a != nil && !errors.Is(a, fault.Aborted) && !errors.Is(a, fault.NotFound) || b != nil {
						t.Fatalf("copy: %v, against it: %v", a, b)
					}
				}
			})
		}
		dbtest.WantExact(t, s.DB)
	})
}

// loop tries to make the source of a repo follow the repo, which must fail.
func loop(t *testing.T, s *registrytest.Store, source, f registry.Repo) error {
	after := source
	after.Sync = &registry.SyncConfig{Source: string(f.UID)}
	if _, err := s.UpdateFollower(t.Context(), source, after, iamtest.Alice); !errors.Is(err, fault.InvalidArgument) {
		return fmt.Errorf("a loop: %w", err)
	}
	return nil
}

// TestFollowLoopDuel lets two repos follow each other concurrently, and checks that only one of
// them does.
func TestFollowLoopDuel(t *testing.T) {
	registrytest.Each(t, func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		for i := range 10 {
			a, b := registrytest.AddRepo(t, s.RegistryStore, org.UID, fmt.Sprint("a", i)), registrytest.AddRepo(t,
				s.RegistryStore, org.UID, fmt.Sprint("b", i))
			follow := func(r, source registry.Repo) func() error {
				return func() error {
					after := r
					after.Sync = &registry.SyncConfig{Source: string(source.UID)}
					return testkit.Ignore(s.UpdateFollower(t.Context(), r, after, iamtest.Alice))
				}
			}
			one, two := dbtest.AtOnce(follow(a, b), follow(b, a))
			if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two), fault.InvalidArgument) {
				t.Fatalf("both: %v, %v", one, two)
			}
		}
	})
}
