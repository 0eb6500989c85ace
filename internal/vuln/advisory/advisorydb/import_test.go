package advisorydb_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

func importAll(t *testing.T, s *vulntest.Store, group resource.UID, records ...vuln.Advisory) vuln.ImportResult {
	t.Helper()
	done, err := s.ImportAdvisories(t.Context(), group, "test", records)
	testkit.Must(t, err)
	return done
}

// TestImport checks what an import does with records that are new, changed or already imported.
func TestImport(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		before := len(dbtest.Events(t, s.DB))
		if done := importAll(t, s, org.UID, vulntest.NewAdvisory("A-1"),
			vulntest.NewAdvisory("A-2")); done != (vuln.ImportResult{Created: 2}) {
			t.Errorf("new: %+v", done)
		}
		first := vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1")
		if n := len(dbtest.Events(t, s.DB)) - before; n != 1 {
			t.Errorf("%d events of one import", n)
		}
		if done := importAll(t, s, org.UID, vulntest.NewAdvisory("A-1"),
			vulntest.NewAdvisory("A-2")); done != (vuln.ImportResult{Unchanged: 2}) {
			t.Errorf("the same again: %+v", done)
		}
		if diff := cmp.Diff(first, vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1")); diff != "" ||
			len(dbtest.Events(t, s.DB)) != before+1 {
			t.Errorf("the same again changed something\n%s", diff)
		}
		changed := vulntest.NewAdvisory("A-1")
		changed.Summary, changed.Source.Digest = "Reads far past the end", []byte("2")
		changed.Events = append(changed.Events, vuln.AdvisoryEvent{
			CreateTime: iamtest.Epoch.Add(time.Hour), Author: "db", ReviewState: vuln.ReviewApproved, Type: vuln.EventFixed,
			Fixed: &vuln.Fix{Version: "1.2.3"},
		})
		if done := importAll(t, s, org.UID, changed); done != (vuln.ImportResult{Updated: 1}) {
			t.Errorf("changed: %+v", done)
		}
		second := vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1")
		if second.UID != first.UID || !second.CreateTime.Equal(first.CreateTime) ||
			!second.UpdateTime.After(first.UpdateTime) || second.Summary != changed.Summary ||
			len(second.Events) != 2 || second.Events[0].UID != first.Events[0].UID || second.Events[1].Type != vuln.EventFixed {
			t.Errorf("changed: %+v", second)
		}
		gone := changed
		gone.DeleteTime, gone.Source.Digest = iamtest.Epoch, []byte("3")
		if done := importAll(t, s, org.UID, gone); done != (vuln.ImportResult{Updated: 1, Withdrawn: 1}) ||
			vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1").DeleteTime.IsZero() {
			t.Errorf("withdrawn: %+v", done)
		}
		back := changed
		back.Source.Digest = []byte("4")
		if importAll(t, s, org.UID, back); !vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1").DeleteTime.IsZero() ||
			len(vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1").Events) != 2 {
			t.Error("what is no longer withdrawn still is, or told its events twice")
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestImportKeepsWork checks that the additions of people stay when a source sends an
// advisory again.
func TestImportKeepsWork(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		importAll(t, s, org.UID, vulntest.NewAdvisory("A-1"))
		a := vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1")
		mine := vuln.AdvisoryEvent{CreateTime: iamtest.Epoch, Author: "ann", ReviewState: vuln.ReviewPending,
			Type: vuln.EventTruePositive, Note: "seen"}
		_, err := s.UpdateAdvisory(t.Context(), a.UID, func(a *vuln.Advisory) error {
			a.Events = append(a.Events, mine)
			return nil
		})
		testkit.Must(t, err)
		if done := importAll(t, s, org.UID, vulntest.NewAdvisory("A-1")); done.Unchanged != 1 {
			t.Errorf("an event of ours made the record another: %+v", done)
		}
		next := vulntest.NewAdvisory("A-1")
		next.Source.Digest = []byte("2")
		importAll(t, s, org.UID, next)
		got := vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1")
		if len(got.Events) != 2 || got.Events[1].Note != "seen" || got.Events[1].ReviewState != vuln.ReviewPending {
			t.Errorf("events = %+v", got.Events)
		}
	})
}

