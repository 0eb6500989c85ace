package vulnapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// slaOf returns a function that converts the SLA that applies to a group to a message. The SLA may belong to a group
// above it.
func slaOf(group resource.UID) func(vuln.SLA) *pb.Sla {
	return func(v vuln.SLA) *pb.Sla {
		return &pb.Sla{
			Uid: string(group), CriticalDays: v.Critical, HighDays: v.High, MediumDays: v.Medium, LowDays: v.Low,
			UnknownDays: v.Unknown, SourceUid: string(v.UID), UpdateTime: wire.Time(v.UpdateTime),
		}
	}
}

func ownSLAOf(v vuln.SLA) *pb.Sla { return slaOf(v.UID)(v) }

func (s *server) GetSla(ctx context.Context, r *pb.GetSlaRequest) (*pb.Sla, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Policy.GetSLA, slaOf(resource.UID(r.GetUid())))
}

func (s *server) SetSla(ctx context.Context, r *pb.SetSlaRequest) (*pb.Sla, error) {
	if err := wire.Require("sla", r.GetSla()); err != nil {
		return nil, err
	}
	set := func(ctx context.Context, uid resource.UID) (vuln.SLA, error) {
		p := r.GetSla()
		return s.Policy.SetSLA(ctx, vuln.SLA{UID: uid, Critical: p.GetCriticalDays(), High: p.GetHighDays(),
			Medium: p.GetMediumDays(), Low: p.GetLowDays(), Unknown: p.GetUnknownDays()})
	}
	return wire.Get(ctx, "uid", r.GetSla().GetUid(), set, ownSLAOf)
}

func (s *server) DeleteSla(ctx context.Context, r *pb.DeleteSlaRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Policy.DeleteSLA)
}
