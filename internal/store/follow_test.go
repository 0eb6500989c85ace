package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/retentiondb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// newFollower returns a repo that is synced from another repo, source.
func newFollower(group resource.UID, name string, source resource.UID) registry.Repo {
	r := newRepo(group, name)
	r.Sync = &registry.SyncConfig{Source: string(source), ExpirationTime: epoch}
	return r
}

func addFollower(t *testing.T, s *storetest.Store, group resource.UID, name string, source resource.UID) registry.Repo {
	t.Helper()
	r := newFollower(group, name, source)
	must(t, s.InsertFollower(t.Context(), r, alice))
	return r
}

// begin begins a sync run for a repo that is due.
func begin(t *testing.T, s *storetest.Store, repo resource.UID) sourcedb.FollowRun {
	t.Helper()
	run, ok, err := s.TakeFollow(t.Context(), repo, "me")
	if err != nil || !ok {
		t.Fatalf("take %s: %t, %v", repo, ok, err)
	}
	return run
}

// copyOne copies a tag from the source of a sync run.
func copyOne(ctx context.Context, s *storetest.Store, run sourcedb.FollowRun, tag string, m registry.Manifest) error {
	return ignore(s.CopyFollowed(ctx, run, registrydb.Copying{Manifests: []registry.Manifest{m},
		Images: []registry.CopiedImage{{Digest: m.Digest, Tag: tag, FromTag: tag}}}))
}

// stands checks the sync status of a repo.
func stands(t *testing.T, s *storetest.Store, repo resource.UID, want registry.FollowState,
	why string) registry.Follow {
	t.Helper()
	f, err := s.Follow(t.Context(), repo)
	if err != nil || f.State != want || !strings.Contains(f.Error, why) {
		t.Fatalf("%s stands %+v, %v, want %d %q", repo, f, err, want, why)
	}
	return f
}

// shift moves the times in the given columns by a duration, for all synced repos.
func shift(t *testing.T, s *storetest.Store, columns string, by time.Duration) {
	t.Helper()
	for column := range strings.FieldsSeq(columns) {
		must(t, ignore(s.Exec(t.Context(), `UPDATE follows SET `+column+` = `+column+` + $1 WHERE `+column+` <> 0`,
			by.Milliseconds())))
	}
}

func (st stage) actsOnFollowers() map[string]act {
	fresh, loop := newFollower(st.org.UID, "new", st.repo.UID), newFollower(st.org.UID, "loop", st.org.UID.NewChild())
	update := func(source resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			return ignore(store.Edit(ctx, st.follower.UID, st.Repo,
				func(ctx context.Context, before, after registry.Repo) (registry.Repo, error) {
					return st.UpdateFollower(ctx, before, after, bob)
				}, func(r *registry.Repo) error { r.Sync.Source = string(source); return nil }))
		}
	}
	return map[string]act{
		"InsertFollower": {
			func(ctx context.Context) error { return st.InsertFollower(ctx, fresh, alice) },
			func(ctx context.Context) error { return st.InsertFollower(ctx, loop, alice) },
		},
		"UpdateFollower": {update(st.deployed.UID), update(st.follower.UID)},
		"RequestFollow": {
			func(ctx context.Context) error { return st.RequestFollow(ctx, st.equal.UID, 0) },
			func(ctx context.Context) error { return st.RequestFollow(ctx, st.repo.UID, time.Second) },
		},
		"TakeFollow": {func(ctx context.Context) error {
			_, _, err := st.TakeFollow(ctx, st.follower.UID, "me")
			return err
		}, nil},
	}
}

