package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// bomOf returns an SBOM that lists these packages.
func bomOf(purls ...string) string {
	var components []string
	for _, p := range purls {
		components = append(components, fmt.Sprintf(`{"type":"library","name":"n","purl":%q}`, p))
	}
	return `{"bomFormat":"CycloneDX","specVersion":"1.5","metadata":{"tools":[{"name":"made","version":"1"}],` +
		`"component":{"type":"container","name":"x","purl":"pkg:oci/x@sha256:1"}},"components":[` +
		strings.Join(components, ",") + `]}`
}

const bomType = "application/vnd.cyclonedx+json"

// origins returns, by package name, the origins of each package in an image.
func (g *gallery) origins(t *testing.T, call caller, bearer, repo, reference string) map[string]string {
	t.Helper()
	m := must[*findingspb.ListPackagesResponse](t, call, bearer, &findingspb.ListPackagesRequest{
		RepoUid: repo, Reference: reference,
	})
	byName := map[string]string{}
	for _, p := range m.GetPackages() {
		var kinds []string
		for _, o := range p.GetOrigins() {
			kinds = append(kinds, o.GetKind())
		}
		byName[p.GetPackage().GetName()] = strings.Join(kinds, ",")
	}
	return byName
}

// TestAttachedSBOMs checks that an SBOM is a second source for the packages in an image, but only in the repo in
// which the SBOM is attached.
func TestAttachedSBOMs(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		theirs := g.world.repo(t, g.other, "app")
		if d := g.pushImage(t, "other/app", "v1", "amd64", bookworm(t)); d != g.digest {
			t.Fatal("the images differ")
		}
		g.publish(t, g.org, osvOf("GHSA-7", "CVE-7", "npm", "right", "3.0.0"))
		g.publish(t, g.other, osvOf("GHSA-8", "CVE-7", "npm", "right", "3.0.0"))
		attached := g.attach(t, "dev/folder/app", "", g.digest, bomType,
			bomOf("pkg:npm/left@1.2.0?a=b", "pkg:npm/right@2.0.0"))
		g.attach(t, "dev/folder/app", "", g.digest, "application/vnd.in-toto+json",
			attest(digestOf("another"), bomOf("pkg:npm/wrong@1.0.0")))
		procUntil(t, "the SBOM is read", func() bool { return len(g.origins(t, g.overGRPC, g.Token, g.repo, "v1")) == 3 })
		procUntil(t, "the other copy is inspected", func() bool {
			_, st := g.overGRPC(t, g.Token, &findingspb.ListPackagesRequest{RepoUid: theirs, Reference: "v1"})
			return st == nil
		})
		procUntil(t, "the matches are known", func() bool { return len(g.found(t, g.overGRPC, g.full["org"])) == 1 })
		for protocol, call := range g.protocols() {
			t.Run(protocol, func(t *testing.T) {
				g.showsOrigins(t, call, attached)
				g.keepsClaimsHere(t, call, theirs)
			})
		}
		g.oci(t, g.RegistryToken, http.MethodDelete, "/v2/dev/folder/app/manifests/"+attached, "")
		if found := g.found(t, g.overGRPC, g.full["org"]); len(found) > 0 {
			t.Errorf("findings after the SBOM was deleted: %v", found)
		}
		procUntil(t, "the image is no longer affected", func() bool {
			return must[*findingspb.ListAffectedImagesResponse](t, g.overGRPC, g.Token, &findingspb.ListAffectedImagesRequest{
				AdvisoryId: "CVE-7",
			}).GetTotalCount() == 0
		})
	})
}

