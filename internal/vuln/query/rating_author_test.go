package query_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
)

// A ratingAttack is a case of TestListsAndAuthorElsewhere. All severities are of findings in Debian packages.
type ratingAttack struct {
	org, author []vuln.Advisory  // advisories of the organization, and of the folder of an author
	beside      finding.Severity // severity in an image of another folder, before and after the author's advisories
	within      finding.Severity // severity in an image of the author's folder, after them
}

var ratingAttacks = map[string]ratingAttack{
	"a word of the vendor": {org: []vuln.Advisory{onDebian("", severe, "GHSA-1", accepted)},
		author: []vuln.Advisory{onDebian("low", "", "X-1", accepted)},
		beside: finding.SeverityHigh, within: finding.SeverityHigh},
	"the vulnerability itself": {org: []vuln.Advisory{onDebian("high", "", accepted)},
		author: []vuln.Advisory{onDebian("low", "", accepted)},
		beside: finding.SeverityHigh, within: finding.SeverityHigh},
	"a higher word": {org: []vuln.Advisory{onDebian("low", "", accepted)},
		author: []vuln.Advisory{onDebian("critical", "", "X-1", accepted)},
		beside: finding.SeverityLow, within: finding.SeverityCritical},
	"a vulnerability without a rating": {org: []vuln.Advisory{onDebian("", "", accepted)},
		author: []vuln.Advisory{onDebian("", harmless, "X-1", accepted)},
		beside: finding.SeverityUnknown, within: finding.SeverityLow},
	"a record about another package": {org: []vuln.Advisory{onDebian("", "", accepted)},
		author: []vuln.Advisory{elsewhere(onDebian("", harmless, "X-1", accepted))},
		beside: finding.SeverityUnknown, within: finding.SeverityLow},
	"a rating instead of a record of the organization": {
		org:    []vuln.Advisory{onDebian("", "", accepted), elsewhere(onDebian("", worst, "GHSA-1", accepted))},
		author: []vuln.Advisory{onDebian("low", "", "X-1", accepted)},
		beside: finding.SeverityCritical, within: finding.SeverityCritical},
	"two vulnerabilities are said to be one": {
		org:    []vuln.Advisory{onDebian("", severe, accepted), onDebian("", severe, exploited)},
		author: []vuln.Advisory{onDebian("low", "", "X-1", accepted, exploited)},
		beside: finding.SeverityHigh, within: finding.SeverityHigh},
}

const severe = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N" // 7.5

// TestListsAndAuthorElsewhere checks that an author of advisories in a folder changes no severity of an image elsewhere
// in the organization, and lowers none of an image in the folder. It compares every answer that shows severities.
func TestListsAndAuthorElsewhere(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		org, folder := g.groups[0], g.groups[3]
		now := time.Now().UTC().Truncate(time.Millisecond)
		other := org.NewChild()
		_, err := g.InsertGroup(t.Context(), resource.Group{UID: other, Name: "other", CreateTime: now, UpdateTime: now})
		must(t, err)
		beside, within := g.aRepo(t, other, "app"), g.aRepo(t, folder, "app")
		d := push(t, g.Store, beside, "a0")
		push(t, g.Store, within, "a0")
		for _, name := range slices.Sorted(maps.Keys(ratingAttacks)) {
			tt := ratingAttacks[name]
			by("the organization", tt.org)
			by("the author", tt.author)
			g.imports(t, org, tt.org...)
			g.checkSeverities(t, name+": before", beside.UID, d, tt.beside)
			g.imports(t, folder, tt.author...)
			g.checkSeverities(t, name+": after", beside.UID, d, tt.beside)
			g.checkSeverities(t, name+": in the folder", within.UID, d, tt.within)
			g.checkGroupSeverities(t, name+": list of the organization", org, max(tt.beside, tt.within))
			g.checkByImage(t, name, map[resource.UID]finding.Severity{beside.UID: tt.beside, within.UID: tt.within})
			g.checkDaySeverities(t, name, other, tt.beside)
			g.forget(t)
		}
	})
}

// by sets the author of advisories.
func by(author string, advisories []vuln.Advisory) {
	for i := range advisories {
		advisories[i].Author = author
	}
}

