package iam

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The default and the maximum of ListEnding's parameter within.
const (
	defaultEnding = 3 * 24 * time.Hour
	maxEnding     = 366 * 24 * time.Hour
)

// ListEnding returns the role bindings that expire within a duration, among the bindings that the caller may list,
// ordered by their expiry, and whether there are more. If group is set, it returns only bindings on group and below
// it.
func (s *Service) ListEnding(
	ctx context.Context, within time.Duration, group resource.UID, size int32,
) (ending []resource.BoundRole, more bool, _ error) {
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
	_, latest := s.store.Clock()
	keep := func(uid resource.UID) bool {
		return (group == "" || group.Covers(uid)) && store.Covered(under, uid)
	}
	for _, org := range roots(under) {
		found, err := s.store.EndingBindings(ctx, org, latest.Add(within), n+1, keep)
		if err != nil {
			return nil, false, err
		}
		ending = append(ending, found...)
	}
	slices.SortFunc(ending, func(a, b resource.BoundRole) int { return a.ExpireTime.Compare(b.ExpireTime) })
	if more = len(ending) > n; more {
		ending = ending[:n]
	}
	s.redactAll(ctx, ending)
	return ending, more, nil
}

// roots returns the organizations of groups, without duplicates.
func roots(groups []resource.UID) (orgs []resource.UID) {
	for _, g := range groups {
		orgs = append(orgs, g.Root())
	}
	slices.Sort(orgs)
	return slices.Compact(orgs)
}
