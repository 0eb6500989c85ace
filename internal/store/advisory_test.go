package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// newAdvisory returns an advisory like the ones in a public database.
func newAdvisory(id string) vuln.Advisory {
	return vuln.Advisory{
		ID: id, Author: "db", ArtifactName: "example.test/pkg", ArtifactType: "golang", Summary: "Reads past the end",
		Aliases: []string{"CVE-2026-" + id},
		Affected: []vuln.Affected{{
			Ecosystem: "Go", Name: "example.test/pkg",
			Ranges: []vuln.AffectedRange{{Type: "SEMVER", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: "1.2.3"}}}},
		}},
		Events: []vuln.AdvisoryEvent{{
			CreateTime: epoch, Author: "db", ReviewState: vuln.ReviewApproved, Type: vuln.EventDetection,
			Detection: &vuln.Detection{Manual: true},
		}},
		Source: vuln.AdvisorySource{Format: "osv", Name: id + ".json", Published: epoch, Digest: []byte("1")},
	}
}

func addAdvisory(t *testing.T, s *storetest.Store, group resource.UID, id string) vuln.Advisory {
	t.Helper()
	a, err := s.InsertAdvisory(t.Context(), group, newAdvisory(id))
	must(t, err)
	return a
}

func newFeed(group resource.UID, name string) vuln.AdvisoryFeed {
	return vuln.AdvisoryFeed{
		UID: group.NewChild(), Name: name, Address: "https://feeds.test/" + name, Interval: time.Hour, CreateTime: epoch,
		UpdateTime: epoch,
	}
}

func addFeed(t *testing.T, s *storetest.Store, group resource.UID, name string) vuln.AdvisoryFeed {
	t.Helper()
	f := newFeed(group, name)
	must(t, s.InsertFeed(t.Context(), f))
	return f
}

// actsOnAdvisories returns calls of the methods that write advisories and feeds.
func (st stage) actsOnAdvisories() map[string]act {
	none, f := st.org.UID.NewChild(), newFeed(st.org.UID, "new")
	insert := func(id string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.InsertAdvisory(ctx, st.org.UID, newAdvisory(id))
			return err
		}
	}
	update := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateAdvisory(ctx, uid, func(a *vuln.Advisory) error {
				a.ArtifactName, a.Aliases = "other", nil
				return nil
			})
			return err
		}
	}
	updateFeed := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := store.Edit(ctx, uid, st.Feed, st.UpdateFeed, func(f *vuln.AdvisoryFeed) error {
				f.Name = "other"
				return nil
			})
			return err
		}
	}
	return map[string]act{
		"InsertAdvisory": {insert("A-2"), insert("A-1")},
		"UpdateAdvisory": {update(st.adv.UID), update(none)},
		"DeleteAdvisory": {
			func(ctx context.Context) error { return st.DeleteAdvisory(ctx, st.adv.UID) },
			func(ctx context.Context) error { return st.DeleteAdvisory(ctx, none) },
		},
		"ImportAdvisories": {func(ctx context.Context) error {
			changed := newAdvisory("A-1")
			changed.Source.Digest = []byte("2")
			_, err := st.ImportAdvisories(ctx, st.org.UID, "test", []vuln.Advisory{changed, newAdvisory("A-3")})
			return err
		}, func(ctx context.Context) error {
			_, err := st.ImportAdvisories(ctx, none, "test", []vuln.Advisory{newAdvisory("A-3")})
			return err
		}},
		"ReplaceExploits": {
			func(ctx context.Context) error { return st.replace(ctx, st.org.UID, epoch.Add(time.Hour), score(1, 5)) },
			func(ctx context.Context) error { return st.replace(ctx, none, epoch, score(1, 5)) },
		},
		"DeleteExploitList": {
			func(ctx context.Context) error { return st.DeleteExploitList(ctx, st.org.UID, vuln.EPSS) },
			func(ctx context.Context) error { return st.DeleteExploitList(ctx, none, vuln.EPSS) },
		},
		"InsertFeed": {
			func(ctx context.Context) error { return st.InsertFeed(ctx, f) },
			func(ctx context.Context) error { return st.InsertFeed(ctx, newFeed(st.org.UID, "feed")) },
		},
		"UpdateFeed": {updateFeed(st.feed.UID), updateFeed(none)},
		"DeleteFeed": {
			func(ctx context.Context) error { return st.DeleteFeed(ctx, st.feed.UID) },
			func(ctx context.Context) error { return st.DeleteFeed(ctx, none) },
		},
		"SetFeedDue": {func(ctx context.Context) error {
			return st.SetFeedDue(ctx, st.feed.UID, epoch.Add(-time.Hour))
		}, nil},
		"ClaimDueFeed": {func(ctx context.Context) error {
			_, _, err := st.ClaimDueFeed(ctx, time.Now().Add(time.Hour), "", nil)
			return err
		}, nil},
	}
}