// checkSeverities checks the severity of all findings of an image, and of its repo and its group.
func (g *game) checkSeverities(t *testing.T, when string, repo resource.UID, d string, want finding.Severity) {
	t.Helper()
	owner := g.as(t, "owner of a")
	n := 0
	check := func(what string, v finding.Finding) {
		t.Helper()
		if n++; v.Severity != want {
			t.Errorf("%s: %s: the severity of %s in %s is %d, want %d", when, what, v.ID, v.Package.Name, v.Severity, want)
		}
		if (v.SeveritySource != "") != (want != finding.SeverityUnknown) {
			t.Errorf("%s: %s: the source of severity %d is %q", when, what, v.Severity, v.SeveritySource)
		}
	}
	for _, asOf := range []time.Time{{}, g.DB.Time()} {
		got, _, err := g.service.List(owner, finding.Image{Repo: repo, Reference: d}, query.Filter{At: asOf},
			page.Params{Size: 200})
		must(t, err)
		for _, v := range got.Items {
			check(fmt.Sprint("image at ", asOf), v)
		}
	}
	got, _, err := g.service.List(owner, finding.Image{Repo: repo, Reference: d},
		query.Filter{Severities: []finding.Severity{want}}, page.Params{Size: 200})
	must(t, err)
	if 3*len(got.Items) != n+len(got.Items) || n == 0 {
		t.Errorf("%s: the filter selects %d of %d findings", when, len(got.Items), n/2)
	}
	for _, place := range []resource.UID{repo, repo.Parent()} {
		g.checkGroupSeverities(t, when, place, want)
	}
	r, ok, err := g.service.Report(owner, repo, d, resource.ImageReportsList)
	must(t, err)
	texts := []evidence.Severity{evidence.Unknown, evidence.Low, evidence.Medium, evidence.High, evidence.Critical}
	for _, m := range r.Matches {
		if m.Severity != texts[want] {
			t.Errorf("%s: the severity in the report is %v, want %v", when, m.Severity, texts[want])
		}
	}
	if !ok || len(r.Matches) == 0 {
		t.Errorf("%s: no report", when)
	}
}

// checkGroupSeverities checks the severity of all findings of a group or repo, in its list, its summary and its totals.
func (g *game) checkGroupSeverities(t *testing.T, when string, place resource.UID, want finding.Severity) {
	t.Helper()
	owner := g.as(t, "owner of a")
	listed, _, err := g.service.ListGroup(owner, query.Place{Group: place}, query.Filter{}, page.Params{Size: 200})
	must(t, err)
	for _, v := range listed.Items {
		if v.Severity != want || (v.SeveritySource != "") != (want != finding.SeverityUnknown) {
			t.Errorf("%s: the severity in the list is %d by %q, want %d", when, v.Severity, v.SeveritySource, want)
		}
	}
	totals, _, err := g.reports.Totals(owner, query.Place{Group: place}, report.ByPackage, query.Filter{}, page.Params{})
	must(t, err)
	for _, total := range totals.Items {
		if total.Open[want] == 0 || total.Open[want] != total.Open.Sum() {
			t.Errorf("%s: the totals of a package are %v, want severity %d", when, total.Open, want)
		}
	}
	if len(listed.Items) == 0 || len(totals.Items) == 0 {
		t.Errorf("%s: no findings", when)
	}
	if place.Depth() == 1 {
		return // the summary of the organization counts the tags of both folders
	}
	_, sum, err := g.service.Summarize(owner, query.Place{Group: place}, 1, page.Params{})
	must(t, err)
	last := sum.Series[len(sum.Series)-1].Open
	if now := sum.Total.Now; now[want] == 0 || now[want] != now.Sum() || last != now {
		t.Errorf("%s: the summary counts %v, its series %v, want severity %d", when, now, last, want)
	}
}

// checkByImage checks the totals of each image in the list of the organization.
func (g *game) checkByImage(t *testing.T, when string, want map[resource.UID]finding.Severity) {
	t.Helper()
	totals, _, err := g.reports.Totals(g.as(t, "owner of a"), query.Place{Group: g.groups[0]}, report.ByImage,
		query.Filter{}, page.Params{})
	must(t, err)
	if len(totals.Items) != len(want) {
		t.Errorf("%s: totals of %d images", when, len(totals.Items))
	}
	for _, total := range totals.Items {
		if severity := want[total.Image.Repo]; total.Open[severity] == 0 || total.Open[severity] != total.Open.Sum() {
			t.Errorf("%s: the totals of an image are %v, want severity %d", when, total.Open, severity)
		}
	}
}

// checkDaySeverities checks the stored and the computed counts of today for a group.
func (g *game) checkDaySeverities(t *testing.T, when string, group resource.UID, want finding.Severity) {
	t.Helper()
	stored, _, err := g.service.CountDay(t.Context(), group.Root(), vuln.DayOf(g.DB.Time())-1)
	must(t, err)
	stored = slices.DeleteFunc(stored, func(d vuln.FindingDay) bool { return d.Group != group })
	computed, err := g.service.ComputeDays(g.as(t, "owner of a"), group, 1)
	must(t, err)
	for _, days := range [][]vuln.FindingDay{stored, computed} {
		if len(days) != 1 || days[0].Open[want] == 0 || days[0].Open[want] != days[0].OpenCount() {
			t.Errorf("%s: the days are %+v, want severity %d", when, days, want)
		}
	}
}
