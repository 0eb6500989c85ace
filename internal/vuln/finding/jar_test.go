package finding_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// TestArchiveWithoutGroup checks that the advice for a Java archive without a Maven group is compared with the
// advisories about the Maven package, and that the severity for this package is among the ratings.
func TestArchiveWithoutGroup(t *testing.T) {
	t.Parallel()
	about := func(id string, events ...vuln.RangeEvent) vuln.Advisory {
		return vuln.Advisory{UID: resource.NewRoot().NewChild(), ID: id, Affected: []vuln.Affected{
			{Ecosystem: "Maven", Name: "org.other:thing"},
			{Ecosystem: "Maven", Name: "com.acme:core", Ranges: []vuln.AffectedRange{{Type: "ECOSYSTEM", Events: events}},
				Severities: []vuln.Severity{{Type: vuln.CVSSv3, Score: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}}}}}
	}
	first := about("GHSA-1", vuln.RangeEvent{Introduced: "0"}, vuln.RangeEvent{Fixed: "1.2"},
		vuln.RangeEvent{Introduced: "2.0"}, vuln.RangeEvent{Fixed: "2.1"})
	second := about("GHSA-2", vuln.RangeEvent{Introduced: "0"}, vuln.RangeEvent{Fixed: "2.0"})
	advisories := map[resource.UID]vuln.Advisory{first.UID: first, second.UID: second}
	archive := registry.ImagePackage{Package: registry.Package{Ecosystem: version.JAR, Name: "core", Version: "1.0"}}
	finding1 := &finding.Finding{ID: "GHSA-1", Package: archive, Fixed: []string{"1.2", "2.1"}, FixedVersion: "1.2",
		Advisories: []resource.UID{first.UID}, Evidence: []finding.Evidence{{Advisory: first.UID, ID: "GHSA-1"}}}
	finding2 := &finding.Finding{ID: "GHSA-2", Package: archive, Fixed: []string{"2.0"}, FixedVersion: "2.0",
		Advisories: []resource.UID{second.UID}}
	finding.Advise([]*finding.Finding{finding1, finding2}, advisories)
	if finding1.Advice != "2.1" || finding2.Advice != "2.1" {
		t.Errorf("the advice is %q and %q, want 2.1", finding1.Advice, finding2.Advice)
	}
	if finding1.Describe(advisories); len(finding1.Ratings) != 1 || finding1.Score != 9.8 {
		t.Errorf("the ratings are %+v", finding1.Ratings)
	}
}
