package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// TestImageTotals checks that every finding counts once in the totals of an image, in the order of urgency.
func TestImageTotals(t *testing.T) {
	curl := &findingspb.Package{Name: "curl", Version: "7.1", Purl: "pkg:rpm/curl@7.1"}
	bash := &findingspb.Package{Name: "bash", Version: "5.0", Purl: "pkg:rpm/bash@5.0"}
	all := &findingspb.ListFindingsResponse{
		Inspection: &findingspb.Inspection{Digest: "sha256:1", Platform: "linux/amd64"},
		Findings: []*findingspb.Finding{
			{AdvisoryId: "CVE-2026-1", Package: curl, Severity: findingspb.Severity_SEVERITY_HIGH, Kev: true,
				FixedVersions: []string{"7.2"}, AdvisedVersion: "7.3"},
			{AdvisoryId: "CVE-2026-1", Package: bash, Severity: findingspb.Severity_SEVERITY_LOW},
			{AdvisoryId: "GHSA-2", Aliases: []string{"CVE-2026-2"}, Package: curl, FixedVersions: []string{"7.3"},
				AdvisedVersion: "7.3"},
		},
	}
	image := &findingspb.AffectedImage{Repo: "acme/app", Tags: []string{"v1"}}
	for by, want := range map[findingspb.ListFindingTotalsRequest_By][]*findingspb.FindingTotal{
		findingspb.ListFindingTotalsRequest_BY_PACKAGE: {
			{Package: curl, Open: &findingspb.SeverityCounts{Open: 2, High: 1, Unknown: 1}, Kev: 1, Fixable: 2, ImageCount: 1,
				PackageCount: 1, AdvisedVersion: "7.3", AdvisoryIds: []string{"CVE-2026-1", "CVE-2026-2"}},
			{Package: bash, Open: &findingspb.SeverityCounts{Open: 1, Low: 1}, ImageCount: 1, PackageCount: 1,
				AdvisoryIds: []string{"CVE-2026-1"}},
		},
		findingspb.ListFindingTotalsRequest_BY_VULNERABILITY: {
			{AdvisoryId: "CVE-2026-1", Open: &findingspb.SeverityCounts{Open: 2, High: 1, Low: 1}, Kev: 1, Fixable: 1,
				ImageCount: 1, PackageCount: 2, PackageNames: []string{"curl 7.1", "bash 5.0"}},
			{AdvisoryId: "CVE-2026-2", Open: &findingspb.SeverityCounts{Open: 1, Unknown: 1}, Fixable: 1, ImageCount: 1,
				PackageCount: 1, PackageNames: []string{"curl 7.1"}},
		},
		findingspb.ListFindingTotalsRequest_BY_IMAGE: {
			{Image: &findingspb.AffectedImage{Repo: "acme/app", Tags: []string{"v1"}, Digest: "sha256:1",
				Platform: "linux/amd64"}, Open: &findingspb.SeverityCounts{Open: 3, High: 1, Low: 1, Unknown: 1},
				Kev: 1, Fixable: 2, ImageCount: 1, PackageCount: 2},
		},
	} {
		if diff := cmp.Diff(want, imageTotals(all, by, image), protocmp.Transform()); diff != "" {
			t.Errorf("%v: %s", by, diff)
		}
	}
}
