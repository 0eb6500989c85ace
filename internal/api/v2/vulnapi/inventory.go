package vulnapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/inventory"
)

func placeOf(p vuln.InventoryPlace) *pb.InventoryPlace {
	return &pb.InventoryPlace{
		GroupUid: string(p.Group), Name: p.Name, IdentityUid: string(p.Identity), PushTime: wire.Time(p.PushTime),
		ExpireTime: wire.Time(p.ExpireTime), Entries: int32(p.Entries), Unknown: int32(p.Unknown),
	}
}

func readEntry(e *pb.InventoryEntry) vuln.InventoryEntry {
	out := vuln.InventoryEntry{Namespace: e.GetNamespace(), Workload: e.GetWorkload(), Container: e.GetContainer(),
		Image: e.GetImage(), Digest: e.GetDigest(), Platform: e.GetPlatform(), Copies: int(e.GetCopies())}
	if e.GetStartTime() != nil {
		out.StartTime = e.GetStartTime().AsTime().Truncate(time.Millisecond)
	}
	return out
}

func runningOf(r inventory.Running) *pb.RunningImage {
	e := r.InventoryEntry
	return &pb.RunningImage{
		Entry: &pb.InventoryEntry{Namespace: e.Namespace, Workload: e.Workload, Container: e.Container, Image: e.Image,
			Digest: e.Digest, Platform: e.Platform, Copies: int32(e.Copies), StartTime: wire.Time(e.StartTime)},
		GroupUid: string(r.Place.Group), Place: r.Place.Name, IdentityUid: string(r.Place.Identity),
		PushTime: wire.Time(r.Place.PushTime),
	}
}

func (s *server) PushInventory(ctx context.Context, r *pb.PushInventoryRequest) (*pb.InventoryPlace, error) {
	group, err := resource.ParseUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	snapshot := inventory.Snapshot{Group: group, Place: r.GetPlace(), Entries: wire.Convert(r.GetEntries(), readEntry),
		Empty: r.GetEmpty()}
	if r.GetTtl() != nil {
		if snapshot.Life = r.GetTtl().AsDuration(); r.GetTtl().CheckValid() != nil || snapshot.Life == 0 {
			return nil, fault.Field("ttl", "must be between one minute and 90 days")
		}
	}
	p, err := s.Inventory.Push(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	return placeOf(p), nil
}

func (s *server) ListInventory(ctx context.Context, r *pb.ListInventoryRequest) (*pb.ListInventoryResponse, error) {
	var bad wire.Problems
	f := inventory.Filter{Place: r.GetPlace(), Digest: r.GetDigest()}
	var err error
	f.Group, err = wire.OptionalUID("group_uid", r.GetGroupUid())
	bad.Add(err)
	f.Repo, err = wire.OptionalUID("repo_uid", r.GetRepoUid())
	bad.Add(err)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	got, err := s.Inventory.List(ctx, f, wire.Params(r))
	p := wire.PageOf(ctx, got, runningOf)
	if err == nil && r.GetCheck() {
		err = s.checkRunning(ctx, p.Items)
	}
	return &pb.ListInventoryResponse{Images: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) ListInventoryPlaces(
	ctx context.Context, r *pb.ListInventoryPlacesRequest,
) (*pb.ListInventoryPlacesResponse, error) {
	group, err := wire.OptionalUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	got, err := s.Inventory.ListPlaces(ctx, inventory.PlaceFilter{Group: group}, wire.Params(r))
	p := wire.PageOf(ctx, got, func(v inventory.PlaceState) *pb.InventoryPlace {
		m := placeOf(v.InventoryPlace)
		m.Expired = v.Expired
		return m
	})
	return &pb.ListInventoryPlacesResponse{
		Places: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) DeleteInventory(ctx context.Context, r *pb.DeleteInventoryRequest) (*emptypb.Empty, error) {
	group, err := resource.ParseUID("group_uid", r.GetGroupUid())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.Inventory.Delete(ctx, group, r.GetPlace())
}
