package query_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// A hitKey identifies a match: the URL of a package, and an advisory.
type hitKey struct {
	purl     string
	advisory resource.UID
}

// A moment is the state of the model from a time until the next moment.
type moment struct {
	from   time.Time
	tags   map[resource.UID]map[string]string // digest to which a tag points, by repo and tag
	images map[resource.UID]map[string]string // word that determines an image's packages, by repo and digest
	since  map[hitKey]time.Time               // time since which a match exists
}

// A chronicle is a game with a clock that the test sets. It records every moment.
type chronicle struct {
	*game
	clock   *atomic.Int64
	tags    map[resource.UID]map[string]string
	born    map[resource.UID]map[string]time.Time // time at which an image was inspected, by repo and digest
	known   map[string]inspect.Package            // all packages that ever existed
	since   map[hitKey]time.Time
	names   map[resource.UID][]string // names that each advisory had when it last affected a package
	moments []moment
}

func newChronicle(t *testing.T, url string) *chronicle {
	t.Helper()
	c := &chronicle{game: newGame(t, url), clock: &atomic.Int64{}, tags: map[resource.UID]map[string]string{},
		born: map[resource.UID]map[string]time.Time{}, known: map[string]inspect.Package{}, since: map[hitKey]time.Time{},
		names: map[resource.UID][]string{}}
	c.clock.Store(time.Now().UnixMilli())
	c.setClocks()
	return c
}

func (c *chronicle) setClocks() {
	for _, r := range c.replicas {
		r.Now = func() time.Time { return time.UnixMilli(c.clock.Load()).UTC() }
	}
}

// act advances the clock and performs one random action.
func (c *chronicle) act(t *testing.T) {
	t.Helper()
	c.clock.Add(1 + c.rng.Int64N(100_000))
	before := maps.Clone(c.repos)
	for repo, images := range before {
		before[repo] = maps.Clone(images)
	}
	switch n := c.rng.IntN(12); {
	case n < 3 && len(c.named) > 0:
		c.moveTag(t)
	default:
		c.game.act(t)
	}
	c.settle(t)
	c.remember(before)
}

// moveTag moves a tag to a random image of its repo, or deletes it.
func (c *chronicle) moveTag(t *testing.T) {
	t.Helper()
	repos := slices.Sorted(maps.Keys(c.repos))
	repo := repos[c.rng.IntN(len(repos))]
	images := slices.Sorted(maps.Keys(c.repos[repo]))
	name := []string{"stable", "edge"}[c.rng.IntN(2)]
	if _, ok := c.tags[repo][name]; ok && c.rng.IntN(4) == 0 {
		must(t, c.DeleteTagNamed(t.Context(), repo, name, nil))
		delete(c.tags[repo], name)
		return
	}
	if len(images) == 0 {
		return
	}
	d := images[c.rng.IntN(len(images))]
	_, err := c.PutTag(t.Context(), registry.Tag{UID: repo.NewChild(), Name: name, Digest: d}, nil)
	must(t, err)
	if c.tags[repo] == nil {
		c.tags[repo] = map[string]string{}
	}
	c.tags[repo][name] = d
}

// remember records the current moment. before contains the images that existed before the last action.
func (c *chronicle) remember(before map[resource.UID]map[string]string) {
	now := time.UnixMilli(c.clock.Load()).UTC()
	for repo, images := range c.repos {
		if c.born[repo] == nil {
			c.born[repo] = map[string]time.Time{}
		}
		for d, word := range images {
			if _, ok := before[repo][d]; !ok {
				c.born[repo][d] = now
			}
			for _, p := range contents(word, c.extractors) {
				c.known[p.Purl+p.Owner] = p
			}
		}
		maps.DeleteFunc(c.tags[repo], func(_, d string) bool { _, ok := images[d]; return !ok })
	}
	since := map[hitKey]time.Time{}
	for uid, a := range c.advisories {
		for _, p := range c.known {
			if !affects(a, p) {
				continue
			}
			key := hitKey{p.Purl, uid}
			if since[key] = now; !c.since[key].IsZero() {
				since[key] = c.since[key]
			}
			c.names[uid] = append([]string{a.ID}, a.Aliases...)
		}
	}
	c.since = since
	m := moment{from: now, since: since, images: map[resource.UID]map[string]string{},
		tags: map[resource.UID]map[string]string{}}
	for repo, images := range c.repos {
		m.images[repo], m.tags[repo] = maps.Clone(images), maps.Clone(c.tags[repo])
	}
	c.moments = append(c.moments, m)
}

