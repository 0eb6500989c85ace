package query_test

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// TestOverdue checks that findings are overdue as soon as the days of the nearest SLA have passed.
func TestOverdue(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		g.plain = true // all findings have the severity unknown
		for range 150 {
			g.act(t)
		}
		g.settle(t)
		org, folder := g.groups[0], g.sees["of a folder"][0]
		count := func(group resource.UID) query.Counts {
			t.Helper()
			ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
			_, sum, err := g.service.Summarize(ctx, query.Place{Group: group}, 1, page.Params{})
			must(t, err)
			return sum.Total
		}
		expect := func(group resource.UID, limited, overdue int) {
			t.Helper()
			if c := count(group); c.Limited != limited || c.Overdue != (query.BySeverity{overdue}) {
				t.Errorf("%s has %d findings with a limit, want %d; overdue are %v, want %d", group, c.Limited, limited,
					c.Overdue, overdue)
			}
		}
		all, below := count(org).Now.Sum(), count(folder).Now.Sum()
		if all == below || below == 0 {
			t.Fatalf("the organization has %d findings, and the folder %d of them", all, below)
		}
		expect(org, 0, 0)
		set := func(v vuln.SLA) {
			t.Helper()
			_, err := g.SetSLA(t.Context(), v)
			must(t, err)
		}
		set(vuln.SLA{UID: org, Unknown: 10})
		set(vuln.SLA{UID: folder, Unknown: 200, Critical: 1})
		now := g.DB.Now
		defer func() { g.DB.Now = now }()
		after := func(days int) {
			g.DB.Now = func() time.Time { return now().Add(time.Duration(days) * 24 * time.Hour) }
		}
		expect(org, all, 0)
		after(9)
		expect(org, all, 0)
		after(10)
		expect(org, all, all-below)
		expect(folder, below, 0)
		after(199)
		expect(org, all, all-below)
		after(200)
		expect(org, all, all)
		expect(folder, below, below)
		set(vuln.SLA{UID: folder, Critical: 1}) // replaces the days of the organization completely
		expect(org, all-below, all-below)
		expect(folder, 0, 0)
		must(t, g.DeleteSLA(t.Context(), folder))
		expect(folder, below, below)
	})
}
