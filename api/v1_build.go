package api

import (
	"context"

	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// GetRepoCountBySource is of registryv1pb.RegistryServer.
func (s registryV1) GetRepoCountBySource(ctx context.Context, r *registryv1pb.GetRepoCountBySourceRequest) (*registryv1pb.RepoCount, error) {
	source, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	n, err := s.registry.CountFollowers(ctx, source)
	if err != nil {
		return nil, err
	}
	return &registryv1pb.RepoCount{Count: n}, nil
}

// ListEolTags is of registryv1pb.RegistryServer. It has pages, unlike most lists
// of version 1.
func (s registryV1) ListEolTags(ctx context.Context, r *registryv1pb.EolTagFilter) (*registryv1pb.EolTagList, error) {
	classes := map[resource.TagClass]bool{resource.DateTag: !r.GetExcludeDates(), resource.EpochTag: !r.GetExcludeEpochs()}
	f := resource.Filter{Place: placeIn(r.GetUidp()), Name: r.GetName(), Deprecated: true}
	for _, c := range []resource.TagClass{resource.DateTag, resource.EpochTag} {
		if classes[c] {
			f.Classes = append(f.Classes, c)
		}
	}
	size := min(max(r.GetPageSize(), -1), page.MaxSize) // negative ones are refused below
	got, err := s.registry.ListTags(ctx, f, page.Params{Size: int32(size), Token: r.GetPageToken()})
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, got.Expired)
	return &registryv1pb.EolTagList{NextPageToken: got.Next, Items: convert(got.Items, func(t resource.Tag) *registryv1pb.EolTag {
		return &registryv1pb.EolTag{Id: string(t.UID), Name: t.Name, TagStatus: registryv1pb.EolTagStatus_TAG_INACTIVE}
	})}, nil
}

// GetPackageVersionMetadata is of registryv1pb.RegistryServer.
func (s registryV1) GetPackageVersionMetadata(ctx context.Context, r *registryv1pb.PackageVersionMetadataRequest) (*registryv1pb.PackageVersionMetadata, error) {
	return nil, s.registry.PackageVersions(ctx, r.GetPackage())
}

// ListBuildReports is of registryv1pb.RegistryServer.
func (s registryV1) ListBuildReports(ctx context.Context, r *registryv1pb.BuildReportFilter) (*registryv1pb.BuildReportList, error) {
	return &registryv1pb.BuildReportList{}, s.registry.Builds(ctx, placeIn(r.GetUidp()))
}

// GetBuildStatus is of registryv1pb.RegistryServer.
func (s registryV1) GetBuildStatus(ctx context.Context, r *registryv1pb.BuildReportFilter) (*registryv1pb.BuildStatus, error) {
	return &registryv1pb.BuildStatus{}, s.registry.Builds(ctx, placeIn(r.GetUidp()))
}

// GetUpdateStatus is of registryv1pb.RegistryServer.
func (s registryV1) GetUpdateStatus(ctx context.Context, r *registryv1pb.UpdateStatusRequest) (*registryv1pb.UpdateStatus, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	recently, err := s.registry.RecentlyUpdated(ctx, repo)
	if err != nil {
		return nil, err
	}
	return &registryv1pb.UpdateStatus{RecentlyUpdated: recently}, nil
}

// GetSyncStatus is of registryv1pb.RegistryServer.
func (s registryV1) GetSyncStatus(ctx context.Context, r *registryv1pb.GetSyncStatusRequest) (*registryv1pb.SyncStatus, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	return nil, s.registry.SyncState(ctx, repo)
}

// ListSyncStatuses is of registryv1pb.RegistryServer.
func (s registryV1) ListSyncStatuses(ctx context.Context, r *registryv1pb.ListSyncStatusesRequest) (*registryv1pb.SyncStatusList, error) {
	group, err := resource.ParseUID("registry_id", r.GetRegistryId())
	if err != nil {
		return nil, err
	}
	return &registryv1pb.SyncStatusList{}, s.registry.SyncStates(ctx, group)
}

func settingsV1(group resource.UID, s resource.RegistrySettings) *registryv1pb.RegistrySettings {
	return &registryv1pb.RegistrySettings{RegistryId: string(group), UniqueTags: s.UniqueTags, EolGracePeriod: s.GracePeriod}
}

// GetRegistrySettings is of registryv1pb.RegistryServer.
func (s registryV1) GetRegistrySettings(ctx context.Context, r *registryv1pb.GetRegistrySettingsRequest) (*registryv1pb.RegistrySettings, error) {
	group, err := resource.ParseUID("registry_id", r.GetRegistryId())
	if err != nil {
		return nil, err
	}
	set, err := s.registry.GetSettings(ctx, group)
	if err != nil {
		return nil, err
	}
	return settingsV1(group, set), nil
}

// UpdateRegistrySettings is of registryv1pb.RegistryServer. What only our own
// methods know of the settings stays.
func (s registryV1) UpdateRegistrySettings(ctx context.Context, r *registryv1pb.RegistrySettings) (*registryv1pb.RegistrySettings, error) {
	group, err := resource.ParseUID("registry_id", r.GetRegistryId())
	if err != nil {
		return nil, err
	}
	set, err := s.registry.UpdateSettings(ctx, group, func(set *resource.RegistrySettings) error {
		set.UniqueTags, set.GracePeriod = r.GetUniqueTags(), r.GetEolGracePeriod()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return settingsV1(group, set), nil
}
