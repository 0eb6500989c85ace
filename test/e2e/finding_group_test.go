package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// foundIn returns the findings in a group that a caller sees, and the number of images that the caller sees there.
func (g *gallery) foundIn(t *testing.T, call caller, bearer, group string) (lines []string, images int) {
	t.Helper()
	m := must[*findingspb.ListGroupFindingsResponse](t, call, bearer, &findingspb.ListGroupFindingsRequest{
		GroupUid: group,
	})
	for _, f := range m.GetFindings() {
		var tags []string
		for _, i := range f.GetImages() {
			tags = append(tags, i.GetRepo()+":"+strings.Join(i.GetTags(), ","))
		}
		slices.Sort(tags)
		lines = append(lines, fmt.Sprint(f.GetAdvisoryId(), " ", f.GetPackage().GetName(), " ", f.GetImageCount(), " ", tags))
	}
	if int(m.GetTotalCount()) != len(lines) {
		t.Errorf("total %d, but %d findings", m.GetTotalCount(), len(lines))
	}
	return lines, int(m.GetCoverage().GetImages())
}

// TestGroupFindings lists the findings in groups and repos as every caller, over both protocols, and checks what each
// caller sees.
func TestGroupFindings(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		g.repo2(t)
		g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "openssl", "3.0.2-1"))
		g.publish(t, g.folder, osvOf("GHSA-1", "CVE-3", "npm", "left", "1.3.0"))
		g.publish(t, g.other, osvOf("X-1", "CVE-4", "npm", "left", "2.0.0"))
		procUntil(t, "the matches are known", func() bool { return len(g.found(t, g.overGRPC, g.full["org"])) == 2 })
		both := " 2 [dev/folder/app:v1 dev/sibling/copy:v1]"
		for protocol, call := range g.protocols() {
			t.Run(protocol, func(t *testing.T) {
				for _, tt := range []struct {
					who, group string
					want       []string
					images     int
				}{
					{"org", "", []string{"CVE-3 left" + both, "CVE-1 libssl3" + both}, 2},
					{"org", g.org, []string{"CVE-3 left" + both, "CVE-1 libssl3" + both}, 2},
					{"org", g.repo, []string{"CVE-3 left 1 [dev/folder/app:v1]", "CVE-1 libssl3 1 [dev/folder/app:v1]"}, 1},
					{"folder", "", []string{"CVE-3 left 1 [dev/folder/app:v1]"}, 1},
					{"folder", g.org, []string{"CVE-3 left 1 [dev/folder/app:v1]"}, 1},
					{"sibling", g.org, nil, 1}, {"sibling", g.repo, nil, 0},
					{"other", "", nil, 0}, {"other", g.org, nil, 0}, {"other", g.repo, nil, 0},
					{"other", g.other + g.repo[strings.LastIndexByte(g.repo, '/'):], nil, 0},
					{"other", g.other + g.folder[strings.LastIndexByte(g.folder, '/'):], nil, 0},
				} {
					got, images := g.foundIn(t, call, g.full[tt.who], tt.group)
					if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" || images != tt.images {
						t.Errorf("%s in %q: %d images, want %d; %s", tt.who, tt.group, images, tt.images, diff)
					}
					sum := must[*findingspb.GetSummaryResponse](t, call, g.full[tt.who], &findingspb.GetSummaryRequest{
						GroupUid: tt.group, Days: 2,
					})
					open := len(tt.want) * tt.images
					n := sum.GetTotal().GetNow()
					if int(n.GetOpen()) != open || int(n.GetCritical()) != open || len(sum.GetSeries()) != 2 ||
						int(sum.GetSeries()[1].GetCounts().GetOpen()) != open || int(sum.GetCoverage().GetImages()) != tt.images {
						t.Errorf("the summary of %s in %q: %v", tt.who, tt.group, sum)
					}
					g.addsUp(t, call, tt.who, tt.group, len(tt.want), tt.images)
				}
				g.hidesGroupFindings(t, call)
			})
		}
		g.exceptsInGroups(t)
	})
}

// addsUp checks the totals that a caller gets for a group, in which each finding is the only one of its package.
func (g *gallery) addsUp(t *testing.T, call caller, who, group string, findings, images int) {
	t.Helper()
	for by, rows := range map[findingspb.ListFindingTotalsRequest_By]int{
		findingspb.ListFindingTotalsRequest_BY_PACKAGE: findings, findingspb.ListFindingTotalsRequest_BY_IMAGE: images,
		findingspb.ListFindingTotalsRequest_BY_VULNERABILITY: findings,
	} {
		if findings == 0 {
			rows = 0
		}
		m := must[*findingspb.ListFindingTotalsResponse](t, call, g.full[who], &findingspb.ListFindingTotalsRequest{
			GroupUid: group, By: by,
		})
		if len(m.GetTotals()) != rows || int(m.GetTotalCount()) != rows || int(m.GetCoverage().GetImages()) != images {
			t.Errorf("%s gets %d totals in %q by %s, want %d: %v", who, m.GetTotalCount(), group, by, rows, m)
		}
		for _, total := range m.GetTotals() {
			open, inImages := 1, images
			if total.GetImage() != nil {
				open, inImages = findings, 1
			}
			if int(total.GetOpen().GetOpen()) != open || int(total.GetFixable()) != open ||
				int(total.GetImageCount()) != inImages || (total.GetPackage() != nil) != (total.GetAdvisedVersion() != "") {
				t.Errorf("%s gets in %q by %s: %v", who, group, by, total)
			}
		}
	}
}

