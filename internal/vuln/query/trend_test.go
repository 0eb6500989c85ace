package query_test

import (
	"errors"
	"fmt"
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
	eachGame(t, func(t *testing.T, g *game) {
		for range 60 {
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
		g.checkOldDays(t)
	})
}

// checkDay compares the count of a group with its summary.
func (g *game) checkDay(t *testing.T, name string, group resource.UID) {
	t.Helper()
	ctx := authz.WithCaller(t.Context(), g.callers[name])
	days, err := g.trends.Days(ctx, group, 1)
	must(t, err)
	_, sum, err := g.service.Summarize(ctx, query.Place{Group: group}, 1, page.Params{})
	must(t, err)
	if len(days) != 1 {
		t.Fatalf("%s has the days %+v", group, days)
	}
	d, n := days[0], sum.Total
	got := fmt.Sprint(d.Open, d.Excepted, d.Fixable, d.Images, d.Indexed, d.Waiting, d.NotUnderstood)
	c := sum.Coverage
	want := fmt.Sprint(n.Now, n.Excepted, n.Fixable, c.Images, c.Indexed, c.Waiting, c.NotUnderstood)
	if got != want {
		t.Errorf("the count of %s is %s, but its summary is %s", group, got, want)
	}
	if d.Opened-d.Closed != d.OpenCount()+d.Excepted && d.Time.Hour() > 0 { // all findings were opened today
		t.Errorf("in %s, %d findings were opened, %d closed, and %d are open", group, d.Opened, d.Closed, d.OpenCount())
	}
}

// checkTrendAccess checks that only a caller who may list all advisories of the organization gets its counts.
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
		{"the owner of a folder", g.callers["of a folder"], folder, fault.PermissionDenied},
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
		must(t, g.PutDays(t.Context(), org, []vuln.FindingDay{{Group: org, Day: day, Opened: opened, Time: time.Now()}}))
	}
	put(today-vuln.KeepFindingDays-1, 1)
	put(today-10, 2)
	put(today-10, 3)
	put(today, 4)
	days, err := g.trends.Days(ctx, org, vuln.KeepFindingDays)
	must(t, err)
	if len(days) != 2 || days[0].Day != today-10 || days[0].Opened != 3 || days[1].Opened != 4 {
		t.Errorf("the days are %+v", days)
	}
	if old, err := g.Days(t.Context(), org, 0); err != nil || len(old) != 2 {
		t.Errorf("%d days are stored, %v", len(old), err)
	}
}
