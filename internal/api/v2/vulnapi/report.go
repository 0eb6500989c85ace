package vulnapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
)

func (s *server) GetReport(ctx context.Context, r *pb.GetReportRequest) (*pb.Report, error) {
	group, err := resource.ParseUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	got, err := s.Reports.Get(ctx, group)
	if err != nil {
		return nil, err
	}
	return reportOf(got), nil
}

func (s *server) ListReportSubscriptions(
	ctx context.Context, _ *pb.ListReportSubscriptionsRequest,
) (*pb.ListReportSubscriptionsResponse, error) {
	found, err := s.Reports.Subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.ListReportSubscriptionsResponse{Items: wire.Convert(found, namedSubscriptionOf)}, nil
}

func (s *server) CreateReportSubscription(
	ctx context.Context, r *pb.CreateReportSubscriptionRequest,
) (*pb.ReportSubscription, error) {
	return wire.Get(ctx, "group_uid", r.GetGroupUid(), s.Reports.Subscribe, namedSubscriptionOf)
}

func (s *server) DeleteReportSubscription(
	ctx context.Context, r *pb.DeleteReportSubscriptionRequest,
) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "group_uid", r.GetGroupUid(), s.Reports.Unsubscribe)
}

func namedSubscriptionOf(v report.Subscription) *pb.ReportSubscription {
	out := reportSubscriptionOf(v.ReportSubscription)
	out.Group = v.Path
	return out
}

func reportSubscriptionOf(v vuln.ReportSubscription) *pb.ReportSubscription {
	return &pb.ReportSubscription{
		GroupUid: string(v.Group), IdentityUid: string(v.Identity), CreateTime: wire.Time(v.CreateTime),
		NextTime: wire.Time(v.NextTime), LastTime: wire.Time(v.LastTime), Problem: v.Problem,
	}
}

func reportOf(r report.Report) *pb.Report {
	out := &pb.Report{
		GroupUid: string(r.Group), Group: r.Path, Time: wire.Time(r.Time), MonthTime: wire.Time(r.Month),
		Counts: findingCountsOf(r.Summary.Total), FixedThisMonth: bySeverityOf(r.Fixed),
		Series: wire.Convert(r.Summary.Series, summaryPointOf), Parts: wire.Convert(r.Parts, reportPartOf),
		PartCount: int64(r.AllParts), Owners: wire.Convert(r.Owners, reportOwnerOf), OwnerCount: int64(r.All),
		Open: wire.Convert(r.Open, reportFindingOf), Fixed: wire.Convert(r.Closed, reportFindingOf),
		Packages: wire.Convert(r.Packages, totalOf), Gaps: r.Gaps, Coverage: answerCoverageOf(r.Summary.Coverage),
	}
	if n := r.Fixed.Sum(); n > 0 {
		out.MeanTimeToFix = durationpb.New((r.FixTime / time.Duration(n)).Round(time.Millisecond))
	}
	return out
}

func summaryPointOf(p query.Point) *pb.SummaryPoint {
	return &pb.SummaryPoint{Time: wire.Time(p.Time), Counts: bySeverityOf(p.Open)}
}

func reportPartOf(p report.Part) *pb.ReportPart {
	row := summaryRowOf(p.SummaryRow)
	return &pb.ReportPart{Kind: row.GetKind(), Uid: row.GetUid(), Name: row.GetName(), Counts: row.GetCounts(),
		FixedThisMonth: int64(p.Fixed)}
}

func reportFindingOf(v report.Entry) *pb.ReportFinding {
	return &pb.ReportFinding{
		AdvisoryId: v.ID, Package: v.Package, RepoUid: string(v.Repo), Repo: v.Path, Tag: v.Tag,
		Severity: pb.Severity(v.Severity), Kev: v.KEV, Fixable: v.Fixable, OpenTime: wire.Time(v.Since),
		DueTime: wire.Time(v.Due), Overdue: v.Overdue, FixedTime: wire.Time(v.Fixed), Owners: v.Owners,
		SeveritySource: v.RatedBy,
	}
}

func reportOwnerOf(v report.Share) *pb.ReportOwner {
	out := &pb.ReportOwner{IdentityUid: string(v.Identity), Name: v.Name, DisplayName: v.DisplayName,
		Repos: int32(v.Repos), Open: bySeverityOf(v.Open), FixedThisMonth: int64(v.Fixed)}
	if v.Limited > 0 {
		out.Overdue = new(int64(v.Overdue))
	}
	return out
}
