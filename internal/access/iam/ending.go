package iam

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// The bounds of how soon something ends.
const (
	defaultEnding = 3 * 24 * time.Hour
	maxEnding     = 366 * 24 * time.Hour
)

// ListEnding returns the role bindings that end within a time, the one that ends next first, among those that the caller
// may list, and whether there are more. group, if set, narrows it down to what is on it and below it.
func (s *Service) ListEnding(
	ctx context.Context, within time.Duration, group resource.UID, size int32,
) (all []resource.BoundRole, more bool, _ error) {
	under, err := s.authz.Reach(ctx, resource.RoleBindingsList)
	if err != nil {
		return nil, false, err
	}
	switch {
	case within < 0 || within > maxEnding:
		return nil, false, fault.Field("within", "must be at most a year")
	case size < 0:
		return nil, false, fault.Field("page_size", "must not be negative")
	case within == 0:
		within = defaultEnding
	}
	n := int(min(size, page.MaxSize))
	if n == 0 {
		n = page.DefaultSize
	}
	_, now := s.store.Clock()
	for _, org := range roots(under) {
		some, err := s.store.EndingBindings(ctx, org, now.Add(within), n+1, func(uid resource.UID) bool {
			return (group == "" || group.Covers(uid)) && slices.ContainsFunc(under, func(g resource.UID) bool { return g.Covers(uid) })
		})
		if err != nil {
			return nil, false, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b resource.BoundRole) int { return a.ExpireTime.Compare(b.ExpireTime) })
	if more = len(all) > n; more {
		all = all[:n]
	}
	s.redactAll(ctx, all)
	return all, more, nil
}

// roots returns the organizations of groups, each once.
func roots(groups []resource.UID) (all []resource.UID) {
	for _, g := range groups {
		all = append(all, g.Root())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
