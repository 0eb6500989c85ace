package query_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// TestTrend counts the findings of random images and compares the counts of each group with the summary of a caller who
// sees the whole organization. Several replicas count at the same time; each organization must be counted once.
func TestTrend(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		for i := range 200 {
			g.plain = i >= 60 // at the end only changes that open findings
			g.act(t)
		}
		g.settle(t)
		var counts atomic.Int64
		var counting sync.WaitGroup
		for range 4 {
			for _, r := range g.replicas {
				counting.Go(func() {
					for {
						more, err := r.trends.CountNext(t.Context())
						if err != nil {
							t.Error(err)
						}
						if !more {
							return
						}
						counts.Add(1)
					}
				})
			}
		}
		counting.Wait()
		if n := counts.Load(); n != 3 {
			t.Errorf("three organizations were counted %d times", n)
		}
		owners := map[resource.UID]string{}
		for _, name := range []string{"owner of a", "owner of b", "owner of c"} {
			owners[g.sees[name][0]] = name
		}
		for _, group := range g.groups {
			g.checkDay(t, owners[group.Root()], group)
		}
		g.checkTrendAccess(t)
		g.checkComputedDays(t)
		g.checkFailedCount(t)
		g.checkOldDays(t)
		g.checkClosedDay(t)
	})
}

// checkDay compares the count of a group with its summary.
func (g *game) checkDay(t *testing.T, name string, group resource.UID) {
	t.Helper()
	ctx := authz.WithCaller(t.Context(), g.callers[name])
	trend, err := g.trends.Days(ctx, group, 1)
	days := trend.Days
	must(t, err)
	_, sum, err := g.service.Summarize(ctx, query.Place{Group: group}, 1, page.Params{})
	must(t, err)
	if len(days) != 1 {
		t.Fatalf("%s has the days %+v", group, days)
	}
	d, n := days[0], sum.Total
	got := fmt.Sprint(d.Open, d.Excepted, d.Fixable, d.Images, d.Indexed, d.Waiting, d.NotUnderstood, *d.Packages)
	c, p := sum.Coverage, sum.Coverage.Packages
	want := fmt.Sprint(n.Now, n.Excepted, n.Fixable, c.Images, c.Indexed, c.Waiting, c.NotUnderstood,
		vuln.PackageCounts{All: p.Packages, Covered: p.Covered, Bare: p.Bare, Owned: p.Owned, Waiting: p.Waiting})
	if got != want {
		t.Errorf("the count of %s is %s, but its summary is %s", group, got, want)
	}
	if d.Opened-d.Closed != d.OpenCount()+d.Excepted && d.Time.Hour() > 0 { // all findings were opened today
		t.Errorf("in %s, %d findings were opened, %d closed, and %d are open", group, d.Opened, d.Closed, d.OpenCount())
	}
}

// checkTrendAccess checks which callers get the trend of a group.
func (g *game) checkTrendAccess(t *testing.T) {
	t.Helper()
	caps := resource.NewCapabilities(resource.RepoList, resource.ReportsList)
	narrow := authz.Caller{Identity: g.callers["owner of a"].Identity, Caps: &caps}
	a, folder := g.groups[0], g.sees["of a folder"][0]
	for _, tt := range []struct {
		who    string
		caller authz.Caller
		group  resource.UID
		want   error
	}{
		{"an owner", g.callers["owner of a"], folder, nil},
		{"the owner of a folder", g.callers["of a folder"], folder, nil},
		{"the owner of a folder", g.callers["of a folder"], a, fault.PermissionDenied},
		{"another organization", g.callers["owner of b"], a, fault.PermissionDenied},
		{"nobody", g.callers["of nothing"], a, fault.PermissionDenied},
		{"a narrowed token", narrow, a, fault.PermissionDenied},
		{"a group of somebody else", g.callers["owner of b"], g.groups[1] + folder[len(a):], fault.NotFound},
	} {
		_, err := g.trends.Days(authz.WithCaller(t.Context(), tt.caller), tt.group, 0)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s asks about %s: %v, want %v", tt.who, tt.group, err, tt.want)
		}
	}
	ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
	for _, days := range []int{-1, vuln.KeepFindingDays + 1} {
		if _, err := g.trends.Days(ctx, a, days); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("%d days: %v", days, err)
		}
	}
}

// checkOldDays checks that counts are kept for two years, and that the last count of a day remains.
func (g *game) checkOldDays(t *testing.T) {
	t.Helper()
	org := g.groups[0]
	ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
	today := vuln.DayOf(g.Time())
	put := func(day vuln.Day, opened int) {
		must(t, g.PutDays(t.Context(), org, []vuln.FindingDay{{Group: org, Day: day, Opened: opened, Time: time.Now()}},
			nil))
	}
	put(today-vuln.KeepFindingDays-1, 1)
	put(today-10, 2)
	put(today-10, 3)
	put(today, 4)
	trend, err := g.trends.Days(ctx, org, vuln.KeepFindingDays)
	days := trend.Days
	must(t, err)
	if len(days) != 2 || days[0].Day != today-10 || days[0].Opened != 3 || days[1].Opened != 4 {
		t.Errorf("the days are %+v", days)
	}
	if old, err := g.Days(t.Context(), org, 0); err != nil || len(old) != 2 {
		t.Errorf("%d days are stored, %v", len(old), err)
	}
}