// TestPast performs random pushes, tag moves, deletions, imports, changes and withdrawals. It checks that each caller
// gets for every moment the findings that follow from the state at that time.
func TestPast(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		c := newChronicle(t, url)
		for range 12 * *rounds {
			c.act(t)
		}
		c.clock.Add(1000)
		for name, caller := range c.callers {
			ctx := authz.WithCaller(t.Context(), caller)
			for range 6 {
				c.checkMoment(ctx, t, name, c.rng.IntN(len(c.moments)))
			}
			c.checkClosed(ctx, t, name)
		}
	})
}

// checkMoment checks the findings of tags at the first or last millisecond of a moment.
func (c *chronicle) checkMoment(ctx context.Context, t *testing.T, name string, n int) {
	t.Helper()
	m := c.moments[n]
	asOf := m.from
	if n+1 < len(c.moments) && c.rng.IntN(2) == 0 {
		asOf = c.moments[n+1].from.Add(-time.Millisecond)
	}
	for repo, tags := range m.tags {
		if _, ok := c.repos[repo]; !ok || !covered(c.sees[name], repo) {
			continue
		}
		for _, tag := range []string{"stable", "edge"} {
			r := c.replicas[c.rng.IntN(len(c.replicas))]
			got, err := readAll(func(p page.Params) (page.Page[finding.Finding], error) {
				found, _, err := r.service.List(ctx, finding.Image{Repo: repo, Reference: tag}, query.Filter{At: asOf}, p)
				return found, err
			})
			d := tags[tag]
			_, exists := c.repos[repo][d]
			switch {
			case d == "":
				if !errors.Is(err, fault.NotFound) {
					t.Fatalf("a tag that did not exist: %v", err)
				}
			case !exists || c.born[repo][d].After(asOf):
				if !errors.Is(err, fault.FailedPrecondition) {
					t.Fatalf("an image that is gone: %v", err)
				}
			default:
				must(t, err)
				c.compareThen(t, fmt.Sprintf("%s lists %s at %v", name, tag, asOf), m, m.images[repo][d], c.born[repo][d],
					c.sees[name], got)
			}
		}
	}
}

// compareThen compares findings with the findings that follow from the state of a moment.
func (c *chronicle) compareThen(
	t *testing.T, what string, m moment, word string, born time.Time, sees []resource.UID, got []finding.Finding,
) {
	t.Helper()
	var want, listed []string
	has := map[string]bool{}
	for _, p := range contents(word, c.extractors) {
		if p.Owner == "" {
			has[p.Purl] = true
		}
	}
	for key := range m.since {
		if has[key.purl] && covered(sees, key.advisory) {
			want = append(want, key.purl+" "+string(key.advisory))
		}
	}
	for _, f := range got {
		var first time.Time
		for _, uid := range f.Advisories {
			listed = append(listed, f.Package.PURL+" "+string(uid))
			if s := m.since[hitKey{f.Package.PURL, uid}]; first.IsZero() || s.Before(first) {
				first = s
			}
		}
		if first.Before(born) {
			first = born
		}
		if !f.FirstSeen.Equal(first) {
			t.Fatalf("%s: %s was first seen at %v, want %v", what, f.ID, f.FirstSeen, first)
		}
	}
	slices.Sort(want)
	slices.Sort(listed)
	if diff := gocmp.Diff(want, listed, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: %s", what, diff)
	}
}

// A named is a package in any version, and a name of an advisory.
type named struct{ pkg, id string }

// checkClosed checks that a finding is listed as closed exactly if it is not open, and if the current image of a tag,
// or an earlier image that still exists, had the finding.
func (c *chronicle) checkClosed(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	for repo, tags := range c.tags {
		if _, ok := c.repos[repo]; !ok || !covered(c.sees[name], repo) {
			continue
		}
		for tag, d := range tags {
			list := func(state finding.State) []finding.Finding {
				got, err := readAll(func(p page.Params) (page.Page[finding.Finding], error) {
					found, _, err := c.service.List(ctx, finding.Image{Repo: repo, Reference: tag},
						query.Filter{States: []finding.State{state}}, p)
					return found, err
				})
				must(t, err)
				return got
			}
			open, closed := namesOf(list(finding.StateOpen)), list(finding.StateClosed)
			over := namesOf(closed)
			had := c.had(repo, tag, d, c.sees[name])
			for key, uids := range had {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(uids)), func(uid resource.UID) bool {
					return slices.ContainsFunc(c.called(uid), func(id string) bool {
						return open[named{key, id}] || over[named{key, id}]
					})
				}) {
					t.Fatalf("the list of %s for %s of %s lacks the closed finding of %v", name, tag, repo, key)
				}
			}
			for _, f := range closed {
				key := f.Package.Ecosystem + " " + f.Package.Name
				if !slices.ContainsFunc(f.Advisories, func(uid resource.UID) bool { return had[key][uid] }) {
					t.Fatalf("the list of %s for %s of %s has %s %s, which never existed", name, tag, repo, key, f.ID)
				}
				if slices.ContainsFunc(append(f.Aliases, f.ID), func(id string) bool { return open[named{key, id}] }) {
					t.Fatalf("%s gets %s %s as both open and closed", name, key, f.ID)
				}
			}
		}
	}
}