// TestImportReopened imports an advisory whose vulnerability was found again after its fix. It checks that the
// advisory then affects every version, even the versions outside of the range that was imported before.
func TestImportReopened(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		a := vulntest.NewAdvisory("A-1")
		a.Events = append(a.Events, vuln.AdvisoryEvent{CreateTime: iamtest.Epoch.Add(time.Hour), Author: "db",
			ReviewState: vuln.ReviewApproved,
			Type:        vuln.EventFixed, Fixed: &vuln.Fix{Version: "1.2.3"}})
		importAll(t, s, org.UID, a)
		ranges := func() (events []vuln.RangeEvent) {
			_, err := s.MatchingAdvisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.UIDFilter{},
				"example.test/pkg",
				func(all []vuln.Affected) (bool, error) { events = all[0].Ranges[0].Events; return true, nil })
			testkit.Must(t, err)
			return events
		}
		if got := ranges(); len(got) != 2 {
			t.Errorf("fixed: %+v", got)
		}
		again := a.Events[0]
		again.CreateTime = iamtest.Epoch.Add(2 * time.Hour)
		a.Events, a.Source.Digest = append(slices.Clone(a.Events), again), []byte("2")
		importAll(t, s, org.UID, a)
		if got := vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1"); len(got.Events) != 3 ||
			got.Latest().Type != vuln.EventDetection {
			t.Errorf("found again: %+v", got.Events)
		}
		if got := ranges(); len(got) != 1 || got[0].Introduced != "0" {
			t.Errorf("found again: %+v", got)
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestImportRace runs two imports of the same records concurrently, and checks
// that each record is stored once.
func TestImportRace(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		var records []vuln.Advisory
		for i := range 200 {
			records = append(records, vulntest.NewAdvisory("A-"+strconv.Itoa(i)))
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
			testkit.Must(t, errs[i])
			sum.Add(results[i])
		}
		if sum.Created != 200 || sum.Unchanged != 600 {
			t.Errorf("four imports of the same: %+v", sum)
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestImportNowhere checks that an import into a group that does not exist stores nothing.
func TestImportNowhere(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		for _, records := range [][]vuln.Advisory{{vulntest.NewAdvisory("A-1")}, nil} {
			_, err := s.ImportAdvisories(t.Context(), org.UID.NewChild(), "test", records)
			testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		}
	})
}

// TestAdvisoriesOf checks that AdvisoriesOf finds advisories by the name of any
// affected package, only in the given groups, and always in their newest state.
func TestAdvisoriesOf(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		other, _ := iamtest.AddOrganization(t, s.IAMStore, "other", iamtest.Alice)
		two := vulntest.NewAdvisory("A-1")
		two.Affected = append(two.Affected, vuln.Affected{Ecosystem: "Go", Name: "example.test/second"})
		importAll(t, s, org.UID, two, vulntest.NewAdvisory("A-2"))
		importAll(t, s, other.UID, vulntest.NewAdvisory("A-3"))
		ask := func(name string, match bool) (ids []string) {
			found, err := s.MatchingAdvisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.UIDFilter{},
				name,
				func([]vuln.Affected) (bool, error) { return match, nil })
			testkit.Must(t, err)
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
		_, err := s.UpdateAdvisory(t.Context(), vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1").UID,
			func(a *vuln.Advisory) error {
				a.Summary = "new"
				return nil
			})
		testkit.Must(t, err)
		check(ask("example.test/second", true), "A-1 new")
		before, changes := vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1"), len(dbtest.Events(t, s.DB))
		same, err := s.UpdateAdvisory(t.Context(), before.UID, func(a *vuln.Advisory) error { a.Summary = "new"; return nil })
		testkit.Must(t, err)
		if n := len(dbtest.Events(t, s.DB)); n != changes || !same.UpdateTime.Equal(before.UpdateTime) {
			t.Errorf("a change of nothing made %d events, at %v", n-changes, same.UpdateTime)
		}
		testkit.Must(t, s.DeleteAdvisory(t.Context(), vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, "A-1").UID))
		check(ask("example.test/second", true))
	})
}

