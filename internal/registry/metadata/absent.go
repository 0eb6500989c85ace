package metadata

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// The methods in this file exist for clients of version 1. They are about features
// that this server does not have: builds, a calendar of releases.
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
