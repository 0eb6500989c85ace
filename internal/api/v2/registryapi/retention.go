package registryapi

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
)

// retentionOf returns a function that converts the rules that apply to a group or a repo
// to a message. The rules may belong to a parent group.
func retentionOf(place resource.UID) func(registry.Retention) *pb.Retention {
	return func(r registry.Retention) *pb.Retention {
		return &pb.Retention{
			Uid: string(place), KeepNewest: r.KeepNewest, KeepMatching: r.KeepMatching, KeepYoungerDays: r.KeepYoungerDays,
			KeepPulledDays: r.KeepPulledDays, KeepMinors: r.KeepMinors, KeepDeployed: r.KeepDeployed, KeepSigned: r.KeepSigned,
			KeepNeeded: r.KeepNeeded, EveryDays: r.EveryDays, SourceUid: string(r.UID), UpdateTime: wire.Time(r.UpdateTime),
		}
	}
}

func ownRetentionOf(r registry.Retention) *pb.Retention { return retentionOf(r.UID)(r) }

func (s *server) GetRetention(ctx context.Context, r *pb.GetRetentionRequest) (*pb.Retention, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetRetention, retentionOf(resource.UID(r.GetUid())))
}

func (s *server) SetRetention(ctx context.Context, r *pb.SetRetentionRequest) (*pb.Retention, error) {
	set := func(ctx context.Context, uid resource.UID) (registry.Retention, error) {
		p := r.GetRetention()
		return s.Registry.SetRetention(ctx, registry.Retention{
			UID: uid, KeepNewest: p.GetKeepNewest(), KeepMatching: p.GetKeepMatching(), KeepYoungerDays: p.GetKeepYoungerDays(),
			KeepPulledDays: p.GetKeepPulledDays(), KeepMinors: p.GetKeepMinors(), KeepDeployed: p.GetKeepDeployed(),
			KeepSigned: p.GetKeepSigned(), KeepNeeded: p.GetKeepNeeded(), EveryDays: p.GetEveryDays(),
		})
	}
	if err := wire.Require("retention", r.GetRetention()); err != nil {
		return nil, err
	}
	return wire.Get(ctx, "uid", r.GetRetention().GetUid(), set, ownRetentionOf)
}

func (s *server) DeleteRetention(ctx context.Context, r *pb.DeleteRetentionRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteRetention)
}

func planOf(p metadata.RetentionPlan) *pb.RetentionPlan {
	m := &pb.RetentionPlan{
		RepoUid: string(p.Repo), SourceUid: string(p.Rules.UID), Images: int64(p.Images), Tags: int64(p.Tags), Bytes: p.Bytes,
		RestorableDays: int32(p.Life / (24 * time.Hour)), More: p.More, Fingerprint: p.Fingerprint,
	}
	for _, why := range slices.Sorted(maps.Keys(p.Kept)) {
		m.Kept = append(m.Kept, &pb.KeptImages{Reason: pb.KeepReason(why), Images: int64(p.Kept[why])})
	}
	for _, g := range p.Going {
		going := &pb.GoingImage{
			Digest: g.Digest, MediaType: g.MediaType, Tags: g.Tags, PushTime: wire.Time(g.PushTime), Size: g.Size,
			WithDigests: g.With,
		}
		if g.LastPull != nil {
			going.PullTime, going.PullerUid = wire.Time(g.LastPull.Time), string(g.LastPull.Identity)
			going.Puller = p.Pullers[g.LastPull.Identity]
		}
		m.Going = append(m.Going, going)
	}
	return m
}

func (s *server) PreviewRetention(ctx context.Context, r *pb.PreviewRetentionRequest) (*pb.RetentionPlan, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.PreviewRetention, planOf)
}

func (s *server) RunRetention(ctx context.Context, r *pb.RunRetentionRequest) (*pb.RetentionPlan, error) {
	run := func(ctx context.Context, uid resource.UID) (metadata.RetentionPlan, error) {
		return s.Registry.RunRetention(ctx, uid, r.GetFingerprint())
	}
	return wire.Get(ctx, "uid", r.GetUid(), run, planOf)
}

// appliedOf returns the body of the event about a retention run.
func appliedOf(r registry.RetentionRun) *pb.RetentionPlan {
	m := &pb.RetentionPlan{RepoUid: string(r.Repo), SourceUid: string(r.Rules), Tags: int64(r.Tags), Bytes: r.Bytes}
	for _, digest := range r.Images {
		m.Going = append(m.Going, &pb.GoingImage{Digest: digest})
	}
	return m
}
