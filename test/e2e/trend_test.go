package e2e_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestTrend checks that a server counts the findings of its organizations, and which callers may see the counts and
// reports. The counts themselves are tested where they are made.
func TestTrend(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		caps := resource.NewCapabilities(resource.RepoList, resource.ReportsList)
		narrow := g.mint(t, g.Owner, token.Claims{Caps: &caps})
		in := &findingspb.GetTrendRequest{GroupUid: g.org, Days: 2}
		report := &findingspb.GetReportRequest{GroupUid: g.org}
		procUntil(t, "the findings are counted", func() bool {
			return len(must[*findingspb.Trend](t, g.overGRPC, g.Token, in).GetDays()) > 0
		})
		for protocol, call := range g.protocols() {
			m := must[*findingspb.Trend](t, call, g.Token, in)
			if d := m.GetDays()[0]; d.GetDay() == nil || d.GetTime() == nil || m.GetCoverage().GetImages() != 1 {
				t.Errorf("the trend over %s: %v", protocol, m)
			}
			r := must[*findingspb.Report](t, call, g.Token, report)
			if r.GetGroup() != "dev" || len(r.GetSeries()) != 90 || r.GetCoverage().GetImages() != 1 ||
				r.GetMonthTime().AsTime().Day() != 1 {
				t.Errorf("the report over %s: %v", protocol, r)
			}
			for who, bearer := range map[string]string{
				"another organization": g.full["other"], "a folder": g.full["folder"], "a narrowed token": narrow,
			} {
				if _, st := call(t, bearer, in); st.Code() != codes.PermissionDenied {
					t.Errorf("%s over %s: %v", who, protocol, st)
				}
				if _, st := call(t, bearer, report); st.Code() != codes.PermissionDenied {
					t.Errorf("%s gets a report over %s: %v", who, protocol, st)
				}
			}
			if _, st := call(t, "", in); st.Code() != codes.Unauthenticated {
				t.Errorf("without a token over %s: %v", protocol, st)
			}
			if _, st := call(t, "", report); st.Code() != codes.Unauthenticated {
				t.Errorf("a report without a token over %s: %v", protocol, st)
			}
		}
	})
}
