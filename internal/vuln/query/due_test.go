package query_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// A dueKey identifies a finding in an image by one of its names.
type dueKey struct {
	repo               resource.UID
	digest, purl, name string
}

// TestDueTimes plays like TestGroupFindings, with SLAs, and checks for each caller, group and image when the findings
// must be fixed, and that exactly the overdue ones are selected.
func TestDueTimes(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newTagGame(t, url)
		limits := map[resource.UID]vuln.SLA{
			g.groups[0]: {UID: g.groups[0], Critical: 2, High: 5, Medium: 10},
			g.groups[1]: {UID: g.groups[1], Unknown: 4, Critical: 300},
			g.groups[3]: {UID: g.groups[3], Unknown: 3, High: 20}, // the folder of the first organization
		}
		for _, v := range limits {
			_, err := g.SetSLA(t.Context(), v)
			must(t, err)
		}
		g.play(t, *rounds*15)
		for tries := 0; len(g.expectedDues("of all", "", limits)) == 0; tries++ {
			if tries == 20 {
				t.Fatal("no finding has a limit")
			}
			g.play(t, 5)
		}
		for name, caller := range g.callers {
			ctx := authz.WithCaller(t.Context(), caller)
			for _, place := range append([]resource.UID{""}, g.groups...) {
				dues := g.expectedDues(name, place, limits)
				g.checkGroupDues(ctx, t, place, dues)
			}
			g.checkImageDues(ctx, t, g.expectedDues(name, "", limits))
		}
	})
}

// expectedDues returns when the findings that are open now must be fixed.
func (g *tagGame) expectedDues(
	name string, place resource.UID, limits map[resource.UID]vuln.SLA,
) map[dueKey]time.Time {
	dues := map[dueKey]time.Time{}
	g.opened = func(hits []trueHit, severity finding.Severity, since time.Time) {
		group := hits[0].repo.Parent()
		for ; group != "" && limits[group].UID == ""; group = group.Parent() { // until the nearest group with an SLA
		}
		days := limits[group].Days()[severity]
		if days == 0 {
			return
		}
		due := since.Add(time.Duration(days) * 24 * time.Hour)
		for _, h := range hits {
			for _, n := range h.names {
				key := dueKey{h.repo, h.digest, h.pkg.Purl, n}
				if known, ok := dues[key]; !ok || due.Before(known) {
					dues[key] = due
				}
			}
		}
	}
	defer func() { g.opened = nil }()
	for repo, tags := range g.everTagged() {
		for tag := range tags {
			g.playTag(name, place, repo, tag, make([]query.BySeverity, 1), func(func(*trueCount)) {})
		}
	}
	return dues
}

// checkGroupDues checks the list of a group.
func (g *tagGame) checkGroupDues(
	ctx context.Context, t *testing.T, place resource.UID, dues map[dueKey]time.Time,
) {
	t.Helper()
	list := func(f query.Filter) (texts []string, reason string, _ error) {
		found, err := readAll(func(p page.Params) (page.Page[query.GroupFinding], error) {
			got, c, err := g.service.ListGroup(ctx, query.Place{Group: place}, f, p)
			reason = c.NoDue
			return got, err
		})
		for _, v := range found {
			texts = append(texts, dueText(v.Finding))
		}
		return texts, reason, err
	}
	earliest := map[string]time.Time{} // by package and name
	for key, due := range dues {
		k := key.purl + " " + key.name
		if known, ok := earliest[k]; !ok || due.Before(known) {
			earliest[k] = due
		}
	}
	var want, late []string
	plain, err := readAll(func(p page.Params) (page.Page[query.GroupFinding], error) {
		got, _, err := g.service.ListGroup(ctx, query.Place{Group: place}, query.Filter{}, p)
		return got, err
	})
	must(t, err)
	for _, v := range plain {
		if !v.DueTime.IsZero() || v.Overdue {
			t.Errorf("nobody asked, but %s", dueText(v.Finding))
		}
		v.DueTime = earliest[v.Package.PURL+" "+v.ID]
		want = append(want, dueText(v.Finding))
		if !v.DueTime.IsZero() && !v.DueTime.After(g.now) {
			late = append(late, dueText(v.Finding))
		}
	}
	got, reason, err := list(query.Filter{Due: true})
	must(t, err)
	checkTexts(t, fmt.Sprintf("the findings of %q", place), want, got)
	overdue, _, err := list(query.Filter{Overdue: true})
	if reason != "" {
		if len(dues) > 0 || !isUnmet(err, "NO_SLA") {
			t.Errorf("%s, but there are %d times; overdue: %v", reason, len(dues), err)
		}
		return
	}
	must(t, err)
	checkTexts(t, fmt.Sprintf("the overdue findings of %q", place), late, overdue)
}

