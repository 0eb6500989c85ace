package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// layerOf returns a compressed layer with these files. The keys are paths. Files in usr/bin are executable.
func layerOf(t *testing.T, files map[string]string) string {
	t.Helper()
	layer, err := packLayer(files)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func packLayer(files map[string]string) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: path, Mode: 0o644, Size: int64(len(files[path])), Typeflag: tar.TypeReg}
		if strings.HasPrefix(path, "usr/bin/") {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return "", err
		}
		if _, err := w.Write([]byte(files[path])); err != nil {
			return "", err
		}
	}
	err := errors.Join(w.Close(), z.Close())
	return b.String(), err
}

// bookworm returns a layer with the files of Debian 12, one Debian package, and one npm package.
func bookworm(t *testing.T) string {
	return layerOf(t, map[string]string{
		"etc/os-release": "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nPRETTY_NAME=\"Debian GNU/Linux " +
			"12 (bookworm)\"\n",
		"var/lib/dpkg/status": "Package: libssl3\nStatus: install ok installed\nSource: " +
			"openssl\nVersion: 3.0.1-1\nArchitecture: amd64\n\n",
		"app/node_modules/left/package.json": `{"name":"left","version":"1.2.0"}`,
	})
}

// osvOf returns an advisory as an OSV record.
func osvOf(id, alias, ecosystem, name, fixed string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"modified":"2026-01-02T03:04:05Z","aliases":[%q],"summary":"bad",`+
		`"severity":[{"type":"CVSS_V3","score":"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}],`+
		`"affected":[{"package":{"ecosystem":%q,"name":%q},"ranges":[{"type":"ECOSYSTEM",`+
		`"events":[{"introduced":"0"},{"fixed":%q}]}]}]}`,
		id, alias, ecosystem, name, fixed)
}

// publish imports an OSV record into a group.
func (w *world) publish(t *testing.T, group string, record []byte) {
	t.Helper()
	if _, st := w.takeIn(t, w.Token, group, doc("a.json", len(record)), record); st != nil {
		t.Fatal(st)
	}
}

// A gallery is a hierarchy whose server inspects images. It has one image in the folder.
type gallery struct {
	*hierarchy
	repo, digest string
}

func newGallery(t *testing.T, url string) *gallery {
	t.Helper()
	h := newHierarchy(t, serve(t, url, server.Config{InspectWorkers: 1}, nil))
	g := &gallery{hierarchy: h, repo: h.repo(t, h.folder, "app")}
	g.digest = h.pushImage(t, "dev/folder/app", "v1", "amd64", bookworm(t))
	g.await(t, "v1", findingspb.Inspection_STATE_INDEXED)
	return g
}

// await waits until the inspection of the image with this tag has the given state.
func (g *gallery) await(t *testing.T, tag string, want findingspb.Inspection_State) *findingspb.Inspection {
	t.Helper()
	var got *findingspb.Inspection
	procUntil(t, tag+" is "+want.String(), func() bool {
		got = must[*findingspb.Inspection](t, g.overGRPC, g.Token, &findingspb.GetInspectionRequest{
			RepoUid: g.repo, Reference: tag,
		})
		return got.GetState() == want && got.GetCoverage().GetWaiting() == 0
	})
	return got
}

// found returns the findings of the image as a caller sees them.
func (g *gallery) found(t *testing.T, call caller, bearer string) []string {
	t.Helper()
	m := must[*findingspb.ListFindingsResponse](t, call, bearer, &findingspb.ListFindingsRequest{
		RepoUid: g.repo, Reference: "v1",
	})
	var lines []string
	for _, f := range m.GetFindings() {
		lines = append(lines, strings.Join([]string{
			f.GetAdvisoryId(), strings.Join(f.GetAliases(), ","), f.GetPackage().GetPurl(),
			strings.Join(f.GetFixedVersions(), ","), f.GetSeverity().String(),
		}, " "))
	}
	if int(m.GetTotalCount()) != len(lines) {
		t.Errorf("total %d, but %d findings", m.GetTotalCount(), len(lines))
	}
	return lines
}

// TestImageFindings pushes an image and imports advisories. Over both protocols, each caller must see exactly the
// findings whose advisory and image the caller may see.
func TestImageFindings(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
		g.publish(t, g.org, osvOf("DSA-2", "CVE-2", "Debian:11", "openssl", "9.0"))
		g.publish(t, g.folder, osvOf("GHSA-1", "CVE-3", "npm", "left", "1.3.0"))
		g.publish(t, g.other, osvOf("X-1", "CVE-4", "npm", "left", "2.0.0"))
		ssl := "CVE-1  pkg:deb/debian/libssl3@3.0.1-1?arch=amd64&distro=debian-12 3.0.2-1 SEVERITY_CRITICAL"
		left := "CVE-3 GHSA-1 pkg:npm/left@1.2.0 1.3.0 SEVERITY_CRITICAL"
		procUntil(t, "the matches are known", func() bool { return len(g.found(t, g.overGRPC, g.full["org"])) == 2 })
		for protocol, call := range g.protocols() {
			t.Run(protocol, func(t *testing.T) {
				if diff := cmp.Diff([]string{left, ssl}, g.found(t, call, g.full["org"])); diff != "" {
					t.Errorf("the owner: %s", diff)
				}
				if diff := cmp.Diff([]string{left}, g.found(t, call, g.full["folder"])); diff != "" {
					t.Errorf("caller with rights on only the folder: %s", diff)
				}
				g.hidesFindings(t, call)
				g.countsImages(t, call)
			})
		}
		g.followsChanges(t)
	})
}