func importAll(t *testing.T, s *storetest.Store, group resource.UID, records ...vuln.Advisory) vuln.ImportResult {
	t.Helper()
	done, err := s.ImportAdvisories(t.Context(), group, "test", records)
	must(t, err)
	return done
}

func find(t *testing.T, s *storetest.Store, org resource.UID, id string) vuln.Advisory {
	t.Helper()
	p, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{org}}, vuln.AdvisoryFilter{IDs: []string{id}},
		byUID, true)
	must(t, err)
	if len(p.Items) != 1 {
		t.Fatalf("%d advisories have the id %s", len(p.Items), id)
	}
	return p.Items[0]
}

// TestImport checks what an import does with records that are new, changed or already imported.
func TestImport(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		before := len(events(t, s))
		if done := importAll(t, s, org.UID, newAdvisory("A-1"), newAdvisory("A-2")); done != (vuln.ImportResult{Created: 2}) {
			t.Errorf("new: %+v", done)
		}
		first := find(t, s, org.UID, "A-1")
		if n := len(events(t, s)) - before; n != 1 {
			t.Errorf("%d events of one import", n)
		}
		if done := importAll(t, s, org.UID, newAdvisory("A-1"),
			newAdvisory("A-2")); done != (vuln.ImportResult{Unchanged: 2}) {
			t.Errorf("the same again: %+v", done)
		}
		if diff := cmp.Diff(first, find(t, s, org.UID, "A-1")); diff != "" || len(events(t, s)) != before+1 {
			t.Errorf("the same again changed something\n%s", diff)
		}
		changed := newAdvisory("A-1")
		changed.Summary, changed.Source.Digest = "Reads far past the end", []byte("2")
		changed.Events = append(changed.Events, vuln.AdvisoryEvent{
			CreateTime: epoch.Add(time.Hour), Author: "db", ReviewState: vuln.ReviewApproved, Type: vuln.EventFixed,
			Fixed: &vuln.Fix{Version: "1.2.3"},
		})
		if done := importAll(t, s, org.UID, changed); done != (vuln.ImportResult{Updated: 1}) {
			t.Errorf("changed: %+v", done)
		}
		second := find(t, s, org.UID, "A-1")
		if second.UID != first.UID || !second.CreateTime.Equal(first.CreateTime) ||
			!second.UpdateTime.After(first.UpdateTime) || second.Summary != changed.Summary ||
			len(second.Events) != 2 || second.Events[0].UID != first.Events[0].UID || second.Events[1].Type != vuln.EventFixed {
			t.Errorf("changed: %+v", second)
		}
		gone := changed
		gone.DeleteTime, gone.Source.Digest = epoch, []byte("3")
		if done := importAll(t, s, org.UID, gone); done != (vuln.ImportResult{Updated: 1, Withdrawn: 1}) ||
			find(t, s, org.UID, "A-1").DeleteTime.IsZero() {
			t.Errorf("withdrawn: %+v", done)
		}
		back := changed
		back.Source.Digest = []byte("4")
		if importAll(t, s, org.UID, back); !find(t, s, org.UID, "A-1").DeleteTime.IsZero() ||
			len(find(t, s, org.UID, "A-1").Events) != 2 {
			t.Error("what is no longer withdrawn still is, or told its events twice")
		}
		wantExact(t, s)
	})
}

// TestImportKeepsWork checks that the additions of people stay when a source sends an
// advisory again.
func TestImportKeepsWork(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		importAll(t, s, org.UID, newAdvisory("A-1"))
		a := find(t, s, org.UID, "A-1")
		mine := vuln.AdvisoryEvent{CreateTime: epoch, Author: "ann", ReviewState: vuln.ReviewPending,
			Type: vuln.EventTruePositive, Note: "seen"}
		_, err := s.UpdateAdvisory(t.Context(), a.UID, func(a *vuln.Advisory) error {
			a.Events = append(a.Events, mine)
			return nil
		})
		must(t, err)
		if done := importAll(t, s, org.UID, newAdvisory("A-1")); done.Unchanged != 1 {
			t.Errorf("an event of ours made the record another: %+v", done)
		}
		next := newAdvisory("A-1")
		next.Source.Digest = []byte("2")
		importAll(t, s, org.UID, next)
		got := find(t, s, org.UID, "A-1")
		if len(got.Events) != 2 || got.Events[1].Note != "seen" || got.Events[1].ReviewState != vuln.ReviewPending {
			t.Errorf("events = %+v", got.Events)
		}
	})
}

