package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// trixie returns a layer like bookworm, but with the next Debian release: openssl is fixed, left is newer and has a
// new vulnerability, and right was added.
func trixie(t *testing.T) string {
	return layerOf(t, map[string]string{
		"etc/os-release": "ID=debian\nVERSION_ID=\"13\"\nVERSION_CODENAME=trixie\nPRETTY_NAME=\"Debian GNU/Linux 13 " +
			"(trixie)\"\n",
		"var/lib/dpkg/status": "Package: libssl3\nStatus: install ok installed\nSource: " +
			"openssl\nVersion: 3.5.0-1\nArchitecture: amd64\n\n",
		"app/node_modules/left/package.json":  `{"name":"left","version":"1.3.0"}`,
		"app/node_modules/right/package.json": `{"name":"right","version":"0.1.0"}`,
	})
}

// TestCompareImages compares two images, and the current image of a tag with an earlier one, over both protocols.
// Callers who may not see both images must be refused.
func TestCompareImages(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		before := time.Now()
		time.Sleep(2 * time.Millisecond)
		digest := g.pushImage(t, "dev/folder/app", "v1", "amd64", trixie(t)) // the tag v1 now refers to this image
		g.await(t, "v1", findingspb.Inspection_STATE_INDEXED)
		g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
		g.publish(t, g.org, osvOf("GHSA-1", "CVE-3", "npm", "left", "1.9.0"))
		g.publish(t, g.org, osvOf("GHSA-2", "CVE-5", "npm", "right", "1.0.0"))
		byDigest := &findingspb.CompareImagesRequest{FromRepoUid: g.repo, FromReference: g.digest, ToReference: digest}
		byTime := &findingspb.CompareImagesRequest{
			FromRepoUid: g.repo, FromReference: "v1", FromTime: timestamppb.New(before), ToReference: "v1",
		}
		want := []string{
			"KIND_FINDING_NEW CVE-5 right  > 0.1.0", "KIND_FINDING_FIXED CVE-1 libssl3 3.0.1-1 > ",
			"KIND_FINDING_REMAINING CVE-3 left 1.2.0 > 1.3.0", "KIND_PACKAGE_CHANGED  left 1.2.0 > 1.3.0",
			"KIND_PACKAGE_CHANGED  libssl3 3.0.1-1 > 3.5.0-1", "KIND_PACKAGE_ADDED  right  > 0.1.0",
		}
		procUntil(t, "the matches are known", func() bool {
			return must[*findingspb.CompareImagesResponse](t, g.overGRPC, g.Token, byDigest).GetTotalCount() == 6
		})
		for protocol, call := range g.protocols() {
			for name, in := range map[string]*findingspb.CompareImagesRequest{"digests": byDigest, "times": byTime} {
				got := must[*findingspb.CompareImagesResponse](t, call, g.full["org"], in)
				var told []string
				for _, c := range got.GetChanges() {
					told = append(told,
						fmt.Sprint(c.GetKind(), " ", c.GetFinding().GetAdvisoryId(), " ",
							c.GetName(), " ", versionsOf(c.GetFrom()), " > ", versionsOf(c.GetTo())))
				}
				diff := cmp.Diff(want, told)
				if diff != "" || got.GetFrom().GetDigest() != g.digest || got.GetTo().GetDigest() != digest ||
					got.GetTo().GetCoverage().GetPackages() != 3 || got.GetCounts().GetPackagesChanged() != 2 {
					t.Errorf("%s over %s: %s\n%v", name, protocol, diff, got)
				}
			}
			g.refusesComparison(t, call, byDigest)
		}
	})
}

func versionsOf(packages []*findingspb.Package) string {
	var versions []string
	for _, p := range packages {
		versions = append(versions, p.GetVersion())
	}
	return strings.Join(versions, ",")
}