// TestDueFeedsTakeTurns checks that every organization gets its turn, even if
// another one has many feeds, and that an excluded organization gets none.
func TestDueFeedsTakeTurns(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		now := iamtest.Epoch
		s.Now = func() time.Time { return now }
		names := map[resource.UID]string{}
		for name, feeds := range map[string]int{"many": 30, "few": 2, "one": 1} {
			org, _ := iamtest.AddOrganization(t, s.IAMStore, name, iamtest.Alice)
			names[org.UID] = name
			for i := range feeds {
				vulntest.AddFeed(t, s.AdvisoryStore, org.UID, fmt.Sprint("feed", i))
			}
		}
		var taken []string
		var last resource.UID
		take := func(except ...resource.UID) {
			t.Helper()
			f, ok, err := s.ClaimDueFeed(t.Context(), now.Add(time.Hour), last, except)
			testkit.Must(t, err)
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
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		now := iamtest.Epoch
		s.Now = func() time.Time { return now }
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		feed := vulntest.AddFeed(t, s.AdvisoryStore, org.UID, "feed")
		paused := vulntest.NewFeed(org.UID, "paused")
		paused.Paused = true
		testkit.Must(t, s.InsertFeed(t.Context(), paused))
		take := func(want bool) vuln.AdvisoryFeed {
			t.Helper()
			f, ok, err := s.ClaimDueFeed(t.Context(), now.Add(time.Hour), "", nil)
			testkit.Must(t, err)
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
		testkit.Must(t, s.RecordFeedResult(t.Context(), got, last, []byte("state"), now.Add(10*time.Minute)))
		take(false)
		for _, uid := range []resource.UID{paused.UID, org.UID.NewChild(), feed.UID} {
			testkit.Must(t, s.SetFeedDue(t.Context(), uid, now))
		}
		if got := take(true); got.UID != feed.UID { // SetFeedDue has made the feed due
			t.Fatalf("due is %s", got.Name)
		}
		testkit.Must(t, s.RecordFeedResult(t.Context(), got, last, []byte("state"), now.Add(10*time.Minute)))
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
		testkit.Must(t, err)
		testkit.Must(t, s.RecordFeedResult(t.Context(), got, last, []byte("of the old address"), now))
		if moved, err = s.Feed(t.Context(), feed.UID); err != nil || len(moved.State) != 0 {
			t.Errorf("a feed that moved has the state %q of its old address: %v", moved.State, err)
		}
		dbtest.WantExact(t, s.DB)
	})
}

// TestOldestDueFeed checks that OldestDueFeed returns when the oldest due feed became
// due. It ignores feeds that are paused or being read.
func TestOldestDueFeed(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		now := iamtest.Epoch
		s.Now = func() time.Time { return now }
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		due := func(want time.Time) {
			t.Helper()
			if got, err := s.OldestDueFeed(t.Context()); err != nil || !got.Equal(want) {
				t.Errorf("due at %v, want %v: %v", got, want, err)
			}
		}
		due(time.Time{})
		paused := vulntest.NewFeed(org.UID, "paused")
		paused.Paused = true
		testkit.Must(t, s.InsertFeed(t.Context(), paused))
		due(time.Time{})
		vulntest.AddFeed(t, s.AdvisoryStore, org.UID, "feed")
		due(iamtest.Epoch)
		vulntest.AddFeed(t, s.AdvisoryStore, org.UID, "another")
		due(iamtest.Epoch)
		_, _, err := s.ClaimDueFeed(t.Context(), iamtest.Epoch.Add(2*time.Hour), "", nil)
		testkit.Must(t, err)
		due(iamtest.Epoch)
		_, _, err = s.ClaimDueFeed(t.Context(), iamtest.Epoch.Add(time.Hour), "", nil)
		testkit.Must(t, err)
		due(time.Time{})
		now = iamtest.Epoch.Add(3 * time.Hour)
		due(iamtest.Epoch.Add(time.Hour))
	})
}

// TestFailingFeeds checks that FailingFeeds counts the feeds whose last read failed, without paused feeds.
func TestFailingFeeds(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		for name, last := range map[string]vuln.FeedResult{
			"well":   {Revision: "the text \"error\": is not an error"},
			"failed": {Error: "no route"},
			"paused": {Error: "no route"},
		} {
			f := vulntest.NewFeed(org.UID, name)
			f.Paused = name == "paused"
			testkit.Must(t, s.InsertFeed(t.Context(), f))
			testkit.Must(t, s.RecordFeedResult(t.Context(), f, last, nil, iamtest.Epoch))
		}
		if n, err := s.FailingFeeds(t.Context()); err != nil || n != 1 {
			t.Errorf("%d feeds fail, want 1: %v", n, err)
		}
	})
}

