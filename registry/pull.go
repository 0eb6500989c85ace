package registry

import (
	"context"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// ListPulls returns a page of who pulled from which repo, or pushed to it. It
// tells about people, so the caller needs identity.list beside repo.list.
func (s *Service) ListPulls(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Pull], error) {
	repos, err := s.authz.Reach(ctx, resource.RepoList)
	if err != nil {
		return page.Page[resource.Pull]{}, err
	}
	people, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return page.Page[resource.Pull]{}, err
	}
	return list(ctx, s, pullList, overlap(repos, people), f, p, s.store.Pulls)
}