// hidesFindings checks that callers who may not see findings cannot list them.
func (g *gallery) hidesFindings(t *testing.T, call caller) {
	t.Helper()
	caps := resource.NewCapabilities(resource.GroupsList)
	narrow := g.mint(t, g.Owner, token.Claims{Caps: &caps})
	for name, in := range map[string]proto.Message{
		"inspection": &findingspb.GetInspectionRequest{RepoUid: g.repo, Reference: "v1"},
		"packages":   &findingspb.ListPackagesRequest{RepoUid: g.repo, Reference: "v1"},
		"findings":   &findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "v1"},
	} {
		for who, bearer := range map[string]string{
			"another organization": g.full["other"], "a sibling": g.full["sibling"], "a narrowed token": narrow,
		} {
			if _, st := call(t, bearer, in); st.Code() != codes.PermissionDenied {
				t.Errorf("%s as %s: %v", name, who, st)
			}
		}
		if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
			t.Errorf("%s without a token: %v", name, st)
		}
	}
	// A UID that consists of the caller's own group and the last segment of the repo finds nothing.
	stolen := g.other + g.repo[strings.LastIndexByte(g.repo, '/'):]
	_, st := call(t, g.full["other"], &findingspb.ListFindingsRequest{RepoUid: stolen, Reference: g.digest})
	if st.Code() != codes.NotFound {
		t.Errorf("a foreign image below the caller's own group: %v", st)
	}
	for place, uid := range map[string]string{"repo": g.repo, "folder": g.folder} {
		stolen := g.other + uid[strings.LastIndexByte(uid, '/'):]
		m := must[*findingspb.SearchPackagesResponse](t, call, g.full["other"],
			&findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", GroupUid: stolen})
		if m.GetTotalCount() != 0 || len(m.GetImages()) != 0 {
			t.Errorf("a foreign %s below the caller's own group has %d images", place, m.GetTotalCount())
		}
	}
}