// checkImageDues checks the list of each image.
func (g *tagGame) checkImageDues(ctx context.Context, t *testing.T, dues map[dueKey]time.Time) {
	t.Helper()
	for _, repo := range slices.Sorted(maps.Keys(g.repos)) {
		for _, d := range slices.Sorted(maps.Keys(g.repos[repo])) {
			list := func(f query.Filter) (found []finding.Finding, c query.AnswerCoverage, err error) {
				found, err = readAll(func(p page.Params) (page.Page[finding.Finding], error) {
					got, k, err := g.service.List(ctx, finding.Image{Repo: repo, Reference: d}, f, p)
					c = k.Answer
					return got, err
				})
				return found, c, err
			}
			found, c, err := list(query.Filter{Due: true})
			if errors.Is(err, fault.PermissionDenied) {
				continue
			}
			must(t, err)
			overdue, _, overdueErr := list(query.Filter{Overdue: true})
			var late, got []string
			for _, v := range found {
				want := v
				want.DueTime = dues[dueKey{repo, d, v.Package.PURL, v.ID}]
				if dueText(v) != dueText(want) {
					t.Errorf("%s, want %s", dueText(v), dueText(want))
				}
				if !want.DueTime.IsZero() && !want.DueTime.After(g.now) {
					late = append(late, dueText(want))
				}
			}
			if c.NoDue != "" {
				if !isUnmet(overdueErr, "NO_SLA") && !isUnmet(overdueErr, "IMAGE_NOT_TAGGED") {
					t.Errorf("%s, but the overdue findings are listed: %v", c.NoDue, overdueErr)
				}
				continue
			}
			must(t, overdueErr)
			for _, v := range overdue {
				got = append(got, dueText(v))
			}
			checkTexts(t, "the overdue findings of "+d, late, got)
		}
	}
}

func dueText(v finding.Finding) string { return fmt.Sprint(v.Package.PURL, " ", v.ID, " ", v.DueTime) }

func checkTexts(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// isUnmet reports whether an error is the precondition of a kind.
func isUnmet(err error, kind string) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && len(f.Unmet) == 1 && f.Unmet[0].Subject == kind
}

// TestDueTimesNeedTheCapabilityOfTheSummary checks that a caller who may list the findings of an image, but not the
// summary, does not learn when the findings must be fixed.
func TestDueTimesNeedTheCapabilityOfTheSummary(t *testing.T) {
	t.Parallel()
	storyGame(t, func(t *testing.T, g *game) {
		repo := g.aRepo(t, g.groups[0], "app")
		d := push(t, g.Store, repo, "a0")
		g.settle(t)
		_, err := g.SetSLA(t.Context(), vuln.SLA{UID: g.groups[0], Unknown: 1})
		must(t, err)
		image := finding.Image{Repo: repo.UID, Reference: d}
		owner, stranger := g.callers["owner of a"], g.callers["owner of b"]
		narrowed, caps := owner, resource.NewCapabilities(resource.RepoList, resource.ImageReportsList,
			resource.AdvisoriesList)
		narrowed.Caps = &caps
		closed := []finding.State{finding.StateClosed}
		for name, tt := range map[string]struct {
			caller authz.Caller
			filter query.Filter
			want   error
		}{
			"an owner":                              {owner, query.Filter{Overdue: true}, nil},
			"an owner of another organization":      {stranger, query.Filter{Due: true}, fault.PermissionDenied},
			"a narrowed token":                      {narrowed, query.Filter{Due: true}, fault.PermissionDenied},
			"a narrowed token, for overdue ones":    {narrowed, query.Filter{Overdue: true}, fault.PermissionDenied},
			"a narrowed token that does not ask":    {narrowed, query.Filter{}, nil},
			"an owner, about the past":              {owner, query.Filter{Due: true, At: time.Now()}, fault.InvalidArgument},
			"an owner, about closed findings":       {owner, query.Filter{Overdue: true, States: closed}, fault.InvalidArgument},
			"an owner, when closed ones are listed": {owner, query.Filter{Due: true, States: closed}, nil},
		} {
			_, _, err := g.service.List(authz.WithCaller(t.Context(), tt.caller), image, tt.filter, page.Params{})
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
	})
}