// called returns the current names of an advisory, or its last names if it was deleted.
func (c *chronicle) called(uid resource.UID) []string {
	if a, ok := c.advisories[uid]; ok {
		return append([]string{a.ID}, a.Aliases...)
	}
	return c.names[uid]
}

func namesOf(findings []finding.Finding) map[named]bool {
	names := map[named]bool{}
	for _, f := range findings {
		for _, id := range append([]string{f.ID}, f.Aliases...) {
			names[named{f.Package.Ecosystem + " " + f.Package.Name, id}] = true
		}
	}
	return names
}

// had returns the advisories that affected a package of an image to which a tag pointed or points today, by the name of
// the package. It omits advisories that still affect the package in the image of today.
func (c *chronicle) had(repo resource.UID, tag, today string, sees []resource.UID) map[string]map[resource.UID]bool {
	affected := map[string]map[resource.UID]bool{}
	for _, m := range c.moments {
		for _, d := range []string{m.tags[repo][tag], today} {
			word, exists := m.images[repo][d]
			if _, ok := c.repos[repo][d]; !ok || !exists || c.born[repo][d].After(m.from) {
				continue
			}
			for _, p := range contents(word, c.extractors) {
				for uid := range c.names {
					if p.Owner != "" || m.since[hitKey{p.Purl, uid}].IsZero() || !covered(sees, uid) {
						continue
					}
					if _, still := c.moments[len(c.moments)-1].since[hitKey{p.Purl, uid}]; still && d == today {
						continue
					}
					key := "npm " + p.Name
					if p.SourceName != "" {
						key = "Debian:12 " + p.Name
					}
					if affected[key] == nil {
						affected[key] = map[resource.UID]bool{}
					}
					affected[key][uid] = true
				}
			}
		}
	}
	return affected
}

// TestClosed checks that the closed findings of a tag have the right times and reasons.
func TestClosed(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		c := newChronicle(t, url)
		org := c.groups[0]
		caller := authz.WithCaller(t.Context(), c.callers["owner of a"])
		start := time.UnixMilli(c.clock.Load()).UTC()
		after := func(seconds int64) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
		tick := func(seconds int64) { c.settle(t); c.clock.Store(after(seconds).UnixMilli()) }
		repo := registry.Repo{UID: org.NewChild(), Name: "app", CreateTime: start, UpdateTime: start}
		must(t, c.InsertRepo(t.Context(), repo))
		a, b, unshared := unlike()
		old, fresh := push(t, c.Store, repo, a), push(t, c.Store, repo, b)
		tag := func(d string) {
			_, err := c.PutTag(t.Context(), registry.Tag{UID: repo.UID.NewChild(), Name: "latest", Digest: d}, nil)
			must(t, err)
		}
		tag(old)
		tick(10)
		publish := func(id, source, fixed string) {
			a := vuln.Advisory{ID: id, Affected: []vuln.Affected{{Ecosystem: "npm", Name: unshared.Name,
				Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: fixed}}}}}}}
			a.Source.Digest = []byte(fixed + source)
			_, err := c.ImportAdvisories(advisorydb.WithSource(t.Context(), source), org, "test", []vuln.Advisory{a})
			must(t, err)
		}
		publish("CVE-1", "feed 1", "9.0.0")
		publish("CVE-2", "feed 1", "9.0.0")
		tick(20)
		publish("CVE-2", "feed 2", "0.0.1")
		tick(30)
		tag(fresh)
		tick(40)

		list := func(f query.Filter) []finding.Finding {
			got, _, err := c.service.List(caller, finding.Image{Repo: repo.UID, Reference: "latest"}, f, page.Params{})
			must(t, err)
			slices.SortFunc(got.Items, func(a, b finding.Finding) int { return strings.Compare(a.ID, b.ID) })
			return got.Items
		}
		var got []finding.Finding
		for _, f := range list(query.Filter{States: []finding.State{finding.StateClosed}}) {
			got = append(got, finding.Finding{ID: f.ID, State: f.State, FirstSeen: f.FirstSeen, OpenedBy: f.OpenedBy,
				Closing: f.Closing})
		}
		want := []finding.Finding{
			{ID: "CVE-1", State: finding.StateClosed, FirstSeen: after(10), OpenedBy: "feed 1",
				Closing: finding.Closing{CloseTime: after(30), CloseReason: finding.CloseImageChanged, ClosedBy: "image " + fresh}},
			{ID: "CVE-2", State: finding.StateClosed, FirstSeen: after(10), OpenedBy: "feed 1",
				Closing: finding.Closing{CloseTime: after(20), CloseReason: finding.CloseAdvisoryChanged, ClosedBy: "feed 2"}},
		}
		if diff := gocmp.Diff(want, got, cmpopts.IgnoreUnexported(finding.Finding{})); diff != "" {
			t.Error(diff)
		}
		for seconds, want := range map[int64]int{5: 0, 10: 2, 20: 1, 29: 1, 30: 0} {
			if got := list(query.Filter{At: after(seconds)}); len(got) != want {
				t.Errorf("%d were open after %d seconds, want %d", len(got), seconds, want)
			}
		}
		c.wantPastTags(caller, t, repo.UID, old, after(30))
		c.refuses(t, repo.UID, after(20), after(100))
	})
}

