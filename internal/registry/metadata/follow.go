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

// runGap is how long after a run the next begins that somebody asks for, at the earliest.
const runGap = 5 * time.Second

// GetFollow returns how a repo stands that follows another. The caller needs repo.list on it. Who has set the source is told
// to callers with identity.list on it alone, and tags that failed to those with tag.list on both. It returns
// fault.FailedPrecondition if the repo follows no other.
func (s *Service) GetFollow(ctx context.Context, repo resource.UID) (registry.Follow, error) {
	if _, err := s.GetRepo(ctx, repo); err != nil {
		return registry.Follow{}, err
	}
	f, err := s.sources.Follow(ctx, repo)
	if errors.Is(err, fault.NotFound) {
		err = fault.Unmet("SYNC_OFF", "this repo follows no other: its images come by push")
	}
	return s.veiled(ctx, f), err
}

// veiled returns f without what the caller may not see.
func (s *Service) veiled(ctx context.Context, f registry.Follow) registry.Follow {
	if f.Identity != "" && s.authz.Require(ctx, resource.IdentityList, f.Repo) != nil {
		f.Identity = ""
	}
	if len(f.FailedTags) > 0 && (s.authz.Require(ctx, resource.TagList, f.Repo) != nil || s.authz.Require(ctx, resource.TagList, f.Source) != nil) {
		f.FailedTags = nil
	}
	return f
}

var followList = page.List{Kind: "follows", Fields: []string{"uid"}, Default: page.Order{Field: "uid"}}

// ListFollows returns a page of the repos below a group that follow another, with how they stand, under the rules of
// GetFollow. The caller needs repo.list on the group.
func (s *Service) ListFollows(
	ctx context.Context, group resource.UID, p page.Params,
) (page.Page[registry.Follow], error) {
	of, req, err := page.Resume(s.pages, followList, []string{string(group)}, p)
	if err != nil {
		return page.Page[registry.Follow]{}, err
	}
	group = resource.UID(of[0])
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
		got.Items[i] = s.veiled(ctx, f)
	}
	return page.Finish(s.pages, req, got), nil
}

// RunFollow makes a repo that follows another due now, or in a moment if it was just done, and returns how it stands. The
// caller needs repo.update and repo.list on it. It returns fault.FailedPrecondition if the repo does not follow.
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
