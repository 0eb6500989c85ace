package registryapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
)

func trashEntryOf(e registry.TrashEntry) *pb.TrashEntry {
	return &pb.TrashEntry{
		Uid: string(e.UID), Kind: pb.TrashKind(e.Kind), RepoUid: string(e.Repo()), Repo: e.RepoName, Tag: e.Tag,
		Digest: e.Digest, MediaType: e.MediaType, Size: e.Size, ActorUid: string(e.By),
		CreateTime: wire.Time(e.CreateTime), ExpireTime: wire.Time(e.ExpireTime),
	}
}

func (s *server) ListTrashEntries(
	ctx context.Context, r *pb.ListTrashEntriesRequest,
) (*pb.ListTrashEntriesResponse, error) {
	f := resource.Filter{UIDs: wire.UIDFilter(r.GetUidp()), Digest: r.GetDigest()}
	p, err := wire.List(ctx, r, f, s.Registry.ListTrash, trashEntryOf)
	return &pb.ListTrashEntriesResponse{
		Entries: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) GetTrashEntry(ctx context.Context, r *pb.GetTrashEntryRequest) (*pb.TrashEntry, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetTrash, trashEntryOf)
}

func (s *server) RestoreTrashEntry(
	ctx context.Context, r *pb.RestoreTrashEntryRequest,
) (*pb.RestoreTrashEntryResponse, error) {
	how := metadata.Restoration{Replace: r.GetReplace(), WithoutTags: r.GetWithoutTags()}
	restore := func(ctx context.Context, uid resource.UID) ([]registry.TrashEntry, error) {
		return s.Registry.RestoreTrash(ctx, uid, how)
	}
	return wire.Get(ctx, "uid", r.GetUid(), restore, func(all []registry.TrashEntry) *pb.RestoreTrashEntryResponse {
		return &pb.RestoreTrashEntryResponse{Entries: wire.Convert(all, trashEntryOf)}
	})
}

func (s *server) DeleteTrashEntry(ctx context.Context, r *pb.DeleteTrashEntryRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteTrash)
}

func (s *server) EmptyTrash(ctx context.Context, r *pb.EmptyTrashRequest) (*pb.EmptyTrashResponse, error) {
	empty := func(ctx context.Context, uid resource.UID) (*pb.EmptyTrashResponse, error) {
		n, bytes, err := s.Registry.EmptyTrash(ctx, uid)
		return &pb.EmptyTrashResponse{Entries: n, Bytes: bytes}, err
	}
	return wire.Get(ctx, "uid", r.GetUid(), empty, func(p *pb.EmptyTrashResponse) *pb.EmptyTrashResponse { return p })
}