// countsImages checks the list of images that an advisory affects, and the list of images that contain a package.
func (g *gallery) countsImages(t *testing.T, call caller) {
	t.Helper()
	for _, tt := range []struct {
		who, bearer, id string
		want            int
	}{
		{"the owner", g.full["org"], "CVE-1", 1}, {"the owner, by the id", g.full["org"], "DSA-1", 1},
		{"the owner, of another release", g.full["org"], "CVE-2", 0}, {"who sees the folder", g.full["folder"], "CVE-3", 1},
		{"another organization, of its own advisory", g.full["other"], "CVE-4", 0},
	} {
		m := must[*findingspb.ListAffectedImagesResponse](t, call, tt.bearer, &findingspb.ListAffectedImagesRequest{
			AdvisoryId: tt.id,
		})
		if int(m.GetTotalCount()) != tt.want || len(m.GetImages()) != tt.want {
			t.Errorf("%s: total %d, and %d images", tt.who, m.GetTotalCount(), len(m.GetImages()))
		}
		for _, i := range m.GetImages() {
			if i.GetRepo() != "dev/folder/app" || i.GetDigest() != g.digest || !slices.Equal(i.GetTags(), []string{"v1"}) {
				t.Errorf("%s: %v", tt.who, i)
			}
		}
	}
	for _, tt := range []struct{ who, bearer, id string }{
		{"who sees the folder, of an advisory above", g.full["folder"], "CVE-1"},
		{"another organization", g.full["other"], "CVE-1"}, {"nobody's", g.full["org"], "CVE-9"},
	} {
		_, st := call(t, tt.bearer, &findingspb.ListAffectedImagesRequest{AdvisoryId: tt.id})
		if st.Code() != codes.NotFound {
			t.Errorf("%s: %v", tt.who, st)
		}
	}
	for _, tt := range []struct {
		who, bearer, purl, in, group string
		want                         int
	}{
		{"the owner", g.full["org"], "pkg:npm/left", "", "", 1},
		{"the owner, by version", g.full["org"], "pkg:npm/left@1.2.0", "", "", 1},
		{"of another version", g.full["org"], "pkg:npm/left@1.2.1", "", "", 0},
		{"in a range", g.full["org"], "pkg:npm/left", ">=1.0.0 <1.3.0", "", 1},
		{"outside of a range", g.full["org"], "pkg:npm/left", "<1.2.0 || >1.2.0", "", 0},
		{"by the source", g.full["org"], "pkg:deb/debian/openssl", "", "", 1},
		{"in the folder", g.full["org"], "pkg:npm/left", "", g.folder, 1},
		{"in the repo", g.full["org"], "pkg:npm/left", "", g.repo, 1},
		{"beside the folder", g.full["org"], "pkg:npm/left", "", g.sibling, 0},
		{"as another organization", g.full["other"], "pkg:npm/left", "", "", 0},
		{"as another organization in the folder", g.full["other"], "pkg:npm/left", "", g.folder, 0},
	} {
		m := must[*findingspb.SearchPackagesResponse](t, call, tt.bearer,
			&findingspb.SearchPackagesRequest{Purl: tt.purl, Range: tt.in, GroupUid: tt.group})
		if int(m.GetTotalCount()) != tt.want || len(m.GetImages()) != tt.want {
			t.Errorf("%s: total %d, and %d images", tt.who, m.GetTotalCount(), len(m.GetImages()))
		}
	}
}

// followsChanges checks that a changed advisory and a deleted image take effect without another inspection of the
// image.
func (g *gallery) followsChanges(t *testing.T) {
	t.Helper()
	inspected := g.await(t, "v1", findingspb.Inspection_STATE_INDEXED).GetUpdateTime().AsTime()
	images := func(id string) int {
		return int(must[*findingspb.ListAffectedImagesResponse](t, g.overGRPC, g.Token, &findingspb.ListAffectedImagesRequest{
			AdvisoryId: id,
		}).GetTotalCount())
	}
	fixedBefore := bytes.Replace(osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.0"),
		[]byte("2026-01-02"), []byte("2026-01-03"), 1)
	g.publish(t, g.org, fixedBefore)
	procUntil(t, "the image is no longer affected", func() bool { return images("CVE-1") == 0 })
	updated := g.await(t, "v1", findingspb.Inspection_STATE_INDEXED).GetUpdateTime().AsTime()
	if updated.After(inspected) {
		t.Errorf("the image was inspected again, at %s", updated.Format(time.TimeOnly))
	}
	if images("CVE-3") != 1 {
		t.Fatal("the image is not affected by CVE-3")
	}
	g.oci(t, g.RegistryToken, "DELETE", "/v2/dev/folder/app/manifests/"+g.digest, "")
	if n := images("CVE-3"); n != 0 {
		t.Errorf("%d images are affected after the only one was deleted", n)
	}
}

