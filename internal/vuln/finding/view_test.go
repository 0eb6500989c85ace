package finding_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// TestSeverityInPlaces checks the severity of a finding in several groups, and that the ranks of a timeline give the
// same severity.
func TestSeverityInPlaces(t *testing.T) {
	t.Parallel()
	org := resource.NewRoot()
	a, b := org.NewChild(), org.NewChild()
	deep := a.NewChild()
	type advisory struct {
		group  resource.UID
		score  int64 // in tenths
		vendor int64
		names  []string
	}
	in := func(group resource.UID, score, vendor int64, names ...string) advisory {
		return advisory{group, score, vendor, names}
	}
	tests := map[string]struct {
		advisories []advisory
		want       map[resource.UID]finding.Severity
	}{
		"the organization alone": {[]advisory{in(org, 75, 0, "CVE-1")},
			map[resource.UID]finding.Severity{org: 3, a: 3, deep: 3, b: 3}},
		"a word replaces a score of the same group": {[]advisory{in(org, 75, 0, "CVE-1"), in(org, 0, 1, "CVE-1")},
			map[resource.UID]finding.Severity{org: 1, a: 1, b: 1}},
		"a folder cannot lower": {[]advisory{in(org, 75, 0, "CVE-1"), in(a, 0, 1, "CVE-1")},
			map[resource.UID]finding.Severity{org: 3, a: 3, deep: 3, b: 3}},
		"a folder raises": {[]advisory{in(org, 20, 0, "CVE-1"), in(a, 0, 4, "CVE-1")},
			map[resource.UID]finding.Severity{org: 1, a: 4, deep: 4, b: 1}},
		"nobody above knows": {[]advisory{in(a, 75, 0, "CVE-1"), in(deep, 98, 0, "CVE-1")},
			map[resource.UID]finding.Severity{org: 4, a: 3, deep: 4, b: 4}},
		"a folder connects": {
			[]advisory{in(org, 75, 0, "CVE-1"), in(org, 0, 1, "CVE-2"), in(a, 0, 0, "CVE-1", "CVE-2")},
			map[resource.UID]finding.Severity{org: 3, a: 3, b: 3}},
	}
	for name, tt := range tests {
		advisories := map[int64]vuln.Advisory{}
		var hits []findingdb.Hit
		for i, m := range tt.advisories {
			key := int64(i)
			advisories[key] = vuln.Advisory{UID: m.group.NewChild(), ID: m.names[0], Aliases: m.names[1:]}
			hits = append(hits, findingdb.Hit{Advisory: key, Rating: findingdb.Rating{Score: m.score, Vendor: m.vendor}})
		}
		joined := finding.ByVulnerability(hits, advisories)
		if len(joined) != 1 {
			t.Fatalf("%s: %d vulnerabilities", name, len(joined))
		}
		for place, want := range tt.want {
			v := finding.New(registry.ImagePackage{Package: registry.Package{Ecosystem: "Debian:12"}}, joined[0], advisories)
			v.RateIn(place)
			views, n := finding.ViewsIn(finding.ViewsOf(joined[0], advisories), place)
			var ranks finding.Ranks
			for _, m := range joined[0] {
				ranks = ranks.Max(finding.RanksOf(views, advisories[m.Advisory].UID.Parent(), m, "Debian:12"))
			}
			if v.Severity != want || v.SeverityIn(place) != want || ranks.Severity(n) != want {
				t.Errorf("%s: at depth %d: severity %d, %d in the place, %d in a timeline, want %d", name, place.Depth(),
					v.Severity, v.SeverityIn(place), ranks.Severity(n), want)
			}
		}
	}
}
