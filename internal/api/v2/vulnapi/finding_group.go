package vulnapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// groupFindingOf converts a finding that affects several images of a group to a message.
func groupFindingOf(v query.GroupFinding) *pb.Finding {
	out := findingOf(v.Finding)
	out.Origin = ""
	if v.FromFiles {
		out.Origins = append(out.Origins, &pb.Origin{Kind: originIndex})
	}
	if v.FromSBOMs {
		out.Origins = append(out.Origins, &pb.Origin{Kind: originSBOM})
	}
	out.ImageCount, out.ExceptedImageCount = int32(v.Images), int32(v.Excepted)
	out.Images = wire.Convert(v.SomeImages, affectedImageOf)
	return out
}

func (s *server) ListGroupFindings(
	ctx context.Context, r *pb.ListGroupFindingsRequest,
) (*pb.ListGroupFindingsResponse, error) {
	group, err := wire.OptionalUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	f := query.Filter{Fixable: r.GetFixable(), KEV: r.GetKev(), Package: r.GetPackage(),
		Due: r.GetDueTimes(), Overdue: r.GetOverdue()}
	if f.Severities, err = severitiesOf(r.GetSeverities()); err != nil {
		return nil, err
	}
	if f.States, err = statesOf(r.GetStates()); err != nil {
		return nil, err
	}
	got, covered, err := s.Findings.ListGroup(ctx, query.Place{Group: group}, f, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got, groupFindingOf)
	return &pb.ListGroupFindingsResponse{
		Findings: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
		Coverage: answerCoverageOf(covered), DueTimesUnknown: covered.NoDue,
	}, nil
}

func (s *server) GetSummary(ctx context.Context, r *pb.GetSummaryRequest) (*pb.GetSummaryResponse, error) {
	group, err := wire.OptionalUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	got, sum, err := s.Findings.Summarize(ctx, query.Place{Group: group}, int(r.GetDays()), wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got, summaryRowOf)
	return &pb.GetSummaryResponse{
		Rows: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Total: findingCountsOf(sum.Total),
		Coverage: answerCoverageOf(sum.Coverage),
		Series:   wire.Convert(sum.Series, summaryPointOf),
	}, nil
}

func summaryRowOf(r query.SummaryRow) *pb.SummaryRow {
	kind := pb.SummaryRow_KIND_GROUP
	switch {
	case r.Tag:
		kind = pb.SummaryRow_KIND_TAG
	case r.Repo:
		kind = pb.SummaryRow_KIND_REPO
	}
	return &pb.SummaryRow{
		Kind: kind, Uid: string(r.UID), Name: r.Name, Tags: int32(r.Tags), Counts: findingCountsOf(r.Count),
	}
}

func bySeverityOf(b query.BySeverity) *pb.SeverityCounts {
	return &pb.SeverityCounts{
		Open: int64(b.Sum()), Critical: int64(b[finding.SeverityCritical]), High: int64(b[finding.SeverityHigh]),
		Medium: int64(b[finding.SeverityMedium]), Low: int64(b[finding.SeverityLow]),
		Unknown: int64(b[finding.SeverityUnknown]),
	}
}

func findingCountsOf(c query.Counts) *pb.FindingCounts {
	out := &pb.FindingCounts{
		Now: bySeverityOf(c.Now), Fixable: int64(c.Fixable), Fixed: int64(c.Fixed), Excepted: int64(c.Excepted),
		Days7: int64(c.Ages[0]), Days30: int64(c.Ages[1]), Days90: int64(c.Ages[2]), Older: int64(c.Ages[3]),
	}
	if out.Limited = int64(c.Limited); c.Limited > 0 {
		out.Overdue = bySeverityOf(c.Overdue)
	}
	if o := c.Oldest; !o.Since.IsZero() {
		out.Oldest = &pb.OpenFinding{AdvisoryId: o.ID, Package: o.Package, RepoUid: string(o.Repo), Tag: o.Tag,
			OpenTime: wire.Time(o.Since)}
	}
	if c.Fixed > 0 {
		out.MeanTimeToFix = durationpb.New((c.FixedTime / time.Duration(c.Fixed)).Round(time.Millisecond))
	}
	return out
}
