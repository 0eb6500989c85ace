package vulnapi

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

func (s *server) GetTrend(ctx context.Context, r *pb.GetTrendRequest) (*pb.Trend, error) {
	group, err := resource.ParseUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	t, err := s.Trends.Days(ctx, group, int(r.GetDays()))
	if err != nil {
		return nil, err
	}
	c, err := s.Findings.CoverageOf(ctx, []resource.UID{group}, true)
	if err != nil {
		return nil, err
	}
	return &pb.Trend{Days: wire.Convert(t.Days, trendDayOf), Coverage: answerCoverageOf(c), Failure: t.Failure}, nil
}

func trendDayOf(d vuln.FindingDay) *pb.TrendDay {
	out := &pb.TrendDay{
		Day: wire.Time(d.Day.Time()), Time: wire.Time(d.Time), Open: bySeverityOf(query.BySeverity(d.Open)),
		Opened: int64(d.Opened), Closed: int64(d.Closed),
	}
	if d.OnlyOpen {
		return out
	}
	out.Excepted, out.Kev, out.Fixable = new(int64(d.Excepted)), new(int64(d.KEV)), new(int64(d.Fixable))
	out.Images, out.Indexed = new(int32(d.Images)), new(int32(d.Indexed))
	out.Waiting, out.NotUnderstood = new(int32(d.Waiting)), new(int32(d.NotUnderstood))
	if p := d.Packages; p != nil {
		out.Packages = &pb.Coverage{Packages: int32(p.All), Covered: int32(p.Covered), NotCovered: int32(p.Bare),
			Owned: int32(p.Owned), Waiting: int32(p.Waiting)}
	}
	if d.OpenCount() > 0 {
		out.MeanAge = durationpb.New(d.MeanAge())
	}
	return out
}