// TestUnknownVulnerability checks that a question about an unknown vulnerability is not answered with zeros.
func TestUnknownVulnerability(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		g.publish(t, g.org, osvOf("GHSA-2345-6789-cfgh", "CVE-2026-1000", "npm", "left", "1.3.0"))
		g.publish(t, g.other, osvOf("GHSA-2345-6789-cfgj", "CVE-2026-1003", "npm", "left", "1.3.0"))
		g.publish(t, g.org, []byte(`{"id": "EMPTY-1", "modified": "2026-01-02T03:04:05Z", "summary": "names no package"}`))
		gone := osvOf("GONE-1", "CVE-2026-7777", "npm", "left", "1.3.0")
		g.publish(t, g.org, bytes.Replace(gone, []byte(`{`), []byte(`{"withdrawn":"2026-01-02T00:00:00Z",`), 1))
		g.publish(t, g.org, catalogOf("CVE-2026-5555"))
		for protocol, call := range g.protocols() {
			for _, tt := range []struct {
				id   string
				code codes.Code
				text string
			}{
				{"CVE-1900-99999", codes.NotFound, "Not found: advisory CVE-1900-99999"},
				{"CVE-2026-1001", codes.NotFound, "Not found: advisory CVE-2026-1001; similar: CVE-2026-1000"},
				{"CVE-2026-100", codes.NotFound, "Not found: advisory CVE-2026-100; similar: CVE-2026-1000"},
				{"CVE-2026-0100", codes.NotFound, "Not found: advisory CVE-2026-0100; similar: CVE-2026-1000"},
				{"cve-2026-1000", codes.NotFound, "Not found: advisory cve-2026-1000; similar: CVE-2026-1000"},
				{"ghsa-2345-6789-CFGH", codes.NotFound, "Not found: advisory ghsa-2345-6789-CFGH; similar: GHSA-2345-6789-cfgh"},
				{"CVE-2026-5555", codes.FailedPrecondition, "is in a list of exploited vulnerabilities, but no advisory"},
				{"EMPTY-1", codes.FailedPrecondition, "no advisory says which packages EMPTY-1 affects"},
				{"CVE-2026-7777", codes.FailedPrecondition, "the advisory CVE-2026-7777 is withdrawn"},
			} {
				for _, in := range []proto.Message{
					&findingspb.GetBlastRequest{AdvisoryId: tt.id}, &findingspb.ListAffectedImagesRequest{AdvisoryId: tt.id},
					&findingspb.ListBlastStageRequest{AdvisoryId: tt.id, Stage: findingspb.BlastStage_NAME_IMAGES},
				} {
					_, st := call(t, g.full["org"], in)
					if st.Code() != tt.code || !strings.Contains(st.Message(), tt.text) ||
						tt.code == codes.NotFound && !strings.HasSuffix(st.Message(), tt.text) {
						t.Errorf("%T of %s over %s: %v", in, tt.id, protocol, st)
					}
				}
			}
		}
	})
}

