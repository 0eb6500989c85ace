package query_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

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

// A trueTotal contains the expected counts of a total.
type trueTotal struct {
	open           query.BySeverity
	fixable        int
	advice         string
	images, others map[string]bool // images in which a finding is open; and the packages, or the vulnerabilities
}

func (t trueTotal) text() string {
	return fmt.Sprintf("%v %d %s %d %d", t.open, t.fixable, t.advice, len(t.images), len(t.others))
}

type trueTotals map[string]*trueTotal

func (t trueTotals) at(name string) *trueTotal {
	if t[name] == nil {
		t[name] = &trueTotal{images: map[string]bool{}, others: map[string]bool{}}
	}
	return t[name]
}

// TestTotals checks that the totals of each group are the sums of the lists of findings, for each caller.
func TestTotals(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newTagGame(t, url)
		g.play(t, *rounds*15)
		for tries := 0; len(g.steps[len(g.steps)-1].hits) == 0; tries++ {
			if tries == 20 {
				t.Fatal("there are no findings")
			}
			g.play(t, 5)
		}
		for _, caller := range g.callers {
			ctx := authz.WithCaller(t.Context(), caller)
			for _, place := range append([]resource.UID{""}, g.groups...) {
				for by, want := range g.expectedTotals(ctx, t, place) {
					g.checkTotals(ctx, t, place, by, want)
				}
			}
		}
	})
}

// expectedTotals adds up the open findings in the list of a group, and in the lists of its tagged images.
func (g *tagGame) expectedTotals(ctx context.Context, t *testing.T, place resource.UID) map[report.By]trueTotals {
	t.Helper()
	packages, names, images := trueTotals{}, trueTotals{}, trueTotals{}
	open := query.Filter{States: []finding.State{finding.StateOpen}}
	listed, err := readAll(func(p page.Params) (page.Page[query.GroupFinding], error) {
		got, _, err := g.service.ListGroup(ctx, query.Place{Group: place}, open, p)
		return got, err
	})
	must(t, err)
	for _, v := range listed {
		for _, total := range []*trueTotal{packages.at(fmt.Sprint(v.Package.Package)), names.at(v.ID)} {
			total.open[v.Severity]++
			total.fixable += count(len(v.Fixed) > 0)
		}
		total := packages.at(fmt.Sprint(v.Package.Package))
		total.advice = max(total.advice, v.Advice)
		total.others[fmt.Sprint(v.Package.Package)] = true
		names.at(v.ID).others[fmt.Sprint(v.Package.Package)] = true
	}
	for repo, tagged := range g.tagged() {
		if place != "" && !place.Covers(repo) {
			continue
		}
		for d := range tagged {
			found, err := readAll(func(p page.Params) (page.Page[finding.Finding], error) {
				got, _, err := g.service.List(ctx, finding.Image{Repo: repo, Reference: d}, open, p)
				return got, err
			})
			if errors.Is(err, fault.PermissionDenied) {
				continue
			}
			must(t, err)
			image := string(repo) + "@" + d
			for _, v := range found {
				packages.at(fmt.Sprint(v.Package.Package)).images[image] = true
				names.at(v.ID).images[image] = true
				total := images.at(image)
				total.open[v.Severity]++
				total.fixable += count(len(v.Fixed) > 0)
				total.images[image], total.others[fmt.Sprint(v.Package.Package)] = true, true
			}
		}
	}
	return map[report.By]trueTotals{report.ByPackage: packages, report.ByVulnerability: names, report.ByImage: images}
}

// tagged returns the digests of the images to which tags point, by repo.
func (g *tagGame) tagged() map[resource.UID]map[string]bool {
	images := map[resource.UID]map[string]bool{}
	for repo, tags := range g.tags {
		images[repo] = map[string]bool{}
		for _, d := range tags {
			listed := g.indexes[d]
			if listed == nil {
				listed = []string{d}
			}
			for _, image := range listed {
				images[repo][image] = true
			}
		}
	}
	return images
}