// TestImportReopened imports an advisory whose vulnerability was found again after its fix. It checks that the
// advisory then affects every version, even the versions outside of the range that was imported before.
func TestImportReopened(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		a := newAdvisory("A-1")
		a.Events = append(a.Events, vuln.AdvisoryEvent{CreateTime: epoch.Add(time.Hour), Author: "db",
			ReviewState: vuln.ReviewApproved,
			Type:        vuln.EventFixed, Fixed: &vuln.Fix{Version: "1.2.3"}})
		importAll(t, s, org.UID, a)
		ranges := func() (events []vuln.RangeEvent) {
			_, err := s.MatchingAdvisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.UIDFilter{},
				"example.test/pkg",
				func(all []vuln.Affected) (bool, error) { events = all[0].Ranges[0].Events; return true, nil })
			must(t, err)
			return events
		}
		if got := ranges(); len(got) != 2 {
			t.Errorf("fixed: %+v", got)
		}
		again := a.Events[0]
		again.CreateTime = epoch.Add(2 * time.Hour)
		a.Events, a.Source.Digest = append(slices.Clone(a.Events), again), []byte("2")
		importAll(t, s, org.UID, a)
		if got := find(t, s, org.UID, "A-1"); len(got.Events) != 3 || got.Latest().Type != vuln.EventDetection {
			t.Errorf("found again: %+v", got.Events)
		}
		if got := ranges(); len(got) != 1 || got[0].Introduced != "0" {
			t.Errorf("found again: %+v", got)
		}
		wantExact(t, s)
	})
}

// TestImportRace runs two imports of the same records concurrently, and checks
// that each record is stored once.
func TestImportRace(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		var records []vuln.Advisory
		for i := range 200 {
			records = append(records, newAdvisory("A-"+strconv.Itoa(i)))
		}
		var wg sync.WaitGroup
		results := make([]vuln.ImportResult, 4)
		errs := make([]error, len(results))
		for i := range results {
			wg.Go(func() { results[i], errs[i] = s.ImportAdvisories(t.Context(), org.UID, "test", records) })
		}
		wg.Wait()
		var sum vuln.ImportResult
		for i := range results {
			must(t, errs[i])
			sum.Add(results[i])
		}
		if sum.Created != 200 || sum.Unchanged != 600 {
			t.Errorf("four imports of the same: %+v", sum)
		}
		wantExact(t, s)
	})
}

// TestImportNowhere checks that an import into a group that does not exist stores nothing.
func TestImportNowhere(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		for _, records := range [][]vuln.Advisory{{newAdvisory("A-1")}, nil} {
			_, err := s.ImportAdvisories(t.Context(), org.UID.NewChild(), "test", records)
			wantFault(t, err, fault.NotFound, fault.Resource{})
		}
	})
}

// TestAdvisoriesOf checks that AdvisoriesOf finds advisories by the name of any
// affected package, only in the given groups, and always in their newest state.
func TestAdvisoriesOf(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		other, _ := addOrganization(t, s, "other", alice)
		two := newAdvisory("A-1")
		two.Affected = append(two.Affected, vuln.Affected{Ecosystem: "Go", Name: "example.test/second"})
		importAll(t, s, org.UID, two, newAdvisory("A-2"))
		importAll(t, s, other.UID, newAdvisory("A-3"))
		ask := func(name string, match bool) (ids []string) {
			found, err := s.MatchingAdvisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.UIDFilter{},
				name,
				func([]vuln.Affected) (bool, error) { return match, nil })
			must(t, err)
			for _, a := range found {
				ids = append(ids, a.ID+" "+a.Summary)
			}
			slices.Sort(ids)
			return ids
		}
		check := func(got []string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		check(ask("example.test/pkg", true), "A-1 Reads past the end", "A-2 Reads past the end")
		check(ask("example.test/second", true), "A-1 Reads past the end")
		check(ask("example.test/pkg", false))
		check(ask("nothing", true))
		_, err := s.UpdateAdvisory(t.Context(), find(t, s, org.UID, "A-1").UID, func(a *vuln.Advisory) error {
			a.Summary = "new"
			return nil
		})
		must(t, err)
		check(ask("example.test/second", true), "A-1 new")
		before, changes := find(t, s, org.UID, "A-1"), len(events(t, s))
		same, err := s.UpdateAdvisory(t.Context(), before.UID, func(a *vuln.Advisory) error { a.Summary = "new"; return nil })
		must(t, err)
		if n := len(events(t, s)); n != changes || !same.UpdateTime.Equal(before.UpdateTime) {
			t.Errorf("a change of nothing made %d events, at %v", n-changes, same.UpdateTime)
		}
		must(t, s.DeleteAdvisory(t.Context(), find(t, s, org.UID, "A-1").UID))
		check(ask("example.test/second", true))
	})
}