// refusesComparison checks that callers who may see at most one of the images are refused.
func (g *gallery) refusesComparison(t *testing.T, call caller, in *findingspb.CompareImagesRequest) {
	t.Helper()
	needed := []resource.Capability{
		resource.RepoList, resource.SBOMsList, resource.ManifestMetadataList, resource.ImageReportsList,
	}
	bearers := map[string]string{"another organization": g.full["other"], "a sibling": g.full["sibling"]}
	for i := range needed {
		caps := resource.NewCapabilities(slices.Delete(slices.Clone(needed), i, i+1)...)
		bearers["a token without "+needed[i].String()] = g.mint(t, g.Owner, token.Claims{Caps: &caps})
	}
	for who, bearer := range bearers {
		if _, st := call(t, bearer, in); st.Code() != codes.PermissionDenied {
			t.Errorf("%s: %v", who, st)
		}
	}
	if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
		t.Errorf("without a token: %v", st)
	}
	// A caller who may see only one of the two images must learn about neither.
	repo := g.repo
	theirs := proto.Clone(in).(*findingspb.CompareImagesRequest)
	theirs.ToRepoUid = g.other
	if _, st := call(t, g.full["folder"], theirs); st.Code() != codes.PermissionDenied {
		t.Errorf("with a foreign second image: %v", st)
	}
	theirs.FromRepoUid, theirs.ToRepoUid = g.other, repo
	if _, st := call(t, g.full["folder"], theirs); st.Code() != codes.PermissionDenied {
		t.Errorf("with a foreign first image: %v", st)
	}
	caps := resource.NewCapabilities(needed...)
	untagged := g.mint(t, g.Owner, token.Claims{Caps: &caps})
	if _, st := call(t, untagged, in); st != nil {
		t.Errorf("with only the required capabilities: %v", st)
	}
	past := proto.Clone(in).(*findingspb.CompareImagesRequest)
	past.FromReference, past.FromTime = "v1", timestamppb.Now()
	if _, st := call(t, untagged, past); st.Code() != codes.PermissionDenied {
		t.Errorf("past image of a tag, without tag.list: %v", st)
	}
}

// TestApiBadComparisons sends invalid values. Each must be refused with an error that names the field.
func TestApiBadComparisons(t *testing.T) {
	t.Parallel()
	g := newGallery(t, storetest.SQLite(t))
	with := func(change func(*findingspb.CompareImagesRequest)) proto.Message {
		r := &findingspb.CompareImagesRequest{FromRepoUid: g.repo, FromReference: "v1", ToReference: "v1"}
		change(r)
		return r
	}
	g.refuses(t, map[string]badRequest{
		"no repo":         {"from_repo_uid", with(func(r *findingspb.CompareImagesRequest) { r.FromRepoUid = "" })},
		"no first":        {"from_reference", with(func(r *findingspb.CompareImagesRequest) { r.FromReference = "" })},
		"no second":       {"to_reference", with(func(r *findingspb.CompareImagesRequest) { r.ToReference = "" })},
		"bad second repo": {"to_repo_uid", with(func(r *findingspb.CompareImagesRequest) { r.ToRepoUid = "x" })},
		"digest at a time": {"to_time", with(func(r *findingspb.CompareImagesRequest) {
			r.ToReference, r.ToTime = g.digest, timestamppb.Now()
		})},
		"bad tag at time": {"from_reference", with(func(r *findingspb.CompareImagesRequest) {
			r.FromReference, r.FromTime = "a b", timestamppb.Now()
		})},
		"bad kind":  {"kinds", with(func(r *findingspb.CompareImagesRequest) { r.Kinds = []findingspb.ImageChange_Kind{9} })},
		"no kind":   {"kinds", with(func(r *findingspb.CompareImagesRequest) { r.Kinds = []findingspb.ImageChange_Kind{0} })},
		"order":     {"order_by", with(func(r *findingspb.CompareImagesRequest) { r.OrderBy = "name" })},
		"page size": {"page_size", with(func(r *findingspb.CompareImagesRequest) { r.PageSize = -1 })},
		"token":     {"page_token", with(func(r *findingspb.CompareImagesRequest) { r.PageToken = "x" })},
	})
}
