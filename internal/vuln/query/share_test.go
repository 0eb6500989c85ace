package query_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// crowd adds many versions of a package and, for one organization, imports many advisories about the package. The
// matcher has not compared any of them yet.
func (g *game) crowd(t *testing.T, versions, advisories int) {
	t.Helper()
	var packages []registry.Package
	for i := range versions {
		v := fmt.Sprintf("1.%d.0", i)
		packages = append(packages, registry.Package{Ecosystem: "npm", Name: "hot", Version: v, PURL: "pkg:npm/hot@" + v})
	}
	_, err := g.AddPackages(t.Context(), packages)
	must(t, err)
	for i := range advisories {
		g.advise(t, g.groups[0], fmt.Sprintf("HOT-%d", i), "hot", "9.0.0")
	}
}

// advise imports an advisory about all versions of a package before fixed.
func (g *game) advise(t *testing.T, group resource.UID, id, name, fixed string) {
	t.Helper()
	a := vuln.Advisory{ID: id, Affected: []vuln.Affected{{Ecosystem: "npm", Name: name,
		Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}, {Fixed: fixed}}}}}}}
	a.Source.Digest = []byte(rand.Text())
	_, err := g.ImportAdvisories(t.Context(), group, "test", []vuln.Advisory{a})
	must(t, err)
}

// matches counts the matches of packages with a name.
func (g *game) matches(t *testing.T, name string) (n int) {
	t.Helper()
	must(t, g.Row(t.Context(),
		`SELECT count(*) FROM matches AS m JOIN packages AS p ON p.seq = m.package WHERE p.name = $1`,
		[]any{name}, &n))
	return n
}

// TestNobodyWaitsForAll checks that an organization with many versions of a package, and many advisories about it, does
// not delay the matching of another organization's packages and advisories. The first organization's matches must also
// be added, changed and removed in the end.
func TestNobodyWaitsForAll(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		const versions, advisories, pairs = 300, 12, 40
		g := newGame(t, url)
		has, err := lease.Acquire(t.Context(), g.DB, "matches", g.matcher.Holder, time.Hour)
		if g.Replicated() && (err != nil || !has) {
			t.Fatal(has, err)
		}
		g.matcher.Pairs = pairs
		step := func() bool {
			t.Helper()
			before := g.matches(t, "hot")
			did, err := g.matcher.Match(t.Context())
			must(t, err)
			// A turn compares at least one package with all advisories.
			if added := g.matches(t, "hot") - before; added > 2*pairs+advisories || -added > 2*pairs {
				t.Fatalf("one turn has added %d matches", added)
			}
			return did
		}
		soon := func(what string, want int) {
			t.Helper()
			for range 4 {
				if step(); g.matches(t, "cold") == want {
					return
				}
			}
			t.Fatalf("%s: %d matches after four turns, want %d", what, g.matches(t, "cold"), want)
		}
		g.advise(t, g.groups[1], "COLD-1", "cold", "2.0.0")
		step()
		g.crowd(t, versions, advisories)
		step()
		_, err = g.AddPackages(t.Context(), []registry.Package{{Ecosystem: "npm", Name: "cold", Version: "1.0.0",
			PURL: "pkg:npm/cold@1.0.0"}})
		must(t, err)
		soon("a package that was pushed while others wait", 1)
		for step() {
		}
		if n := g.matches(t, "hot"); n != versions*advisories {
			t.Fatalf("%d matches, want %d", n, versions*advisories)
		}
		for i := range advisories { // new versions of the advisories are about another package
			g.advise(t, g.groups[0], fmt.Sprintf("HOT-%d", i), "other", "1.0.0")
		}
		step()
		g.advise(t, g.groups[1], "COLD-2", "cold", "2.0.0")
		soon("an advisory that came while others wait", 2)
		for step() {
		}
		if n := g.matches(t, "hot"); n != 0 {
			t.Fatalf("%d matches are left", n)
		}
	})
}

// TestChangeWhileBegun checks an advisory that changes after it was compared with only some of the packages. It must be
// compared with the remaining packages, and then with all packages again.
func TestChangeWhileBegun(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGame(t, url)
		has, err := lease.Acquire(t.Context(), g.DB, "matches", g.matcher.Holder, time.Hour)
		if g.Replicated() && (err != nil || !has) {
			t.Fatal(has, err)
		}
		g.crowd(t, 10, 0)
		g.matcher.Pairs = 100
		for did := true; did; {
			did, err = g.matcher.Match(t.Context())
			must(t, err)
		}
		g.matcher.Pairs = 6
		g.advise(t, g.groups[0], "HOT-1", "hot", "9.0.0")
		_, err = g.matcher.Match(t.Context())
		must(t, err)
		if n := g.matches(t, "hot"); n != 6 {
			t.Fatalf("%d matches, want the matches of six packages", n)
		}
		g.advise(t, g.groups[0], "HOT-1", "hot", "1.0.0")
		for did := true; did; {
			did, err = g.matcher.Match(t.Context())
			must(t, err)
		}
		if n := g.matches(t, "hot"); n != 0 {
			t.Errorf("%d matches are left", n)
		}
	})
}
