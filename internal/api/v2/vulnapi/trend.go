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
	days, err := s.Trends.Days(ctx, group, int(r.GetDays()))
	if err != nil {
		return nil, err
	}
	c, err := s.Findings.CoverageOf(ctx, []resource.UID{group}, true)
	if err != nil {
		return nil, err
	}
	return &pb.Trend{Days: wire.Convert(days, trendDayOf), Coverage: answerCoverageOf(c)}, nil
}

func trendDayOf(d vuln.FindingDay) *pb.TrendDay {
	out := &pb.TrendDay{
		Day: wire.Time(d.Day.Time()), Time: wire.Time(d.Time), Open: bySeverityOf(query.BySeverity(d.Open)),
		Excepted: int64(d.Excepted), Kev: int64(d.KEV), Fixable: int64(d.Fixable), Opened: int64(d.Opened),
		Closed: int64(d.Closed), Images: int32(d.Images), Indexed: int32(d.Indexed), Waiting: int32(d.Waiting),
		NotUnderstood: int32(d.NotUnderstood),
	}
	if d.OpenCount() > 0 {
		out.MeanAge = durationpb.New(d.MeanAge())
	}
	return out
}