// TestDueFeedsTakeTurns checks that every organization gets its turn, even if
// another one has many feeds, and that an excluded organization gets none.
func TestDueFeedsTakeTurns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		now := epoch
		s.Now = func() time.Time { return now }
		names := map[resource.UID]string{}
		for name, feeds := range map[string]int{"many": 30, "few": 2, "one": 1} {
			org, _ := addOrganization(t, s, name, alice)
			names[org.UID] = name
			for i := range feeds {
				addFeed(t, s, org.UID, fmt.Sprint("feed", i))
			}
		}
		var taken []string
		var last resource.UID
		take := func(except ...resource.UID) {
			t.Helper()
			f, ok, err := s.ClaimDueFeed(t.Context(), now.Add(time.Hour), last, except)
			must(t, err)
			if !ok {
				taken = append(taken, "none")
				return
			}
			last = f.UID.Root()
			taken = append(taken, names[last])
		}
		for range 6 {
			take()
		}
		sort := func(all []string) []string { return slices.Sorted(slices.Values(all)) }
		if diff := cmp.Diff([]string{"few", "many", "one"}, sort(taken[:3])); diff != "" {
			t.Errorf("the first three: %s", diff)
		}
		if diff := cmp.Diff([]string{"few", "many", "many"}, sort(taken[3:])); diff != "" {
			t.Errorf("the next three: %s", diff)
		}
		for org, name := range names {
			if name == "many" {
				take(org)
			}
		}
		if taken[6] != "none" {
			t.Errorf("a feed of the one that is left out: %v", taken)
		}
	})
}

// TestDueFeeds checks that every due feed is given to only one reader, and to
// another reader when it is due again or the first one has stopped.
func TestDueFeeds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		now := epoch
		s.Now = func() time.Time { return now }
		org, _ := addOrganization(t, s, "acme", alice)
		feed := addFeed(t, s, org.UID, "feed")
		paused := newFeed(org.UID, "paused")
		paused.Paused = true
		must(t, s.InsertFeed(t.Context(), paused))
		take := func(want bool) vuln.AdvisoryFeed {
			t.Helper()
			f, ok, err := s.ClaimDueFeed(t.Context(), now.Add(time.Hour), "", nil)
			must(t, err)
			if ok != want {
				t.Fatalf("a feed is due: %v, want %v", ok, want)
			}
			return f
		}
		if got := take(true); got.UID != feed.UID {
			t.Fatalf("due is %s", got.Name)
		}
		take(false)
		now = now.Add(2 * time.Hour)
		got := take(true) // the lease of the previous reader has ended
		last := vuln.FeedResult{Time: now, Took: time.Second, Import: vuln.ImportResult{Created: 3}}
		must(t, s.RecordFeedResult(t.Context(), got, last, []byte("state"), now.Add(10*time.Minute)))
		take(false)
		for _, uid := range []resource.UID{paused.UID, org.UID.NewChild(), feed.UID} {
			must(t, s.SetFeedDue(t.Context(), uid, now))
		}
		if got := take(true); got.UID != feed.UID { // SetFeedDue has made the feed due
			t.Fatalf("due is %s", got.Name)
		}
		must(t, s.RecordFeedResult(t.Context(), got, last, []byte("state"), now.Add(10*time.Minute)))
		now = now.Add(5 * time.Minute)
		take(false)
		now = now.Add(5 * time.Minute)
		got = take(true)
		if string(got.State) != "state" || !cmp.Equal(got.Last, last) {
			t.Errorf("a feed remembers %q and %+v", got.State, got.Last)
		}
		moved, err := store.Edit(t.Context(), feed.UID, s.Feed, s.UpdateFeed, func(f *vuln.AdvisoryFeed) error {
			f.Address = "https://elsewhere.test"
			return nil
		})
		must(t, err)
		must(t, s.RecordFeedResult(t.Context(), got, last, []byte("of the old address"), now))
		if moved, err = s.Feed(t.Context(), feed.UID); err != nil || len(moved.State) != 0 {
			t.Errorf("a feed that moved has the state %q of its old address: %v", moved.State, err)
		}
		wantExact(t, s)
	})
}