// TestFindingsPages checks that further pages can be read with only a page token.
func TestFindingsPages(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	g.pushImage(t, "dev/folder/app", "v2", "arm64", bookworm(t))
	g.await(t, "v2", findingspb.Inspection_STATE_INDEXED)
	g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
	g.publish(t, g.org, osvOf("DSA-2", "CVE-2", "Debian:12", "openssl", "3.0.3-1"))
	procUntil(t, "the matches are known", func() bool { return len(g.found(t, g.overGRPC, g.Token)) == 2 })
	rule := g.ruled(t, g.org, &findingspb.Rule{}).GetUid()
	g.pulls(t, g.Owner, "v1")
	g.pulls(t, g.Owner, "v2")
	procUntil(t, "the pulls are recorded", func() bool {
		return must[*findingspb.CheckRuleResponse](t, g.overGRPC, g.Token, &findingspb.CheckRuleRequest{
			Uid: rule,
		}).GetTotalCount() == 2
	})
	for _, in := range []proto.Message{
		&findingspb.CheckRuleRequest{Uid: rule, OrderBy: "time"},
		&findingspb.ListPackagesRequest{RepoUid: g.repo, Reference: "v1", OrderBy: "name desc"},
		&findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "v1", Fixable: true, Package: "openssl"},
		&findingspb.ListAffectedImagesRequest{AdvisoryId: "CVE-1", GroupUid: g.folder},
		&findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", Range: "<2.0.0", OrderBy: "time"},
		&findingspb.CompareImagesRequest{FromRepoUid: g.repo, FromReference: "v1", ToReference: "v2", OrderBy: "kind desc",
			Kinds: []findingspb.ImageChange_Kind{findingspb.ImageChange_KIND_FINDING_REMAINING}},
		&findingspb.ListGroupFindingsRequest{GroupUid: g.folder, Fixable: true, Package: "openssl"},
		&findingspb.GetSummaryRequest{GroupUid: g.repo, Days: 7, OrderBy: "open desc"},
		&findingspb.ListFindingTotalsRequest{GroupUid: g.folder, By: findingspb.ListFindingTotalsRequest_BY_VULNERABILITY},
	} {
		t.Run(string(methodOf(in).Name()), func(t *testing.T) { g.walksAlone(t, methodOf(in), in) })
	}
}

// TestImageNotUnderstood: if an image cannot be read, then the answer is an error with the reason, and not an empty
// list of findings.
func TestImageNotUnderstood(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	g.pushImage(t, "dev/folder/app", "broken", "amd64", bookworm(t)[:60])
	got := g.await(t, "broken", findingspb.Inspection_STATE_NOT_UNDERSTOOD)
	if got.GetReason() == "" {
		t.Error("the inspection has no reason")
	}
	for _, in := range []proto.Message{
		&findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "broken"},
		&findingspb.ListPackagesRequest{RepoUid: g.repo, Reference: "broken"},
	} {
		_, st := g.overGRPC(t, g.Token, in)
		if st.Code() != codes.FailedPrecondition || !strings.Contains(st.Message(), got.GetReason()) {
			t.Errorf("%T: %v", in, st)
		}
	}
	packages := must[*findingspb.ListPackagesResponse](t, g.overGRPC, g.Token, &findingspb.ListPackagesRequest{
		RepoUid: g.repo, Reference: "v1",
	})
	var names []string
	for _, p := range packages.GetPackages() {
		names = append(names, p.GetPackage().GetEcosystem()+" "+p.GetPackage().GetName()+" "+p.GetPackage().GetVersion())
	}
	diff := cmp.Diff([]string{"Debian:12 libssl3 3.0.1-1", "npm left 1.2.0"}, names, cmpopts.SortSlices(strings.Compare))
	if diff != "" {
		t.Error(diff)
	}
}