// exceptsInGroups creates an exception for a folder. Each caller must see how many of the images that the caller may
// see are covered by the exception.
func (g *gallery) exceptsInGroups(t *testing.T) {
	t.Helper()
	must[*findingspb.Exception](t, g.overGRPC, g.full["org"], &findingspb.CreateExceptionRequest{
		Parent:    g.org,
		Exception: &findingspb.Exception{TargetUid: g.folder, AdvisoryId: "CVE-3", Reason: "not called"},
	})
	for protocol, call := range g.protocols() {
		for _, tt := range []struct {
			who, group string
			// The state of the finding in the package left, the number of excepted images, and the number of images.
			want     string
			excepted int64 // number of excepted findings in the summary
		}{
			{"org", "", "STATE_OPEN 1 of 2", 1},
			{"org", g.org, "STATE_OPEN 1 of 2", 1},
			{"org", g.repo, "STATE_EXCEPTED 1 of 1", 1},
			{"org", g.sibling, "STATE_OPEN 0 of 1", 0}, {"folder", g.org, "STATE_EXCEPTED 1 of 1", 1},
			{"sibling", g.org, "", 0}, {"other", g.org, "", 0}, {"other", "", "", 0},
		} {
			got := ""
			for _, state := range []findingspb.State{findingspb.State_STATE_OPEN, findingspb.State_STATE_EXCEPTED} {
				m := must[*findingspb.ListGroupFindingsResponse](t, call, g.full[tt.who],
					&findingspb.ListGroupFindingsRequest{GroupUid: tt.group, States: []findingspb.State{state}, Package: "left"})
				for _, f := range m.GetFindings() {
					got += fmt.Sprintf("%s %d of %d", f.GetState(), f.GetExceptedImageCount(), f.GetImageCount())
					if f.GetState() != state || (f.GetExceptionUid() != "") != (state == findingspb.State_STATE_EXCEPTED) {
						t.Errorf("over %s, %s asked for %s and gets %v", protocol, tt.who, state, f)
					}
				}
			}
			sum := must[*findingspb.GetSummaryResponse](t, call, g.full[tt.who], &findingspb.GetSummaryRequest{
				GroupUid: tt.group,
			})
			if got != tt.want || sum.GetTotal().GetExcepted() != tt.excepted {
				t.Errorf("over %s, %s gets for %q: %q, want %q; %d excepted, want %d", protocol, tt.who, tt.group, got, tt.want,
					sum.GetTotal().GetExcepted(), tt.excepted)
			}
		}
	}
}

// repo2 pushes the same image to a repo in the sibling folder.
func (g *gallery) repo2(t *testing.T) {
	t.Helper()
	sibling := &gallery{hierarchy: g.hierarchy, repo: g.hierarchy.repo(t, g.sibling, "copy")}
	g.pushImage(t, "dev/sibling/copy", "v1", "amd64", bookworm(t))
	sibling.await(t, "v1", findingspb.Inspection_STATE_INDEXED)
}

// hidesGroupFindings checks that findings are hidden without a token, and with tokens that lack one of the needed
// capabilities.
func (g *gallery) hidesGroupFindings(t *testing.T, call caller) {
	t.Helper()
	for _, lacks := range []resource.Capability{resource.RepoList, resource.ReportsList, resource.AdvisoriesList} {
		var has []resource.Capability
		for _, c := range []resource.Capability{resource.RepoList, resource.ReportsList, resource.AdvisoriesList} {
			if c != lacks {
				has = append(has, c)
			}
		}
		caps := resource.NewCapabilities(has...)
		narrow := g.mint(t, g.Owner, token.Claims{Caps: &caps})
		if got, images := g.foundIn(t, call, narrow, g.org); len(got) > 0 || images > 0 && lacks != resource.AdvisoriesList {
			t.Errorf("a token without %v gets %v and %d images", lacks, got, images)
		}
		sum := must[*findingspb.GetSummaryResponse](t, call, narrow, &findingspb.GetSummaryRequest{GroupUid: g.org})
		if n := sum.GetTotal().GetNow().GetOpen(); n > 0 || len(sum.GetRows()) > 0 && lacks != resource.AdvisoriesList {
			t.Errorf("a token without %v gets %d findings: %v", lacks, n, sum.GetRows())
		}
		totals := must[*findingspb.ListFindingTotalsResponse](t, call, narrow, &findingspb.ListFindingTotalsRequest{
			GroupUid: g.org, By: findingspb.ListFindingTotalsRequest_BY_IMAGE,
		})
		if len(totals.GetTotals()) > 0 || totals.GetCoverage().GetImages() > 0 && lacks != resource.AdvisoriesList {
			t.Errorf("a token without %v gets %v", lacks, totals)
		}
	}
	for _, in := range []proto.Message{
		&findingspb.ListGroupFindingsRequest{GroupUid: g.org}, &findingspb.GetSummaryRequest{},
		&findingspb.ListFindingTotalsRequest{By: findingspb.ListFindingTotalsRequest_BY_IMAGE},
	} {
		if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
			t.Errorf("%T without a token: %v", in, st)
		}
	}
}
