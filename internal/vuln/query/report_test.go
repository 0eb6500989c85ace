package query_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
)

// TestReport plays like TestGroupFindings, with SLAs. It compares the findings in the report of each group, for each
// caller, with the summary of the group, which another test compares with a model.
func TestReport(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newTagGame(t, url)
		for _, v := range []vuln.SLA{
			{UID: g.groups[0], Critical: 1, High: 1, Medium: 10, Unknown: 1}, {UID: g.groups[1], Unknown: 1, High: 20},
		} {
			_, err := g.SetSLA(t.Context(), v)
			must(t, err)
		}
		g.play(t, *rounds*15)
		for tries := 0; ; tries++ {
			if found, late := g.checkReports(t); found > late && late > 0 {
				return
			} else if tries == 20 {
				t.Fatalf("there are %d findings, %d of them overdue", found, late)
			}
			g.play(t, 10)
		}
	})
}

// checkReports checks the report of each group for each caller. It returns the numbers of open and overdue findings.
func (g *tagGame) checkReports(t *testing.T) (found, late int) {
	t.Helper()
	for name, caller := range g.callers {
		ctx := authz.WithCaller(t.Context(), caller)
		for _, group := range g.groups {
			got, err := g.reports.Get(ctx, group)
			if errors.Is(err, fault.PermissionDenied) {
				continue
			}
			if err != nil {
				t.Fatalf("%s asks for a report about %s: %v", name, group, err)
			}
			_, sum, err := g.service.Summarize(ctx, query.Place{Group: group}, 90, page.Params{})
			must(t, err)
			checkReport(t, got, sum.Total)
			g.checkVisit(t, caller, group, sum.Total)
			found, late = found+len(got.Open), late+sum.Total.Overdue.Sum()
		}
	}
	return found, late
}

// checkReport checks that the lists of a report contain the findings that it counts, in order.
func checkReport(t *testing.T, got report.Report, want query.Counts) {
	t.Helper()
	var open, overdue, fixed query.BySeverity
	for i, v := range got.Open {
		open[v.Severity]++
		if v.Overdue {
			overdue[v.Severity]++
		}
		if i > 0 && v.Overdue && !got.Open[i-1].Overdue {
			t.Errorf("the finding %+v, which is overdue, comes after %+v", v, got.Open[i-1])
		}
	}
	for _, v := range got.Closed {
		fixed[v.Severity]++
		if v.Fixed.Before(got.Month) || v.Fixed.After(got.Time) || v.Fixed.Before(v.Since) {
			t.Errorf("%+v is not from the month since %v", v, got.Month)
		}
	}
	if open != want.Now || overdue != want.Overdue || fixed != got.Fixed {
		t.Errorf("the report about %s lists %v open, %v overdue, %v fixed findings; it counts %v, %v, %v", got.Group, open,
			overdue, fixed, want.Now, want.Overdue, got.Fixed)
	}
	parts := 0
	for _, p := range got.Parts {
		parts += p.Count.Now.Sum()
	}
	if parts != want.Now.Sum() {
		t.Errorf("the parts of %s have %d findings, want %d", got.Group, parts, want.Now.Sum())
	}
}

// checkVisit checks the number of visited findings, and the times for which fixed ones were open.
func (g *tagGame) checkVisit(t *testing.T, caller authz.Caller, group resource.UID, want query.Counts) {
	t.Helper()
	open, fixed, took := 0, 0, time.Duration(0)
	_, _, err := g.service.Visit(authz.WithCaller(t.Context(), caller), query.Place{Group: group}, func(v finding.OfTag) {
		if v.Fixed.IsZero() {
			open++
			return
		}
		fixed++
		took += v.Fixed.Sub(v.Since)
	})
	must(t, err)
	if open != want.Now.Sum() || fixed != want.Fixed || took != want.FixedTime {
		t.Errorf("in %s, %d open and %d fixed findings (%v) are visited, want %d and %d (%v)", group, open, fixed, took,
			want.Now.Sum(), want.Fixed, want.FixedTime)
	}
}

// TestReportAccess checks who gets a report, what it says about findings and owners that the caller may not see, and
// that a report without knowledge says so.
func TestReportAccess(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		repo := g.aRepo(t, g.groups[0], "app")
		push(t, g.Store, repo, "a0")
		g.settle(t)
		g.about(t, g.groups[0], "CVE-2026-1", "npm", everyName...)
		g.about(t, g.groups[0], "CVE-2026-2", "Debian:12", everyName...)
		g.settle(t)
		owner := g.callers["owner of a"]
		without := func(lacks ...resource.Capability) authz.Caller {
			has := resource.NewCapabilities()
			for _, c := range []resource.Capability{resource.RepoList, resource.ReportsList, resource.AdvisoriesList,
				resource.RoleBindingsList, resource.IdentityList, resource.GroupsList} {
				if !slices.Contains(lacks, c) {
					has.Add(c)
				}
			}
			narrow := owner
			narrow.Caps = &has
			return narrow
		}
		folder := g.sees["of a folder"][0]
		for _, tt := range []struct {
			who    string
			caller authz.Caller
			group  resource.UID
			want   error
			gap    string
			owners bool
		}{
			{"an owner", owner, g.groups[0], nil, "", true},
			{"a token without role bindings", without(resource.RoleBindingsList), g.groups[0], nil,
				"you may not list role bindings, so owners are missing", false},
			{"a token without repos", without(resource.RepoList), g.groups[0], fault.PermissionDenied, "", false},
			{"a token without reports", without(resource.ReportsList), g.groups[0], fault.PermissionDenied, "", false},
			{"a token without advisories", without(resource.AdvisoriesList), g.groups[0], fault.PermissionDenied, "", false},
			{"the owner of a folder", g.callers["of a folder"], folder, nil,
				"you may not list all advisories of the organization, so their findings are missing", false},
			{"the owner of a folder", g.callers["of a folder"], g.groups[0], fault.PermissionDenied, "", false},
			{"another organization", g.callers["owner of b"], g.groups[0], fault.PermissionDenied, "", false},
			{"nobody", g.callers["of nothing"], g.groups[0], fault.PermissionDenied, "", false},
			{"a group of somebody else", g.callers["owner of b"], g.groups[1] + folder[len(g.groups[0]):], fault.NotFound, "",
				false},
		} {
			got, err := g.reports.Get(authz.WithCaller(t.Context(), tt.caller), tt.group)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s asks about %s: %v, want %v", tt.who, tt.group, err, tt.want)
			}
			if err != nil {
				if got.Open != nil || got.Path != "" || got.Summary.Coverage.Images > 0 {
					t.Errorf("%s is refused, but gets %+v", tt.who, got)
				}
				continue
			}
			if len(got.Owners) > 0 != tt.owners || (tt.gap == "") != (len(got.Gaps) == 0) ||
				!strings.Contains(strings.Join(got.Gaps, "; "), tt.gap) {
				t.Errorf("%s gets the owners %v and the gaps %q", tt.who, got.Owners, got.Gaps)
			}
			hasOwners := func(v report.Entry) bool { return len(v.Owners) > 0 }
			if slices.ContainsFunc(got.Open, hasOwners) && !tt.owners {
				t.Errorf("%s gets the names of owners: %+v", tt.who, got.Open)
			}
		}
		got, err := g.reports.Get(authz.WithCaller(t.Context(), g.callers["owner of b"]), g.groups[1])
		must(t, err)
		if len(got.Open) > 0 || got.Summary.Coverage.Extent != query.ExtentNothing {
			t.Errorf("a group without images: %+v", got)
		}
	})
}