// findingExamples returns example calls for the methods about the contents of an image.
func findingExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	gallery := gallery{hierarchy: &hierarchy{world: w}, repo: w.repo(t, x.org, "gallery")}
	digest := w.pushImage(t, "dev/gallery", "v1", "amd64", bookworm(t))
	w.publish(t, x.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
	gallery.await(t, "v1", findingspb.Inspection_STATE_INDEXED)
	image := func(query string) []example {
		return []example{{uid: gallery.repo, digest: digest}, {uid: gallery.repo, digest: digest, query: query},
			{uid: gallery.repo, digest: digestOf("none"), fails: true}, {uid: "nonsense", digest: digest, fails: true}}
	}
	return map[string][]example{
		"FindingsService_GetInspection": image("architecture=amd64"),
		"FindingsService_ListPackages":  image("page_size=1&order_by=name%20desc"),
		"FindingsService_ListFindings":  image("severities=SEVERITY_CRITICAL&fixable=true&package=openssl&skip=0"),
		"FindingsService_ListAffectedImages": {{uid: "CVE-1"}, {uid: "CVE-1", query: "group_uid=" + x.org + "&page_size=1"},
			{uid: "CVE-1", query: "group_uid=x", fails: true}},
		"GroupFindingsService_ListGroupFindings_1": {{query: "fixable=true"}, {query: "order_by=x", fails: true}},
		"GroupFindingsService_GetSummary_1":        {{query: "days=2"}, {query: "days=91", fails: true}},
		"GroupFindingsService_ListGroupFindings": {
			{uid: x.org}, {uid: gallery.repo, query: "severities=SEVERITY_CRITICAL&fixable=true&page_size=1"},
			{uid: x.org, query: "kev=true&package=openssl&order_by=urgency"}, {uid: "x", fails: true}},
		"GroupFindingsService_GetSummary": {
			{uid: x.org}, {uid: gallery.repo, query: "days=7&order_by=open%20desc&page_size=1"},
			{uid: x.org, query: "days=91", fails: true}},
		"GroupFindingsService_ListFindingTotals": {
			{uid: x.org, query: "by=BY_PACKAGE"}, {uid: gallery.repo, query: "by=BY_IMAGE&fixable=true&page_size=1"},
			{uid: x.org, query: "by=BY_VULNERABILITY&severities=SEVERITY_CRITICAL"}, {uid: x.org, fails: true}},
		"GroupFindingsService_ListFindingTotals_1": {{query: "by=BY_PACKAGE"}, {query: "by=BY_X", fails: true}},
		"GroupFindingsService_GetTrend": {
			{uid: x.org}, {uid: x.org, query: "days=730"}, {uid: x.org, query: "days=731", fails: true}},
		"ReportsService_GetReport":               {{uid: x.org}, {uid: "x", fails: true}},
		"ReportsService_ListReportSubscriptions": {{}, {as: "no token", fails: true}},
		"ReportsService_CreateReportSubscription": {
			{uid: x.org, body: `{"validateOnly":true}`, fails: true}, // the server has no mail server
		},
		"ReportsService_DeleteReportSubscription": {{uid: x.org, fails: true}},
		"FindingsService_SearchPackages": {
			{query: "purl=pkg:npm/left&range=%3C2.0.0&group_uid=" + x.org}, {query: "purl=left", fails: true},
		},
		"InventoryService_PushInventory": {
			{
				uid:  x.org,
				body: `{"place":"prod","entries":[{"digest":"` + digest + `","copies":2},{"image":"app:1"}],"ttl":"3600s"}`,
			},
			{uid: x.org, body: `{"place":"","entries":[]}`, fails: true}},
		"InventoryService_ListInventory": {
			{}, {query: "group_uid=" + x.org + "&place=prod&page_size=1"}, {query: "digest=x", fails: true},
		},
		"InventoryService_ListInventoryPlaces": {{}, {query: "order_by=name%20desc"}, {query: "group_uid=x", fails: true}},
		"InventoryService_DeleteInventory":     {{uid: x.org, query: "place=none", fails: true}},
		"BlastService_GetBlast": {
			{query: "advisory_id=CVE-1&days=7"}, {query: "purl=pkg:npm/left&range=%3C2.0.0"}, {fails: true},
		},
		"BlastService_ListBlastStage": {
			{query: "advisory_id=CVE-1&stage=NAME_OWNERS"}, {query: "advisory_id=CVE-1", fails: true},
		},
		"ComparisonService_CompareImages": {
			{query: "from_repo_uid=" + gallery.repo + "&from_reference=v1&to_reference=" + digest},
			{query: "from_repo_uid=" + gallery.repo + "&from_reference=v1&to_reference=v1&kinds=KIND_FINDING_NEW&page_size=1"},
			{query: "from_repo_uid=" + gallery.repo + "&from_reference=v1&to_reference=none", fails: true}},
	}
}

