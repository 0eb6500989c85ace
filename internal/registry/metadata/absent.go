package metadata

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// PackageVersions and Builds exist for clients of version 1 of the API. They are about features that this server does
// not have: a calendar of releases, and builds. They authorize and validate like other methods, and then return
// fault.NotFound or no builds.

// PackageVersions returns fault.NotFound, because there is no calendar of releases. The caller needs version.list on
// any resource.
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

// Builds returns nil, because there are no builds. The caller needs build_report.list on any resource.
func (s *Service) Builds(ctx context.Context, place resource.UIDFilter) error {
	if err := s.authz.RequireAnywhere(ctx, resource.BuildReportsList); err != nil {
		return err
	}
	return place.Validate()
}

const recent = 7 * 24 * time.Hour

// RecentlyUpdated reports whether a tag of a repo has moved in the last seven days. The caller needs tag.list on the
// repo.
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
