package registryapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

func syncOf(f registry.Follow) *pb.Sync {
	return &pb.Sync{
		Uid: string(f.Repo), SourceUid: string(f.Source), State: pb.SyncState(f.State + 1), StateTime: wire.Time(f.StateTime),
		Error: f.Error, FailedTags: f.FailedTags, SuccessTime: wire.Time(f.SuccessTime), DueTime: wire.Time(f.DueTime),
		ExpirationTime: wire.Time(f.ExpireTime), SetByUid: string(f.Identity), Tags: f.Tags,
	}
}

func (s *server) GetSync(ctx context.Context, r *pb.GetSyncRequest) (*pb.Sync, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetFollow, syncOf)
}

func (s *server) ListSyncs(ctx context.Context, r *pb.ListSyncsRequest) (*pb.ListSyncsResponse, error) {
	group, err := resource.ParseUID("group_uid", r.GetGroupUid())
	if r.GetGroupUid() == "" && r.GetPageToken() != "" {
		err = nil // the page token contains the UID of the group
	}
	if err != nil {
		return nil, err
	}
	follows, err := s.Registry.ListFollows(ctx, group, wire.Params(r))
	p := wire.PageOf(ctx, follows, syncOf)
	return &pb.ListSyncsResponse{Syncs: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) RunSync(ctx context.Context, r *pb.RunSyncRequest) (*pb.Sync, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.RunFollow, syncOf)
}
