package v1

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

func (s registries) GetRepoCountBySource(
	ctx context.Context, r *pb.GetRepoCountBySourceRequest,
) (*pb.RepoCount, error) {
	return wire.Get(ctx, "id", r.GetId(), s.registry.CountFollowers, func(n int64) *pb.RepoCount {
		return &pb.RepoCount{Count: n}
	})
}

// ListEolTags returns one page, unlike most lists of version 1, which have no pages.
func (s registries) ListEolTags(ctx context.Context, r *pb.EolTagFilter) (*pb.EolTagList, error) {
	f := resource.Filter{UIDs: wire.UIDFilter(r.GetUidp()), Name: r.GetName(), Deprecated: true}
	// A page token already contains the fields that the request omits.
	if r.GetPageToken() == "" || r.GetExcludeDates() || r.GetExcludeEpochs() {
		f.Classes = classesOf(r, true)
	}
	tags, err := s.registry.ListTags(ctx, f, pageParams(r, ""))
	p := wire.PageOf(ctx, tags, func(t registry.Tag) *pb.EolTag {
		return &pb.EolTag{Id: string(t.UID), Name: t.Name, TagStatus: pb.EolTagStatus_TAG_INACTIVE}
	})
	return &pb.EolTagList{NextPageToken: p.Next, Items: p.Items}, err
}

func (s registries) GetPackageVersionMetadata(
	ctx context.Context, r *pb.PackageVersionMetadataRequest,
) (*pb.PackageVersionMetadata, error) {
	return nil, s.registry.PackageVersions(ctx, r.GetPackage())
}

func (s registries) ListBuildReports(ctx context.Context, r *pb.BuildReportFilter) (*pb.BuildReportList, error) {
	return &pb.BuildReportList{}, s.registry.Builds(ctx, wire.UIDFilter(r.GetUidp()))
}

func (s registries) GetBuildStatus(ctx context.Context, r *pb.BuildReportFilter) (*pb.BuildStatus, error) {
	return &pb.BuildStatus{}, s.registry.Builds(ctx, wire.UIDFilter(r.GetUidp()))
}

func (s registries) GetUpdateStatus(ctx context.Context, r *pb.UpdateStatusRequest) (*pb.UpdateStatus, error) {
	return wire.Get(ctx, "repo_id", r.GetRepoId(), s.registry.RecentlyUpdated, func(recently bool) *pb.UpdateStatus {
		return &pb.UpdateStatus{RecentlyUpdated: recently}
	})
}

func syncStatusOf(f registry.Follow) *pb.SyncStatus {
	return &pb.SyncStatus{Status: pb.SyncStatus_Status(f.State), CreateTime: wire.Time(f.StateTime)}
}

func (s registries) GetSyncStatus(ctx context.Context, r *pb.GetSyncStatusRequest) (*pb.SyncStatus, error) {
	return wire.Get(ctx, "repo_id", r.GetRepoId(), s.registry.GetFollow, syncStatusOf)
}

func (s registries) ListSyncStatuses(ctx context.Context, r *pb.ListSyncStatusesRequest) (*pb.SyncStatusList, error) {
	group, err := resource.ParseUID("registry_id", r.GetRegistryId())
	if err != nil {
		return nil, err
	}
	items, err := everything(ctx, group, s.registry.ListFollows, func(f registry.Follow) *pb.RepoSyncStatus {
		return &pb.RepoSyncStatus{RepoId: string(f.Repo), RepoStatus: syncStatusOf(f)}
	})
	return &pb.SyncStatusList{Items: items}, err
}

// settingsOf returns a function that converts the settings that apply to a group to a
// message.
func settingsOf(group string) func(registry.Settings) *pb.RegistrySettings {
	return func(s registry.Settings) *pb.RegistrySettings {
		return &pb.RegistrySettings{RegistryId: group, UniqueTags: s.UniqueTags, EolGracePeriod: s.GracePeriod}
	}
}

// readSettings copies the fields that version 1 has from p to s, and keeps the other
// fields.
func readSettings(p *pb.RegistrySettings, s *registry.Settings) error {
	s.UniqueTags, s.GracePeriod = p.GetUniqueTags(), p.GetEolGracePeriod()
	return nil
}

func (s registries) GetRegistrySettings(
	ctx context.Context, r *pb.GetRegistrySettingsRequest,
) (*pb.RegistrySettings, error) {
	return wire.Get(ctx, "registry_id", r.GetRegistryId(), s.registry.GetSettings, settingsOf(r.GetRegistryId()))
}

func (s registries) UpdateRegistrySettings(ctx context.Context, r *pb.RegistrySettings) (*pb.RegistrySettings, error) {
	return wire.Replace(ctx, "registry_id", r.GetRegistryId(), r, readSettings, s.registry.UpdateSettings,
		settingsOf(r.GetRegistryId()))
}
