package registry

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// The methods in this file exist for clients of version 1. They are about features
// that this server does not have: builds, copies of images, a calendar of releases.
// They authorize and validate like any other method, and then say so.

// PackageVersions returns fault.NotFound. The caller needs version.list anywhere.
func (s *Service) PackageVersions(ctx context.Context, name string) error {
	if err := s.authz.RequireAnywhere(ctx, resource.VersionList); err != nil {
		return err
	}
	if name == "" {
		return fault.Field("package", "is required")
	}
	no := fault.Missing("versions of package", clip(name))
	no.Message += ": this server knows no calendar of releases"
	return no
}

// Builds returns nil, because there are no builds. The caller needs build_report.list anywhere.
func (s *Service) Builds(ctx context.Context, place resource.UIDFilter) error {
	if err := s.authz.RequireAnywhere(ctx, resource.BuildReportsList); err != nil {
		return err
	}
	return place.Validate()
}

// SyncState returns fault.FailedPrecondition. The caller needs repo.list on the repo.
func (s *Service) SyncState(ctx context.Context, repo resource.UID) error {
	if _, err := s.GetRepo(ctx, repo); err != nil {
		return err
	}
	return fault.Unmet("SYNC_OFF", "this server copies no images: they come by push")
}

// SyncStates returns nil, because there are no copies. The caller needs repo.list on the group.
func (s *Service) SyncStates(ctx context.Context, group resource.UID) error {
	_, err := authz.Get(ctx, s.authz, resource.RepoList, group, s.iam.Group)
	return err
}

const recent = 7 * 24 * time.Hour

// RecentlyUpdated reports whether a tag of a repo has moved in the last seven days.
// The caller needs tag.list on it.
func (s *Service) RecentlyUpdated(ctx context.Context, repo resource.UID) (bool, error) {
	if _, err := authz.Get(ctx, s.authz, resource.TagList, repo, s.store.Repo); err != nil {
		return false, err
	}
	f := resource.Filter{
		UIDs: resource.UIDFilter{ChildrenOf: repo}, UpdatedSince: s.now().Add(-recent),
		Classes: []resource.TagClass{resource.DateTag, resource.EpochTag},
	}
	got, err := s.ListTags(ctx, f, page.Params{Size: 1})
	return got.Total > 0, err
}