// TestGroupKeepsAdvisories checks that a group with advisories or feeds cannot
// be deleted, and that nothing is left of them after the group is deleted.
func TestGroupKeepsAdvisories(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		g := iamtest.AddGroup(t, s.IAMStore, org.UID, "g")
		importAll(t, s, g.UID, vulntest.NewAdvisory("A-1"), vulntest.NewAdvisory("A-2"))
		feed := vulntest.AddFeed(t, s.AdvisoryStore, g.UID, "feed")
		err := s.DeleteGroup(t.Context(), g.UID, iamtest.Alice)
		testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		if want := "Precondition failed: cannot delete group with child advisories, advisory feeds"; err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
		testkit.Must(t, s.DeleteFeed(t.Context(), feed.UID))
		for _, id := range []string{"A-1", "A-2"} {
			testkit.Must(t, s.DeleteAdvisory(t.Context(), vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, id).UID))
		}
		testkit.Must(t, s.DeleteGroup(t.Context(), g.UID, iamtest.Alice))
		dbtest.WantExact(t, s.DB)
		for _, row := range dbtest.Everything(t, s.DB) {
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
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "acme", iamtest.Alice)
		var records []vuln.Advisory
		for i := range 20 {
			records = append(records, vulntest.NewAdvisory("A-"+strconv.Itoa(i)))
		}
		importAll(t, s, org.UID, records...)
		var uids []resource.UID
		for _, a := range records {
			uids = append(uids, vulntest.FindAdvisory(t, s.AdvisoryStore, org.UID, a.ID).UID)
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
		dbtest.WantExact(t, s.DB)
		p, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, vuln.AdvisoryFilter{},
			iamtest.ByUID, true)
		testkit.Must(t, err)
		if int64(len(p.Items)) != p.Total {
			t.Errorf("%d advisories of %d", len(p.Items), p.Total)
		}
		for _, a := range p.Items {
			for _, f := range []vuln.AdvisoryFilter{{ArtifactNames: []string{a.ArtifactName}}, {Query: a.ArtifactName},
				{Aliases: a.Aliases}, {IDs: []string{a.ID}}} {
				got, err := s.Advisories(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, f, iamtest.ByUID, false)
				testkit.Must(t, err)
				if !slices.ContainsFunc(got.Items, func(b vuln.Advisory) bool { return b.UID == a.UID }) {
					t.Errorf("%s is not found by %+v", a.ID, f)
				}
			}
		}
	})
}

// TestNextChangesWhileDropped checks that NextChanges is never empty while one organization has changes, although
// the changes of another organization come and go.
func TestNextChangesWhileDropped(t *testing.T) {
	t.Parallel()
	vulntest.Each(t, func(t *testing.T, s *vulntest.Store) {
		vulntest.AddAdvisory(t, s.AdvisoryStore, iamtest.AddGroup(t, s.IAMStore, "", "waits").UID, "W")
		waits, err := s.NextChanges(t.Context(), 0, 1)
		testkit.Must(t, err)
		org := iamtest.AddGroup(t, s.IAMStore, "", "comes and goes").UID
		goes := store.Segment(org)
		last := goes - 1 // start before goes, so that goes is the next organization whenever it has changes
		done := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			defer close(done)
			for i := range 100 {
				_, err := s.InsertAdvisory(t.Context(), org, vulntest.NewAdvisory(fmt.Sprint(i)))
				c, errNext := s.NextChanges(t.Context(), last, 10)
				if err := errors.Join(err, errNext); err != nil || c.Root != goes {
					t.Errorf("changes of %d come next, want %d (%v)", c.Root, goes, err)
					return
				}
				if err := s.Write(t.Context(), func(tx *store.Tx) error {
					return advisorydb.DeleteChanges(t.Context(), tx, c)
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for more := true; more; {
			select {
			case <-done:
				more = false
			default:
			}
			c, err := s.NextChanges(t.Context(), last, 10)
			testkit.Must(t, err)
			if len(c.Advisories) == 0 || c.Root != goes && c.Root != waits.Root {
				t.Errorf("%d changes of %d, want those of %d or %d", len(c.Advisories), c.Root, goes, waits.Root)
				break
			}
		}
	})
}