// unlike returns the words of two images, and an npm package that the first image has and the second does not have in
// any version.
func unlike() (a, b string, p inspect.Package) {
	for i := range 20 * 20 {
		a, b = fmt.Sprintf("%c0", 'a'+i%20), fmt.Sprintf("%c1", 'a'+i/20)
		for _, p := range contents(a, 1) {
			if p.Ecosystem == "npm" && p.Owner == "" && !slices.ContainsFunc(contents(b, 1), func(q inspect.Package) bool {
				return q.Name == p.Name
			}) {
				return a, b, p
			}
		}
	}
	panic("all images have the same packages")
}

// wantPastTags checks that an image that an advisory affects is listed with the tags that pointed to it, if the caller
// may list tags.
func (c *chronicle) wantPastTags(ctx context.Context, t *testing.T, repo resource.UID, digest string, until time.Time) {
	t.Helper()
	narrowed := c.callers["owner of a"]
	caps := resource.NewCapabilities(resource.RepoList, resource.ReportsList, resource.AdvisoriesList)
	narrowed.Caps = &caps
	for _, tt := range []struct {
		ctx  context.Context
		want int
	}{{ctx, 1}, {authz.WithCaller(t.Context(), narrowed), 0}} {
		got, _, err := c.service.AffectedImages(tt.ctx, "CVE-1", query.Place{Group: repo}, page.Params{})
		must(t, err)
		if len(got.Items) != 1 || got.Items[0].Digest != digest || len(got.Items[0].PastTags) != tt.want {
			t.Fatalf("images %+v, want one with %d tags of the past", got.Items, tt.want)
		}
		if tt.want == 1 && (got.Items[0].PastTags[0].Name != "latest" || !got.Items[0].PastTags[0].Until.Equal(until)) {
			t.Errorf("tags of the past: %v", got.Items[0].PastTags)
		}
	}
}

// refuses checks that a query about the past needs the capability to list tags, and that a query about the future is
// invalid.
func (c *chronicle) refuses(t *testing.T, repo resource.UID, past, future time.Time) {
	t.Helper()
	narrowed := c.callers["owner of a"]
	caps := resource.NewCapabilities(resource.RepoList, resource.ImageReportsList, resource.AdvisoriesList)
	narrowed.Caps = &caps
	closed := []finding.State{finding.StateClosed}
	tests := map[string]struct {
		caller authz.Caller
		repo   resource.UID
		f      query.Filter
		err    error
	}{
		"now":                              {narrowed, repo, query.Filter{}, nil},
		"the past without tag.list":        {narrowed, repo, query.Filter{At: past}, fault.PermissionDenied},
		"closed findings without tag.list": {narrowed, repo, query.Filter{States: closed}, fault.PermissionDenied},
		"another organization":             {c.callers["owner of b"], repo, query.Filter{At: past}, fault.PermissionDenied},
		"an anonymous caller":              {authz.Caller{}, repo, query.Filter{At: past}, fault.PermissionDenied},
		"the future":                       {c.callers["owner of a"], repo, query.Filter{At: future}, fault.InvalidArgument},
		"closed findings in the past": {c.callers["owner of a"], repo, query.Filter{At: past, States: closed},
			fault.InvalidArgument},
		// The last segment of this UID belongs to a repo of another organization.
		"a repo that is elsewhere": {c.callers["owner of b"], c.groups[1] + repo[strings.LastIndexByte(string(repo), '/'):],
			query.Filter{At: past}, fault.NotFound},
	}
	for name, tt := range tests {
		_, _, err := c.service.List(authz.WithCaller(t.Context(), tt.caller),
			finding.Image{Repo: tt.repo, Reference: "latest"}, tt.f, page.Params{})
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", name, err, tt.err)
		}
	}
}