// TestOldestDueFeed checks that OldestDueFeed returns when the oldest due feed became
// due. It ignores feeds that are paused or being read.
func TestOldestDueFeed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		now := epoch
		s.Now = func() time.Time { return now }
		org, _ := addOrganization(t, s, "acme", alice)
		due := func(want time.Time) {
			t.Helper()
			if got, err := s.OldestDueFeed(t.Context()); err != nil || !got.Equal(want) {
				t.Errorf("due at %v, want %v: %v", got, want, err)
			}
		}
		due(time.Time{})
		paused := newFeed(org.UID, "paused")
		paused.Paused = true
		must(t, s.InsertFeed(t.Context(), paused))
		due(time.Time{})
		addFeed(t, s, org.UID, "feed")
		due(epoch)
		addFeed(t, s, org.UID, "another")
		due(epoch)
		_, _, err := s.ClaimDueFeed(t.Context(), epoch.Add(2*time.Hour), "", nil)
		must(t, err)
		due(epoch)
		_, _, err = s.ClaimDueFeed(t.Context(), epoch.Add(time.Hour), "", nil)
		must(t, err)
		due(time.Time{})
		now = epoch.Add(3 * time.Hour)
		due(epoch.Add(time.Hour))
	})
}

// TestGroupKeepsAdvisories checks that a group with advisories or feeds cannot
// be deleted, and that nothing is left of them after the group is deleted.
func TestGroupKeepsAdvisories(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		g := addGroup(t, s, org.UID, "g")
		importAll(t, s, g.UID, newAdvisory("A-1"), newAdvisory("A-2"))
		feed := addFeed(t, s, g.UID, "feed")
		err := s.DeleteGroup(t.Context(), g.UID, alice)
		wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		if want := "Precondition failed: cannot delete group with child advisories, advisory feeds"; err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
		must(t, s.DeleteFeed(t.Context(), feed.UID))
		for _, id := range []string{"A-1", "A-2"} {
			must(t, s.DeleteAdvisory(t.Context(), find(t, s, org.UID, id).UID))
		}
		must(t, s.DeleteGroup(t.Context(), g.UID, alice))
		wantExact(t, s)
		for _, row := range everything(t, s) {
			if strings.Contains(row, string(g.UID)+"/") && !strings.Contains(row, "vulnerabilities.") {
				t.Errorf("left behind: %s", row)
			}
		}
	})
}

// TestAdvisoryRace runs imports, manual changes and deletes of the same advisories
// concurrently. It checks that counters and lists agree with the remaining
// advisories.
func TestAdvisoryRace(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "acme", alice)
		var records []vuln.Advisory
		for i := range 20 {
			records = append(records, newAdvisory("A-"+strconv.Itoa(i)))
		}
		importAll(t, s, org.UID, records...)
		var uids []resource.UID
		for _, a := range records {
			uids = append(uids, find(t, s, org.UID, a.ID).UID)
		}
		var wg sync.WaitGroup
		try := func(f func(i int) error) {
			wg.Go(func() {
				for i := range uids {
					if err := f(i); err != nil && !errors.Is(err, fault.NotFound) {
						t.Error(err)
					}
				}
			})
		}
		for version := range 3 {
			try(func(i int) error {
				a := records[i]
				a.ArtifactName, a.Source.Digest = "renamed", []byte{byte(version), 9}
				_, err := s.ImportAdvisories(t.Context(), org.UID, "test", []vuln.Advisory{a})
				return err
			})
		}
		for _, name := range []string{"x", "y"} {
			try(func(i int) error {
				_, err := s.UpdateAdvisory(t.Context(), uids[i], func(a *vuln.Advisory) error {
					a.ArtifactName, a.Aliases = name, []string{name}
					return nil
				})
				return err
			})
		}
		try(func(i int) error { return s.DeleteAdvisory(t.Context(), uids[i]) })
		wg.Wait()
		wantExact(t, s)
		p, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, vuln.AdvisoryFilter{}, byUID, true)
		must(t, err)
		if int64(len(p.Items)) != p.Total {
			t.Errorf("%d advisories of %d", len(p.Items), p.Total)
		}
		for _, a := range p.Items {
			for _, f := range []vuln.AdvisoryFilter{{ArtifactNames: []string{a.ArtifactName}}, {Query: a.ArtifactName},
				{Aliases: a.Aliases}, {IDs: []string{a.ID}}} {
				got, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, f, byUID, false)
				must(t, err)
				if !slices.ContainsFunc(got.Items, func(b vuln.Advisory) bool { return b.UID == a.UID }) {
					t.Errorf("%s is not found by %+v", a.ID, f)
				}
			}
		}
	})
}