// TestApiBadFindingsInput sends invalid values. Each must be refused with an error that names the field.
func TestApiBadFindingsInput(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	long := strings.Repeat("x", 5000)
	g.refuses(t, map[string]badRequest{
		"no repo":       {"repo_uid", &findingspb.GetInspectionRequest{Reference: "v1"}},
		"no uid":        {"repo_uid", &findingspb.ListFindingsRequest{RepoUid: "x", Reference: "v1"}},
		"no reference":  {"reference", &findingspb.ListPackagesRequest{RepoUid: g.repo}},
		"bad reference": {"reference", &findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "a b"}},
		"bad severity": {
			"severities",
			&findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "v1", Severities: []findingspb.Severity{9}},
		},
		"long package":      {"package", &findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "v1", Package: long}},
		"order of findings": {"order_by", &findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "v1", OrderBy: "name"}},
		"page size":         {"page_size", &findingspb.ListPackagesRequest{RepoUid: g.repo, Reference: "v1", PageSize: -1}},
		"skip":              {"skip", &findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", Skip: -1}},
		"token":             {"page_token", &findingspb.ListAffectedImagesRequest{AdvisoryId: "CVE-1", PageToken: "x"}},
		"long advisory":     {"advisory_id", &findingspb.ListAffectedImagesRequest{AdvisoryId: long}},
		"group":             {"group_uid", &findingspb.ListAffectedImagesRequest{AdvisoryId: "CVE-1", GroupUid: "x"}},
		"no purl":           {"purl", &findingspb.SearchPackagesRequest{}},
		"bad purl":          {"purl", &findingspb.SearchPackagesRequest{Purl: "lodash"}},
		"bad range":         {"range", &findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", Range: "<<1"}},
		"half a range":      {"range", &findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", Range: "<1.0.0 ||"}},
		"long range":        {"range", &findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", Range: long}},
		"range of too much": {
			"range", &findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", Range: strings.Repeat("<1.0.0 ", 30)},
		},
		"group of findings": {"group_uid", &findingspb.ListGroupFindingsRequest{GroupUid: "x"}},
		"group's severity":  {"severities", &findingspb.ListGroupFindingsRequest{Severities: []findingspb.Severity{-1}}},
		"group's state":     {"states", &findingspb.ListGroupFindingsRequest{States: []findingspb.State{9}}},
		"group's closed": {
			"states",
			&findingspb.ListGroupFindingsRequest{
				States: []findingspb.State{findingspb.State_STATE_OPEN, findingspb.State_STATE_CLOSED},
			},
		},
		"group's package": {"package", &findingspb.ListGroupFindingsRequest{Package: long}},
		"group's order":   {"order_by", &findingspb.ListGroupFindingsRequest{OrderBy: "images"}},
		"group's token":   {"page_token", &findingspb.ListGroupFindingsRequest{PageToken: "x"}},
		"group's page":    {"page_size", &findingspb.ListGroupFindingsRequest{PageSize: -1}},
		"group of totals": {"group_uid", &findingspb.ListFindingTotalsRequest{GroupUid: "x", By: 1}},
		"kind of totals":  {"by", &findingspb.ListFindingTotalsRequest{}},
		"unknown totals":  {"by", &findingspb.ListFindingTotalsRequest{By: 9}},
		"severity of totals": {
			"severities", &findingspb.ListFindingTotalsRequest{By: 1, Severities: []findingspb.Severity{9}},
		},
		"order of totals":    {"order_by", &findingspb.ListFindingTotalsRequest{By: 1, OrderBy: "name"}},
		"group of a summary": {"group_uid", &findingspb.GetSummaryRequest{GroupUid: "../x"}},
		"days":               {"days", &findingspb.GetSummaryRequest{Days: 91}},
		"negative days":      {"days", &findingspb.GetSummaryRequest{Days: -1}},
		"order of a summary": {"order_by", &findingspb.GetSummaryRequest{OrderBy: "urgency"}},
		"skip of a summary":  {"skip", &findingspb.GetSummaryRequest{Skip: -1}},
		"group of a package": {"group_uid", &findingspb.SearchPackagesRequest{Purl: "pkg:npm/left", GroupUid: "../x"}},
	})
}
