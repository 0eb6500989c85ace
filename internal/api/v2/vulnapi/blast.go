package vulnapi

import (
	"context"
	"strings"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/blast"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// A vulnerabilityRequest is a request that names a vulnerability.
type vulnerabilityRequest interface {
	GetAdvisoryId() string
	GetPurl() string
	GetRange() string
	GetGroupUid() string
	GetDays() int32
}

func readVulnerability(r vulnerabilityRequest) (blast.Vulnerability, error) {
	group, err := wire.OptionalUID("group_uid", r.GetGroupUid())
	return blast.Vulnerability{ID: r.GetAdvisoryId(), PURL: r.GetPurl(), Range: r.GetRange(),
		Place: query.Place{Group: group}, Days: int(r.GetDays())}, err
}

func (s *server) GetBlast(ctx context.Context, r *pb.GetBlastRequest) (*pb.Blast, error) {
	vulnerability, err := readVulnerability(r)
	if err != nil {
		return nil, err
	}
	stages, c, err := s.Blast.Get(ctx, vulnerability, r.GetPageSize())
	if err != nil {
		return nil, err
	}
	return &pb.Blast{
		Stages:   wire.Convert(stages, func(p blast.Page) *pb.BlastStage { return stageOf(ctx, p) }),
		Coverage: answerCoverageOf(c),
	}, nil
}

func (s *server) ListBlastStage(ctx context.Context, r *pb.ListBlastStageRequest) (*pb.BlastStage, error) {
	vulnerability, err := readVulnerability(r)
	if err != nil {
		return nil, err
	}
	if _, ok := pb.BlastStage_Name_name[int32(r.GetStage())]; !ok {
		return nil, fault.Field("stage", "%d is not a stage", r.GetStage())
	}
	vulnerability.Stage = blast.Stage(r.GetStage())
	p, err := s.Blast.List(ctx, vulnerability, wire.Params(r))
	if err != nil {
		return nil, err
	}
	stage := stageOf(ctx, p)
	stage.Coverage = answerCoverageOf(p.Coverage)
	return stage, nil
}

func stageOf(ctx context.Context, b blast.Page) *pb.BlastStage {
	p := wire.PageOf(ctx, b.Page, blastItemOf)
	return &pb.BlastStage{
		Items: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped, Complete: len(b.Gaps) == 0,
		Gaps: wire.Convert(b.Gaps, func(g blast.Gap) *pb.BlastGap {
			return &pb.BlastGap{Code: g.Code, Message: g.Text, Count: g.Count}
		}),
		Name: pb.BlastStage_Name(b.Stage),
	}
}

func blastItemOf(i blast.Item) *pb.BlastItem {
	switch {
	case i.Package != nil:
		return &pb.BlastItem{Package: packageOf(i.Package.Package), Images: int32(i.Package.Images)}
	case i.Image != nil:
		return &pb.BlastItem{Image: affectedImageOf(*i.Image)}
	case i.Tag != nil:
		return &pb.BlastItem{Tag: &pb.AffectedTag{RepoUid: string(i.Tag.Repo), Repo: i.Tag.Path, Name: i.Tag.Name,
			Digest: i.Tag.Digest}}
	case i.Running != nil:
		return &pb.BlastItem{Running: runningOf(*i.Running)}
	case i.Deployment != nil:
		return &pb.BlastItem{Deployment: affectedDeploymentOf(*i.Deployment)}
	}
	who := i.Identity
	return &pb.BlastItem{Identity: &pb.BlastIdentity{
		IdentityUid: string(who.UID), Name: who.Name, DisplayName: who.DisplayName, LastPullTime: wire.Time(who.LastPull),
		GroupUids: wire.Convert(who.Groups, func(g resource.UID) string { return string(g) }), Repos: int32(who.Repos),
	}}
}

func affectedDeploymentOf(d blast.AffectedDeployment) *pb.AffectedDeployment {
	out := &pb.AffectedDeployment{RepoUid: string(d.UID), Repo: d.Path}
	for _, c := range d.Charts {
		chart := c.Repo
		if c.Chart != nil {
			chart = strings.TrimSuffix(chart, "/") + "/" + *c.Chart
		}
		out.Charts = append(out.Charts, chart)
	}
	return out
}