// showsOrigins checks that the API shows which packages come from an SBOM and which from the files of the image.
func (g *gallery) showsOrigins(t *testing.T, call caller, attached string) {
	t.Helper()
	if diff := cmp.Diff(map[string]string{"libssl3": "index", "left": "index,sbom", "right": "sbom"},
		g.origins(t, call, g.full["org"], g.repo, "v1")); diff != "" {
		t.Error(diff)
	}
	m := must[*findingspb.ListFindingsResponse](t, call, g.full["org"], &findingspb.ListFindingsRequest{
		RepoUid: g.repo, Reference: "v1",
	})
	i := m.GetInspection()
	c := i.GetCoverage()
	if c.GetPackages() != 3 || c.GetSbomOnly() != 1 || c.GetIndexOnly() != 1 || len(i.GetSboms()) != 1 {
		t.Fatalf("inspection: %v", i)
	}
	s := i.GetSboms()[0]
	if s.GetFormat() != "CycloneDX" || s.GetTool() != "made-1" || s.GetPackages() != 2 || len(s.GetWarnings()) != 0 {
		t.Errorf("SBOM: %v", s)
	}
	f := m.GetFindings()[0]
	o := f.GetOrigins()[0]
	if f.GetOrigin() != "sbom" || o.GetKind() != "sbom" || o.GetManifestDigest() != attached ||
		o.GetAttachedBy() != string(g.Owner) || o.GetAttachTime() == nil {
		t.Errorf("origin %q: %v", f.GetOrigin(), o)
	}
	// The advisory belongs to the organization, so this caller must not see it.
	_, st := call(t, g.full["folder"], &findingspb.ListAffectedImagesRequest{AdvisoryId: "CVE-7"})
	if st.Code() != codes.NotFound {
		t.Errorf("caller with rights on only the folder gets %v", st)
	}
	images := must[*findingspb.ListAffectedImagesResponse](t, call, g.full["org"], &findingspb.ListAffectedImagesRequest{
		AdvisoryId: "CVE-7",
	})
	if images.GetTotalCount() != 1 || images.GetImages()[0].GetPlatform() != "linux/amd64" ||
		images.GetImages()[0].GetOrigin() != "sbom" {
		t.Errorf("affected images: %v", images)
	}
	left := must[*findingspb.SearchPackagesResponse](t, call, g.full["org"], &findingspb.SearchPackagesRequest{
		Purl: "pkg:npm/left",
	})
	if left.GetTotalCount() != 1 || left.GetImages()[0].GetOrigin() != "index" {
		t.Errorf("images with a package that both origins list: %v", left)
	}
}

// keepsClaimsHere checks that the contents of an attached SBOM are hidden from another organization that has the same
// image, from a caller without a role, and from a narrowed token.
func (g *gallery) keepsClaimsHere(t *testing.T, call caller, theirs string) {
	t.Helper()
	diff := cmp.Diff(map[string]string{"libssl3": "index", "left": "index"},
		g.origins(t, call, g.full["other"], theirs, "v1"))
	if diff != "" {
		t.Error(diff)
	}
	i := must[*findingspb.Inspection](t, call, g.full["other"], &findingspb.GetInspectionRequest{
		RepoUid: theirs, Reference: "v1",
	})
	if len(i.GetSboms()) > 0 || i.GetCoverage().GetPackages() != 2 || i.GetCoverage().GetIndexOnly() != 0 {
		t.Errorf("another organization gets the inspection %v", i)
	}
	for purl, want := range map[string]int64{"pkg:npm/right": 0, "pkg:npm/left": 1} {
		m := must[*findingspb.SearchPackagesResponse](t, call, g.full["other"], &findingspb.SearchPackagesRequest{Purl: purl})
		if m.GetTotalCount() != want {
			t.Errorf("another organization finds %d images with %s", m.GetTotalCount(), purl)
		}
	}
	m := must[*findingspb.ListAffectedImagesResponse](t, call, g.full["other"], &findingspb.ListAffectedImagesRequest{
		AdvisoryId: "CVE-7",
	})
	if m.GetTotalCount() != 0 {
		t.Errorf("affected images for another organization: %v", m)
	}
	g.hidesFindings(t, call)
}

// TestSBOMOfUnknown attaches an SBOM to an image that cannot be inspected. The API must return the packages in the
// SBOM, and still say that the image could not be read.
func TestSBOMOfUnknown(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	g.publish(t, g.org, osvOf("GHSA-7", "CVE-7", "npm", "right", "3.0.0"))
	broken := g.pushImage(t, "dev/folder/app", "broken", "amd64", bookworm(t)[:60])
	reason := g.await(t, "broken", findingspb.Inspection_STATE_NOT_UNDERSTOOD).GetReason()
	g.attach(t, "dev/folder/app", strings.Replace(broken, ":", "-", 1)+".sbom",
		"", bomType, bomOf("pkg:npm/right@2.0.0", "pkg:npm/%ff", "x"))
	procUntil(t, "the SBOM is read", func() bool {
		_, st := g.overGRPC(t, g.Token, &findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "broken"})
		return st == nil
	})
	procUntil(t, "the matches are known", func() bool {
		m := must[*findingspb.ListFindingsResponse](t, g.overGRPC, g.Token, &findingspb.ListFindingsRequest{
			RepoUid: g.repo, Reference: "broken",
		})
		i := m.GetInspection()
		if i.GetState() != findingspb.Inspection_STATE_NOT_UNDERSTOOD || i.GetReason() != reason || len(i.GetSboms()) != 1 ||
			len(i.GetSboms()[0].GetWarnings()) != 1 || i.GetCoverage().GetSbomOnly() != 1 {
			t.Fatalf("inspection: %v", i)
		}
		return len(m.GetFindings()) == 1 && m.GetFindings()[0].GetOrigin() == "sbom"
	})
	images := must[*findingspb.ListAffectedImagesResponse](t, g.overGRPC, g.Token, &findingspb.ListAffectedImagesRequest{
		AdvisoryId: "CVE-7",
	})
	if images.GetTotalCount() != 1 || images.GetImages()[0].GetDigest() != broken {
		t.Errorf("affected images: %v", images)
	}
}

