package metadata

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// runGap is the shortest time between the starts of two syncs of a repo, if callers request them.
const runGap = 5 * time.Second

// GetFollow returns the sync status of a repo. The caller needs repo.list on it. The result includes the identity
// that set the source only if the caller holds identity.list on the repo. It includes the failed tags only if the
// caller holds tag.list on the repo and on its source. It returns fault.FailedPrecondition if the repo has no source.
func (s *Service) GetFollow(ctx context.Context, repo resource.UID) (registry.Follow, error) {
	if _, err := s.GetRepo(ctx, repo); err != nil {
		return registry.Follow{}, err
	}
	f, err := s.sources.Follow(ctx, repo)
	if errors.Is(err, fault.NotFound) {
		err = fault.Unmet("SYNC_OFF", "this repo does not sync from another repo: its images come by push")
	}
	return s.visible(ctx, f), err
}

// visible returns f without the fields that the caller may not see.
func (s *Service) visible(ctx context.Context, f registry.Follow) registry.Follow {
	if f.Identity != "" && s.authz.Require(ctx, resource.IdentityList, f.Repo) != nil {
		f.Identity = ""
	}
	if len(f.FailedTags) == 0 {
		return f
	}
	if s.authz.Require(ctx, resource.TagList, f.Repo) != nil || s.authz.Require(ctx, resource.TagList, f.Source) != nil {
		f.FailedTags = nil
	}
	return f
}

var followList = page.List{Kind: "follows", Fields: []string{"uid"}, Default: page.Order{Field: "uid"}}

// ListFollows returns a page of the sync statuses of the repos below a group, with the same fields that GetFollow
// would return for each. The caller needs repo.list on the group.
func (s *Service) ListFollows(
	ctx context.Context, group resource.UID, p page.Params,
) (page.Page[registry.Follow], error) {
	filter, req, err := page.Resume(s.pages, followList, []string{string(group)}, p)
	if err != nil {
		return page.Page[registry.Follow]{}, err
	}
	group = resource.UID(filter[0])
	if _, err := authz.Get(ctx, s.authz, resource.RepoList, group, s.iam.Group); err != nil {
		return page.Page[registry.Follow]{}, err
	}
	if req.Order.Desc {
		return page.Page[registry.Follow]{}, fault.Field("order_by", "must be uid")
	}
	got, err := s.sources.Follows(ctx, group, req)
	if err != nil {
		return page.Page[registry.Follow]{}, err
	}
	for i, f := range got.Items {
		got.Items[i] = s.visible(ctx, f)
	}
	return page.Finish(s.pages, req, got), nil
}

// RunFollow requests a sync of a repo and returns its sync status. The sync begins at least runGap after the last one.
// The caller needs repo.update and repo.list on the repo. It returns fault.FailedPrecondition if the repo has no
// source.
func (s *Service) RunFollow(ctx context.Context, repo resource.UID) (registry.Follow, error) {
	if err := s.requireAll(ctx, repo, resource.RepoUpdate, resource.RepoList); err != nil {
		return registry.Follow{}, err
	}
	f, err := s.GetFollow(ctx, repo)
	if err != nil {
		return f, err
	}
	if err := s.sources.RequestFollow(ctx, repo, runGap); err != nil {
		return f, err
	}
	return s.GetFollow(ctx, repo)
}