var followPromises = map[string]func(t *testing.T, s shelf){
	"what is set is due, is done by one, and is equal until it is due again": func(t *testing.T, s shelf) {
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		if got := stands(t, s.Store, f.UID, registry.FollowQueued, ""); got.Source != s.repo.UID || got.Identity != alice ||
			got.SetTime.IsZero() {
			t.Errorf("it stands %+v", got)
		}
		due, err := s.FollowsDue(t.Context(), 1, 10)
		if err != nil || !slices.Equal(due, []resource.UID{f.UID}) {
			t.Fatalf("due = %v, %v", due, err)
		}
		run := begin(t, s.Store, f.UID)
		if run.Source != s.repo.UID || run.Identity != alice {
			t.Errorf("run = %+v", run)
		}
		stands(t, s.Store, f.UID, registry.FollowRunning, "")
		if _, ok, err := s.TakeFollow(t.Context(), f.UID, "another"); err != nil || ok {
			t.Errorf("another takes it: %t, %v", ok, err)
		}
		must(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: true}))
		got := stands(t, s.Store, f.UID, registry.FollowEqual, "")
		if got.SuccessTime.IsZero() || got.DueTime.Sub(got.SuccessTime) != time.Hour ||
			got.ExpireTime.Sub(got.SuccessTime) != registry.FollowLife {
			t.Errorf("it stands %+v", got)
		}
		if due, err := s.FollowsDue(t.Context(), 1, 10); err != nil || len(due) != 0 {
			t.Errorf("due = %v, %v", due, err)
		}
	},
	"one that was taken and nobody speaks of is due again, and its holder can do nothing": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		old := begin(t, s.Store, f.UID)
		shift(t, s.Store, "until_ms due_ms", -2*time.Minute)
		wantFault(t, copyOne(t.Context(), s.Store, old, "v1", m), fault.Aborted, fault.Resource{})
		run, ok, err := s.TakeFollow(t.Context(), f.UID, "another")
		if err != nil || !ok {
			t.Fatalf("take: %t, %v", ok, err)
		}
		wantFault(t, copyOne(t.Context(), s.Store, old, "v1", m), fault.Aborted, fault.Resource{})
		must(t, s.EndFollow(t.Context(), old, sourcedb.FollowEnd{Error: "x"})) // ending an old run does not end the new one
		stands(t, s.Store, f.UID, registry.FollowRunning, "")
		must(t, copyOne(t.Context(), s.Store, run, "v1", m))
	},
	"a source that changes meanwhile makes it due again afterwards": func(t *testing.T, s shelf) {
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		other := addFollower(t, s.Store, s.org.UID, "other", f.UID)
		for _, uid := range []resource.UID{f.UID, other.UID} {
			run := begin(t, s.Store, uid)
			must(t, s.TellFollowers(t.Context(), []resource.UID{s.repo.UID}, 7))
			stands(t, s.Store, uid, registry.FollowRunning, "")
			must(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: true}))
			stands(t, s.Store, f.UID, registry.FollowQueued, "")
		}
		if got := stands(t, s.Store, f.UID, registry.FollowQueued, ""); got.SuccessTime.IsZero() {
			t.Errorf("it stands %+v", got)
		}
		stands(t, s.Store, other.UID, registry.FollowEqual, "")
		must(t, s.TellFollowers(t.Context(), nil, 8))
		stands(t, s.Store, other.UID, registry.FollowQueued, "")
		if seq, err := s.FollowCursor(t.Context()); err != nil || seq != 8 {
			t.Errorf("cursor = %d, %v", seq, err)
		}
	},
	"failures are told, come back later each time, and end with a success": func(t *testing.T, s shelf) {
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		waits := map[int]time.Duration{0: 30 * time.Second, 1: time.Minute, 8: time.Hour}
		var since time.Time
		for i := range 9 {
			begun := s.Time()
			must(t, s.EndFollow(t.Context(), begin(t, s.Store, f.UID),
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
		must(t, s.EndFollow(t.Context(), begin(t, s.Store, f.UID), sourcedb.FollowEnd{Whole: true}))
		stands(t, s.Store, f.UID, registry.FollowEqual, "")
	},
	"after two weeks without a whole run it has expired, and is not due": func(t *testing.T, s shelf) {
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		must(t, s.EndFollow(t.Context(), begin(t, s.Store, f.UID), sourcedb.FollowEnd{Error: "no"}))
		shift(t, s.Store, "set_ms due_ms", -registry.FollowLife-time.Second)
		stands(t, s.Store, f.UID, registry.FollowFailed, "expired")
		if _, ok, err := s.TakeFollow(t.Context(), f.UID, "me"); ok || err != nil {
			t.Errorf("it was taken: %v", err)
		}
		must(t, s.TellFollowers(t.Context(), nil, 1))
		if due, err := s.FollowsDue(t.Context(), 1, 10); err != nil || len(due) != 0 {
			t.Errorf("due = %v, %v", due, err)
		}
		wantUnmet(t, s.RequestFollow(t.Context(), f.UID, 0), "SYNC_EXPIRED")
	},
	"a whole run puts the end off, which is no change of the repo": func(t *testing.T, s shelf) {
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		n := len(events(t, s.Store))
		must(t, s.EndFollow(t.Context(), begin(t, s.Store, f.UID), sourcedb.FollowEnd{Whole: true, Error: "a tag failed"}))
		r, err := s.Repo(t.Context(), f.UID)
		if err != nil || !r.UpdateTime.Equal(f.UpdateTime) ||
			r.Sync.ExpirationTime.Sub(s.Time()).Round(time.Hour) != registry.FollowLife || len(events(t, s.Store)) != n {
			t.Errorf("repo = %+v, %v", r, err)
		}
	},
	"of each organization the one that is due for longest has its turn": func(t *testing.T, s shelf) {
		other := addGroup(t, s.Store, "", "other")
		first := addFollower(t, s.Store, s.org.UID, "first", s.repo.UID)
		shift(t, s.Store, "due_ms", -time.Minute)
		for i := range 5 {
			addFollower(t, s.Store, s.org.UID, fmt.Sprint("f", i), s.repo.UID)
		}
		theirs := addFollower(t, s.Store, other.UID, "theirs", s.repo.UID)
		due, err := s.FollowsDue(t.Context(), 1, 10)
		if err != nil || !slices.Equal(due, []resource.UID{first.UID, theirs.UID}) {
			t.Errorf("due = %v, %v", due, err)
		}
		due, err = s.FollowsDue(t.Context(), 3, 10)
		if err != nil || len(due) != 4 || due[0] != first.UID || due[1] != theirs.UID {
			t.Errorf("due = %v, %v", due, err)
		}
	},
	"loops are refused, of any length, and chains are not": func(t *testing.T, s shelf) {
		a := addFollower(t, s.Store, s.org.UID, "a", s.repo.UID)
		b := addFollower(t, s.Store, s.org.UID, "b", a.UID)
		for _, source := range []resource.UID{s.repo.UID, a.UID, b.UID} {
			after := s.repo
			after.Sync = &registry.SyncConfig{Source: string(source)}
			_, err := s.UpdateFollower(t.Context(), s.repo, after, alice)
			wantFault(t, err, fault.InvalidArgument, fault.Resource{})
			wantSame(t, s.Repo, s.repo.UID, s.repo)
		}
		_, err := s.UpdateRepo(t.Context(), a, func() registry.Repo { r := a; r.Sync = nil; return r }())
		must(t, err)
		after := s.repo
		after.Sync = &registry.SyncConfig{Source: string(b.UID)}
		// possible, because a no longer follows any repo
		must(t, ignore(s.UpdateFollower(t.Context(), s.repo, after, alice)))
	},
	"a repo that follows has no tags of its own, but what is attached": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		must(t, copyOne(t.Context(), s.Store, begin(t, s.Store, f.UID), "v1", m))
		tag, err := s.TagNamed(t.Context(), f.UID, "v1")
		must(t, err)
		addBlob(t, s.Store, f, "two")
		for name, err := range map[string]error{
			"push":       ignore(s.PutManifest(t.Context(), ref(f), newImage("two"), []string{"v2"})),
			"push again": ignore(s.PutManifest(t.Context(), ref(f), m, []string{"v1"})),
			"tag":        ignore(s.PutTag(t.Context(), registry.Tag{UID: f.UID.NewChild(), Name: "v2", Digest: m.Digest}, nil)),
			"untag":      s.DeleteTag(t.Context(), tag.UID, nil),
			"by name":    s.DeleteTagNamed(t.Context(), f.UID, "v1", nil),
			"manifest":   s.DeleteManifest(t.Context(), f.UID, m.Digest, nil),
			"copy":       ignore(s.CopyImages(t.Context(), copying(s.repo, f, "v1", m))),
			"retention":  ignore(s.retainIn(t, f.UID, "")),
		} {
			if unmet := fault.From(err).Unmet; len(unmet) != 1 || unmet[0].Subject != "FOLLOWS" {
				t.Errorf("%s: %v", name, err)
			}
		}
		if plan, err := s.retainIn(t, f.UID, f.UID); err != nil || len(plan.Going) != 0 {
			t.Errorf("rules that are due: %+v, %v", plan, err)
		}
		tag.Deprecated = true
		if got, err := s.PutTag(t.Context(), tag, nil); err != nil || !got.Deprecated {
			t.Errorf("a tag that stays: %+v, %v", got, err)
		}
		push(t, s.Store, f, newImage("two"))
		push(t, s.Store, f, referrer("signature", m))
		must(t, s.DeleteManifest(t.Context(), f.UID, newImage("two").Digest, nil))
	},
	"what the trash has of a repo that follows stays there, and comes when it does not": func(t *testing.T, s shelf) {
		r := addRepo(t, s.Store, s.org.UID, "f")
		m := addImage(t, s.Store, r, "old", "old")
		after := r
		after.Sync = &registry.SyncConfig{Source: string(s.repo.UID)}
		after, err := s.UpdateFollower(t.Context(), r, after, alice)
		must(t, err)
		removed, kept, next, err := s.DropFollowed(t.Context(), begin(t, s.Store, r.UID), "", 10)
		if err != nil || removed != 1 || len(kept) != 0 || next != "" {
			t.Fatalf("removed %d, kept %v, %q, %v", removed, kept, next, err)
		}
		e := trashed(t, s.Store, r.UID)["tag old"]
		_, err = s.Restore(t.Context(), e.UID, registrydb.Restoration{})
		wantUnmet(t, err, "FOLLOWS")
		before, err := s.Repo(t.Context(), r.UID)
		must(t, err)
		after = before
		after.Sync = nil
		must(t, ignore(s.UpdateRepo(t.Context(), before, after)))
		must(t, ignore(s.Restore(t.Context(), e.UID, registrydb.Restoration{})))
		if got, err := s.TagNamed(t.Context(), r.UID, "old"); err != nil || got.Digest != m.Digest {
			t.Errorf("tag = %+v, %v", got, err)
		}
	},
	"what differs is found in the order of names, and some at a time": func(t *testing.T, s shelf) {
		f := addRepo(t, s.Store, s.org.UID, "f")
		one, two := addImage(t, s.Store, s.repo, "a", "one"), addImage(t, s.Store, s.repo, "b", "two")
		push(t, s.Store, s.repo, two, "c", "d")
		addImage(t, s.Store, f, "a", "one")
		addImage(t, s.Store, f, "c", "other")
		addImage(t, s.Store, f, "z", "one")
		run := sourcedb.FollowRun{Repo: f.UID, Source: s.repo.UID}
		got, err := s.FollowWanted(t.Context(), run, "", 2)
		want := []sourcedb.FollowedTag{{Name: "b", Digest: two.Digest},
			{Name: "c", Digest: two.Digest, Here: newImage("other").Digest}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("wanted = %+v, %v", got, err)
		}
		got, err = s.FollowWanted(t.Context(), run, "c", 2)
		if err != nil || len(got) != 1 || got[0].Name != "d" {
			t.Errorf("wanted = %+v, %v", got, err)
		}
		a, b := push(t, s.Store, s.repo, referrer("a", one)), push(t, s.Store, s.repo, referrer("b", one))
		push(t, s.Store, s.repo, referrer("c", two)) // a referrer of an image that the repo does not have
		push(t, s.Store, f, a)
		if got, err := s.FollowReferrers(t.Context(), run, "", 9); err != nil || !slices.Equal(got, []string{b.Digest}) {
			t.Errorf("referrers = %v, %v", got, err)
		}
	},
	"a source that goes takes nothing with it, and a repo that goes ends the run": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		run := begin(t, s.Store, f.UID)
		must(t, copyOne(t.Context(), s.Store, run, "v1", m))
		must(t, s.DeleteRepo(t.Context(), s.repo.UID))
		_, _, _, err := s.DropFollowed(t.Context(), run, "", 10)
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "source", Name: string(s.repo.UID)})
		if _, err := s.TagNamed(t.Context(), f.UID, "v1"); err != nil {
			t.Error(err)
		}
		must(t, s.DeleteRepo(t.Context(), f.UID))
		wantFault(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{}), fault.NotFound, fault.Resource{})
		if has, err := s.HasFollowers(t.Context()); err != nil || has {
			t.Errorf("followers: %t, %v", has, err)
		}
	},
	"another source, or none, ends a run": func(t *testing.T, s shelf) {
		m := addImage(t, s.Store, s.repo, "v1", "one")
		other := addRepo(t, s.Store, s.org.UID, "other")
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		run := begin(t, s.Store, f.UID)
		after := f
		after.Sync = &registry.SyncConfig{Source: string(other.UID)}
		after, err := s.UpdateFollower(t.Context(), f, after, bob)
		must(t, err)
		wantFault(t, copyOne(t.Context(), s.Store, run, "v1", m), fault.Aborted, fault.Resource{})
		must(t, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: true}))
		stands(t, s.Store, f.UID, registry.FollowQueued, "")
		run = begin(t, s.Store, f.UID)
		none := after
		none.Sync = nil
		must(t, ignore(s.UpdateRepo(t.Context(), after, none)))
		_, _, _, err = s.DropFollowed(t.Context(), run, "", 10)
		wantFault(t, err, fault.Aborted, fault.Resource{})
		_, err = s.Follow(t.Context(), f.UID)
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a repo without a row follows nothing, until somebody sets its source again": func(t *testing.T, s shelf) {
		f := newFollower(s.org.UID, "f", s.repo.UID)
		must(t, s.InsertRepo(t.Context(), f))
		stands(t, s.Store, f.UID, registry.FollowFailed, "set it again")
		wantUnmet(t, s.RequestFollow(t.Context(), f.UID, 0), "SYNC_UNSET")
		addImage(t, s.Store, f, "v1", "one") // callers may push to the repo, because it is not synced
		after := f
		after.Sync = &registry.SyncConfig{Source: f.Sync.Source, ExpirationTime: s.Time()}
		must(t, ignore(s.UpdateFollower(t.Context(), f, after, alice)))
		stands(t, s.Store, f.UID, registry.FollowQueued, "")
	},
	"those below a group are listed by pages": func(t *testing.T, s shelf) {
		var want, got []resource.UID
		for i := range 3 {
			want = append(want, addFollower(t, s.Store, s.folder.UID, fmt.Sprint("f", i), s.repo.UID).UID)
		}
		unset := newFollower(s.folder.UID, "unset", s.repo.UID)
		must(t, s.InsertRepo(t.Context(), unset))
		want = append(want, unset.UID)
		addRepo(t, s.Store, s.folder.UID, "none")
		addFollower(t, s.Store, s.org.UID, "above", s.repo.UID)
		slices.Sort(want)
		for p := (page.Request{Size: 3}); ; {
			some, err := s.Follows(t.Context(), s.folder.UID, p)
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
	"who asks twice within a moment waits for it": func(t *testing.T, s shelf) {
		f := addFollower(t, s.Store, s.org.UID, "f", s.repo.UID)
		must(t, s.EndFollow(t.Context(), begin(t, s.Store, f.UID), sourcedb.FollowEnd{Whole: true}))
		must(t, s.RequestFollow(t.Context(), f.UID, time.Minute))
		if got := stands(t, s.Store, f.UID, registry.FollowEqual,
			""); got.DueTime.Sub(got.SuccessTime).Round(time.Minute) != time.Minute {
			t.Errorf("it stands %+v", got)
		}
		must(t, s.RequestFollow(t.Context(), f.UID, 0))
		stands(t, s.Store, f.UID, registry.FollowQueued, "")
	},
}

// retainIn sets rules for a repo that match none of its images, and applies them.
func (s shelf) retainIn(t *testing.T, repo, planned resource.UID) (retentiondb.RetentionPlan, error) {
	t.Helper()
	must(t, ignore(s.SetRetention(t.Context(),
		registry.Retention{UID: repo, KeepMatching: []string{"none"}, EveryDays: 1})))
	return s.ApplyRetention(t.Context(), repo, retentiondb.RetentionOrder{Planned: planned})
}

func TestFollowPromises(t *testing.T) {
	keepPromises(t, followPromises)
}

// TestFollowDuels runs steps of a sync concurrently with changes that end the sync. It checks that
// the results are consistent.
func TestFollowDuels(t *testing.T) {
	const rounds = 10
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		for name, against := range map[string]func(source, f registry.Repo) error{
			"the source is deleted": func(source, _ registry.Repo) error { return s.DeleteRepo(t.Context(), source.UID) },
			"the repo is deleted":   func(_, f registry.Repo) error { return s.DeleteRepo(t.Context(), f.UID) },
			"it follows no longer": func(_, f registry.Repo) error {
				after := f
				after.Sync = nil
				return ignore(s.UpdateRepo(t.Context(), f, after))
			},
			"the tag moves": func(source, _ registry.Repo) error {
				return ignore(s.PutManifest(t.Context(), ref(source), newImage("two"), []string{"v1"}))
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
					g := addGroup(t, s, org.UID, fmt.Sprint(strings.ReplaceAll(name, " ", "-"), i))
					source := addRepo(t, s, g.UID, "source")
					m := addImage(t, s, source, "v1", "one")
					addImage(t, s, source, "", "two")
					f := addFollower(t, s, g.UID, "f", source.UID)
					run, _, err := s.TakeFollow(t.Context(), f.UID, "me")
					must(t, err)
					a, b := atOnce(func() error {
						err := copyOne(t.Context(), s, run, "v1", m)
						return errors.Join(err, s.EndFollow(t.Context(), run, sourcedb.FollowEnd{Whole: err == nil}))
					}, func() error { return against(source, f) })
					if a != nil && !errors.Is(a, fault.Aborted) && !errors.Is(a, fault.NotFound) || b != nil {
						t.Fatalf("copy: %v, against it: %v", a, b)
					}
				}
			})
		}
		wantExact(t, s)
	})
}

// loop tries to make the source of a repo follow the repo, which must fail.
func loop(t *testing.T, s *storetest.Store, source, f registry.Repo) error {
	after := source
	after.Sync = &registry.SyncConfig{Source: string(f.UID)}
	if _, err := s.UpdateFollower(t.Context(), source, after, alice); !errors.Is(err, fault.InvalidArgument) {
		return fmt.Errorf("a loop: %w", err)
	}
	return nil
}

// TestFollowLoopDuel lets two repos follow each other concurrently, and checks that only one of
// them does.
func TestFollowLoopDuel(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		for i := range 10 {
			a, b := addRepo(t, s, org.UID, fmt.Sprint("a", i)), addRepo(t, s, org.UID, fmt.Sprint("b", i))
			follow := func(r, source registry.Repo) func() error {
				return func() error {
					after := r
					after.Sync = &registry.SyncConfig{Source: string(source.UID)}
					return ignore(s.UpdateFollower(t.Context(), r, after, alice))
				}
			}
			one, two := atOnce(follow(a, b), follow(b, a))
			if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two), fault.InvalidArgument) {
				t.Fatalf("both: %v, %v", one, two)
			}
		}
	})
}