// TestApiV1FromFindings: if an image has no attached report, then version 1 of the API returns the findings in the
// form of a report. If there is a report, or if there are no advisories, the answers do not change.
func TestApiV1FromFindings(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	report := "/registry/v1/repos/" + g.repo + "/digests/" + g.digest + "/vulnreport"
	counts := "/registry/v1/vuln_reports/counts?repo=dev/folder/app&tag=v1"
	reports := "/registry/v1/vuln_reports?digest=" + g.digest
	if r := g.send(t, g.Token, "GET", report, ""); r.status != http.StatusNotFound {
		t.Errorf("without advisories: %d %s", r.status, r.body)
	}
	g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
	procUntil(t, "the matches are known", func() bool { return len(g.found(t, g.overGRPC, g.Token)) == 1 })
	type finding struct {
		Scanner              struct{ Name string }
		RawVulnReport        string
		VulnerabilityMatches []struct {
			Vulnerability struct{ ID, DisplayID, Severity string }
			Fix           struct{ Versions []string }
			Pkg           struct{ Name string }
		}
	}
	var got finding
	g.fetch(t, report, &got)
	if len(got.VulnerabilityMatches) != 1 || got.Scanner.Name != "holdfast" || got.RawVulnReport != "" {
		t.Fatalf("report: %+v", got)
	}
	if m := got.VulnerabilityMatches[0]; m.Vulnerability.ID != "CVE-1" || m.Vulnerability.Severity != "CRITICAL" ||
		!slices.Equal(m.Fix.Versions, []string{"3.0.2-1"}) || m.Pkg.Name != "libssl3" {
		t.Errorf("match: %+v", m)
	}
	var tallies struct {
		Items []struct{ CritCveIds []string }
	}
	g.fetch(t, counts, &tallies)
	if len(tallies.Items) != 1 || !slices.Equal(tallies.Items[0].CritCveIds, []string{"CVE-1"}) {
		t.Errorf("counts: %+v", tallies)
	}
	var list struct {
		Items []struct{ Vulnerabilities []struct{ ID string } }
	}
	g.fetch(t, reports, &list)
	if len(list.Items) != 1 || list.Items[0].Vulnerabilities[0].ID != "CVE-1" {
		t.Errorf("reports: %+v", list)
	}
	r := g.send(t, g.Token, "GET", "/registry/v1/vuln_reports/raw?digest="+g.digest, "")
	if r.status != http.StatusNotFound {
		t.Errorf("raw report: %d %s", r.status, r.body)
	}
	g.hidesV1Reports(t, report, counts, reports)
	g.attach(t, "dev/folder/app", "", g.digest, "application/json", grypeOf("CVE-9", "Low", "2026-01-01T00:00:00Z"))
	g.fetch(t, report, &got)
	g.fetch(t, counts, &tallies)
	g.fetch(t, reports, &list)
	if got.Scanner.Name != "grype" || got.RawVulnReport == "" ||
		len(tallies.Items) != 1 || len(tallies.Items[0].CritCveIds) > 0 ||
		list.Items[0].Vulnerabilities[0].ID != "CVE-9" {
		t.Errorf("with a report: %+v, %+v, %+v", got, tallies, list)
	}
}

// hidesV1Reports checks that callers who may not see the findings cannot get the reports.
func (g *gallery) hidesV1Reports(t *testing.T, paths ...string) {
	t.Helper()
	caps := resource.NewCapabilities(resource.RepoList, resource.ImageReportsList, resource.ReportsList)
	for who, bearer := range map[string]string{
		"a stranger":             "",
		"another organization":   g.full["other"],
		"who sees no advisories": g.mint(t, g.Owner, token.Claims{Caps: &caps}),
		"who may only list groups": g.mint(t, g.Owner, token.Claims{
			Caps: new(resource.NewCapabilities(resource.GroupsList)),
		}),
	} {
		for _, path := range paths {
			if r := g.send(t, bearer, "GET", path, ""); strings.Contains(r.body, "CVE-1") {
				t.Errorf("%s: %s: %s", who, path, r.body)
			}
		}
	}
}