// checkTotals checks the totals of a group, which it reads in small pages.
func (g *tagGame) checkTotals(
	ctx context.Context, t *testing.T, place resource.UID, by report.By, want trueTotals,
) {
	t.Helper()
	found, err := readAll(func(p page.Params) (page.Page[report.Total], error) {
		got, _, err := g.reports.Totals(ctx, query.Place{Group: place}, by, query.Filter{}, p)
		return got, err
	})
	must(t, err)
	var expected, got []string
	for name, total := range want {
		expected = append(expected, name+" "+total.text())
	}
	for i, total := range found {
		name := total.Vulnerability
		switch by {
		case report.ByPackage:
			name = fmt.Sprint(total.Package)
		case report.ByImage:
			name = string(total.Image.Repo) + "@" + total.Image.Digest
		}
		got = append(got, fmt.Sprintf("%s %v %d %s %d %d", name, total.Open, total.Fixable, total.Advice, total.Images,
			total.Packages))
		if len(total.Names) == 0 != (by == report.ByImage) || len(total.Names) > 5 {
			t.Errorf("%s has the names %v", name, total.Names)
		}
		if i > 0 && found[i-1].Open[finding.SeverityCritical] < total.Open[finding.SeverityCritical] {
			t.Errorf("%s comes late: %v after %v", name, total.Open, found[i-1].Open)
		}
	}
	checkTexts(t, fmt.Sprintf("the totals of %q by %d", place, by), expected, got)
}

// TestBadTotals checks that wrong questions are refused, and that a stranger gets nothing.
func TestBadTotals(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		repo := g.aRepo(t, g.groups[0], "app")
		push(t, g.Store, repo, "a0")
		g.settle(t)
		g.about(t, g.groups[0], "CVE-2026-1", "npm", everyName...)
		g.about(t, g.groups[0], "CVE-2026-2", "Debian:12", everyName...)
		g.settle(t)
		_, err := g.SetSLA(t.Context(), vuln.SLA{UID: g.groups[1], Unknown: 1})
		must(t, err)
		owner, narrowed := g.callers["owner of a"], g.callers["owner of a"]
		caps := resource.NewCapabilities(resource.RepoList, resource.AdvisoriesList)
		narrowed.Caps = &caps
		for name, tt := range map[string]struct {
			caller authz.Caller
			by     report.By
			filter query.Filter
			rows   bool
			want   error
		}{
			"an owner":        {owner, report.ByImage, query.Filter{}, true, nil},
			"without a kind":  {owner, 0, query.Filter{}, false, fault.InvalidArgument},
			"an unknown kind": {owner, 4, query.Filter{}, false, fault.InvalidArgument},
			"overdue ones, without an SLA": {owner, report.ByPackage, query.Filter{Overdue: true}, false,
				fault.FailedPrecondition},
			"an owner of another group": {g.callers["owner of b"], report.ByPackage, query.Filter{}, false, nil},
			"a person without roles":    {g.callers["of nothing"], report.ByVulnerability, query.Filter{}, false, nil},
			"a narrowed token":          {narrowed, report.ByImage, query.Filter{}, false, nil},
		} {
			ctx := authz.WithCaller(t.Context(), tt.caller)
			got, c, err := g.reports.Totals(ctx, query.Place{Group: g.groups[0]}, tt.by, tt.filter, page.Params{})
			if !errors.Is(err, tt.want) || len(got.Items) > 0 != tt.rows || c.Images > 0 != tt.rows {
				t.Errorf("%s: %d rows, %d images, %v, want %v", name, len(got.Items), c.Images, err, tt.want)
			}
		}
	})
}

// TestTotalsWithExceptions checks that totals do not count an image in which an exception applies to the finding.
func TestTotalsWithExceptions(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org := g.groups[0]
		excepted, open := g.aRepo(t, org, "excepted"), g.aRepo(t, org, "open")
		push(t, g.Store, excepted, "a0")
		digest := push(t, g.Store, open, "a0")
		g.about(t, org, "CVE-1", "npm", everyName...)
		g.about(t, org, "CVE-2", "Debian:12", everyName...)
		g.settle(t)
		ctx := authz.WithCaller(t.Context(), g.callers["owner of a"])
		for _, id := range []string{"CVE-1", "CVE-2"} {
			_, err := g.policy.CreateException(ctx, org, vuln.Exception{Target: excepted.UID, Advisory: id, Reason: "r"})
			must(t, err)
		}
		for _, by := range []report.By{report.ByPackage, report.ByVulnerability, report.ByImage} {
			got, _, err := g.reports.Totals(ctx, query.Place{Group: org}, by, query.Filter{}, page.Params{})
			must(t, err)
			if len(got.Items) == 0 {
				t.Errorf("by %d: there are no totals", by)
			}
			for _, total := range got.Items {
				if total.Images != 1 || by == report.ByImage && (len(got.Items) != 1 || total.Image.Digest != digest ||
					total.Image.Repo != open.UID) {
					t.Errorf("by %d: %+v", by, total)
				}
			}
		}
	})
}