// checkComputedDays checks that a caller who may not list the advisories of an organization gets the findings that the
// caller may see, and no others.
func (g *game) checkComputedDays(t *testing.T) {
	t.Helper()
	for _, name := range []string{"of a folder", "of a folder below"} {
		group := g.sees[name][0]
		ctx := authz.WithCaller(t.Context(), g.callers[name])
		got, err := g.trends.Days(ctx, group, 0)
		must(t, err)
		_, sum, err := g.service.Summarize(ctx, query.Place{Group: group}, 90, page.Params{})
		must(t, err)
		if len(got.Days) != 90 || len(sum.Series) != 90 {
			t.Fatalf("%s gets %d days, and %d in the summary", name, len(got.Days), len(sum.Series))
		}
		opened := 0
		for i, d := range got.Days {
			if opened += d.Opened - d.Closed; d.Open != sum.Series[i].Open || !d.OnlyOpen {
				t.Errorf("%s gets %+v for day %d, but the summary has %v", name, d, i, sum.Series[i].Open)
			}
		}
		if last := got.Days[89]; opened != last.OpenCount()+sum.Total.Excepted || last.Day != vuln.DayOf(g.Time()) {
			t.Errorf("%s: %d findings were opened and not closed; the last day is %+v", name, opened, last)
		}
	}
}

// checkFailedCount checks that a count that failed because the organization is busy is due again after a minute, and
// that the trend says why it failed.
func (g *game) checkFailedCount(t *testing.T) {
	t.Helper()
	org := g.groups[0]
	ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
	for range 2 { // the limit of a tenant
		done, err := g.limiter.Wait(t.Context(), []resource.UID{org})
		must(t, err)
		defer done()
	}
	waiting, cancel := context.WithCancel(t.Context())
	var queued sync.WaitGroup
	defer queued.Wait()
	defer cancel()
	const refusals = 5
	refused := make(chan error, 32+refusals)
	for range 32 + refusals { // the length of a tenant's queue is 32
		queued.Go(func() {
			done, err := g.limiter.Wait(waiting, []resource.UID{org})
			if err == nil {
				done()
			}
			refused <- err
		})
	}
	for range refusals {
		if err := <-refused; !errors.Is(err, fault.ResourceExhausted) {
			t.Fatal(err)
		}
	}
	due := g.Time()
	must(t, g.FinishDayRun(t.Context(), org, due, ""))
	if more, err := g.trends.CountNext(t.Context()); !more || err != nil {
		t.Fatalf("a count that the limiter refuses: %v, %v", more, err)
	}
	got, err := g.trends.Days(ctx, org, 0)
	must(t, err)
	if len(got.Days) == 0 || !strings.Contains(got.Failure, "too many queries") {
		t.Errorf("after a failed count, the trend is %+v", got)
	}
	if _, ok, err := g.ClaimDayRun(t.Context(), g.Time(), g.Time().Add(time.Hour)); ok || err != nil {
		t.Errorf("a failed count is due immediately: %v", err)
	}
	soon := g.Time().Add(time.Minute)
	if root, ok, err := g.ClaimDayRun(t.Context(), soon, soon.Add(time.Hour)); !ok || err != nil || root != org {
		t.Errorf("after a minute, %q is due, %v, %v", root, ok, err)
	}
}

// checkClosedDay checks that the first count of a day adds the changes after the last count of an earlier day to that
// day, and that it adds them only once.
func (g *game) checkClosedDay(t *testing.T) {
	t.Helper()
	org := g.groups[0]
	ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
	count := func() []vuln.FindingDay {
		t.Helper()
		must(t, g.FinishDayRun(t.Context(), org, g.Time(), ""))
		for more := true; more; {
			var err error
			more, err = g.trends.CountNext(t.Context())
			must(t, err)
		}
		got, err := g.trends.Days(ctx, org, 0)
		must(t, err)
		if got.Failure != "" {
			t.Errorf("the count failed: %s", got.Failure)
		}
		return got.Days
	}
	before := count()
	first := before[len(before)-1]
	if first.Opened == 0 {
		t.Fatalf("nothing was opened today: %+v", before)
	}
	// The last count of the day was made before anything happened.
	early := first
	early.Opened, early.Closed = 0, 0
	must(t, g.PutDays(t.Context(), org, []vuln.FindingDay{early}, nil))
	tomorrow := g.DB.Now
	g.DB.Now = func() time.Time { return tomorrow().Add(24 * time.Hour) }
	defer func() { g.DB.Now = tomorrow }()
	for range 2 {
		after := count()
		if len(after) != len(before)+1 {
			t.Fatalf("there are %d days, and %d before", len(after), len(before))
		}
		yesterday, today := after[len(after)-2], after[len(after)-1]
		if yesterday.Opened != first.Opened || yesterday.Closed != first.Closed || yesterday.Open != first.Open {
			t.Errorf("the day was closed with %+v, want %+v", yesterday, first)
		}
		if today.Opened != 0 || today.Closed != 0 || today.Open != first.Open {
			t.Errorf("the next day is %+v", today)
		}
	}
}
