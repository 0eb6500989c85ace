package vulnapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
)

func (s *server) ListFindingTotals(
	ctx context.Context, r *pb.ListFindingTotalsRequest,
) (*pb.ListFindingTotalsResponse, error) {
	group, err := wire.OptionalUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	f := query.Filter{Fixable: r.GetFixable(), KEV: r.GetKev(), Package: r.GetPackage(), Due: r.GetDueTimes(),
		Overdue: r.GetOverdue()}
	if f.Severities, err = severitiesOf(r.GetSeverities()); err != nil {
		return nil, err
	}
	got, c, err := s.Reports.Totals(ctx, query.Place{Group: group}, report.By(r.GetBy()), f, wire.Params(r))
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got, totalOf)
	return &pb.ListFindingTotalsResponse{
		Totals: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Coverage: answerCoverageOf(c),
		DueTimesUnknown: c.NoDue,
	}, nil
}

// severitiesOf reads the severities in a request.
func severitiesOf(severities []pb.Severity) (all []finding.Severity, _ error) {
	for _, severity := range severities {
		if _, ok := pb.Severity_name[int32(severity)]; !ok {
			return nil, fault.Field("severities", "%d is not a severity", severity)
		}
		all = append(all, finding.Severity(severity))
	}
	return all, nil
}

func totalOf(t report.Total) *pb.FindingTotal {
	out := &pb.FindingTotal{
		AdvisoryId: t.Vulnerability, Summary: t.Summary, Open: bySeverityOf(t.Open), Kev: int64(t.KEV),
		Fixable: int64(t.Fixable), ImageCount: int32(t.Images), PackageCount: int32(t.Packages), AdvisedVersion: t.Advice,
		DueTime: wire.Time(t.Due),
	}
	switch {
	case t.Package.Name != "":
		out.Package, out.AdvisoryIds = packageOf(t.Package), t.Names
	case t.Vulnerability != "":
		out.PackageNames = t.Names
	default:
		out.Image = affectedImageOf(t.Image)
	}
	return out
}
